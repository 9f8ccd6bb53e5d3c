"""Mistakes of a consumer: which acks it keeps, and what it reports about them."""

from typing import Final

from fmqsim.mutants.mutant import Mutant, mutant

_SWEEP: Final = "broker/fmqbroker/tests/consume/test_topic_sweep.py"

CONSUMING: Final[tuple[Mutant, ...]] = (
    mutant(
        "acks may be scattered without a limit",
        "an entry cannot be stored then, and no group's progress is",
        (
            "fmqcore/consume/in_flight.py",
            "        if first >= end or (first > self.floor and self.is_full):\n",
            "        if first >= end:\n",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_group_growth.py::test_progress_can_always_be_stored",
        ),
        alone="no member of a simulation acks tens of thousands of messages one by one",
    ),
    mutant(
        "a batch that did not fit goes to the end of the line",
        "a queue of large ones gets nothing beside a backlog of small ones",
        (
            "fmqbroker/consume/delivery.py",
            "                waits[queue] = None  # its",
            "                pass  # its",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_group_growth.py::test_large_batches_come_beside_a_backlog_of_small_ones",
        ),
        alone="the backlog must be larger than any that a simulation makes",
    ),
    mutant(
        "a consumer's acks are forgotten with its session",
        "what the program has done, and the lost reader had not stored, is shown to it again",
        (
            "fmqclient/consumer/ack_tracker.py",
            '        """Note that the session is lost; what the program has done stays known."""\n',
            "        self.done = RangeSet()\n",
        ),
        seeds=(0,),
    ),
    mutant(
        "a token counts for acks that were not sent",
        "the new reader has stored nothing of a queue that it has not given to this consumer yet",
        (
            "fmqclient/consumer/ack_tracker.py",
            "RangeSet(self.done) if self.held or self.revoked else None",
            "RangeSet(self.done)",
        ),
        tests=(
            "broker/fmqclient/tests/test_ack_tracker.py::test_token_proves_nothing_for_queues_not_held",
        ),
        alone="the queue must come back later than a token is answered, and to the same consumer",
    ),
    mutant(
        "where a queue begins counts as stored",
        "a takeover loses the broker's memory: what was acked comes again, and commit() lied",
        (
            "fmqclient/consumer/ack_tracker.py",
            "        self._keep()\n"
            "        self.held, self.revoked, self.lost_acks = True, False, False\n",
            "        self._keep()\n        self.done = RangeSet()\n"
            "        self.held, self.revoked, self.lost_acks = True, False, False\n",
        ),
        tests=(
            "broker/fmqclient/tests/test_session_commit.py::test_start_of_a_queue_proves_no_ack_stored",
        ),
        alone="a session must be lost, its queue come back, and the reader go before it stores",
    ),
    mutant(
        "a seek that comes back is a new one",
        "what a member has acked after it comes again, and commit() lied",
        (
            "fmqclient/consumer/ack_tracker.py",
            "            back = version_epoch(seek_number) < self._read_epoch",
            "            back = False",
        ),
        tests=(
            "broker/fmqclient/tests/test_ack_tracker.py::test_returning_seek_voids_no_later_ack",
        ),
        alone="a master must take a seek with it for a while",
    ),
    mutant(
        "an ack does not name its epoch",
        "it counts for whatever message has that offset now",
        (
            "fmqclient/consumer/message.py",
            "        self.epoch = header.epoch\n",
            "        self.epoch = 0\n",
        ),
        tests=(
            "broker/fmqclient/tests/test_redelivered_copies.py::test_ack_names_the_epoch_of_its_batch",
        ),
        alone="only a policy that may lose gives an offset twice",
    ),
    mutant(
        "a number that ZooKeeper has not given is a deleted topic's",
        "ZooKeeper was lost: progress in topics that a person brings back a day later is gone",
        (
            "fmqbroker/cluster/view.py",
            "        return frozenset(t for t in strange - lost if numbers.was_given(t))\n",
            "        return frozenset(strange - lost)\n",
        ),
        tests=(f"{_SWEEP}::test_progress_stays",),
        alone="no seed lives for a day",
    ),
    mutant(
        "progress in a topic that is gone goes at once",
        "a topic whose node was deleted by mistake and restored is read from its beginning",
        (
            "fmqbroker/consume/topic_sweep.py",
            "frozenset(topic for topic in gone if now_ms - since[topic] >= GONE_S * 1000)",
            "gone",
        ),
        tests=(f"{_SWEEP}::test_progress_of_a_topic_missing_for_a_day_is_removed",),
        alone="no seed lives for a day",
    ),
    mutant(
        "a topic that came back is still gone",
        "the day counts from the first time that it was gone, so the next look takes the progress",
        (
            "fmqbroker/consume/topic_sweep.py",
            "        self._gone_since_ms = since\n",
            "        self._gone_since_ms |= since\n",
        ),
        tests=(f"{_SWEEP}::test_a_topic_that_was_there_in_between_was_not_gone",),
        alone="no seed lives for a day",
    ),
    mutant(
        "an older stream takes its session's queues along",
        "who has dialled again holds nothing, hears nothing of that, and waits for ever",
        (
            "fmqbroker/consume/group.py",
            "        if self.sessions.get(session.id) is session:\n            if not",
            "        if session.id in self.sessions:\n            if not",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_group.py::test_older_stream_of_a_session_ends_without_releasing_queues",
        ),
        alone="a consumer must be back before its broker knows that it was gone",
    ),
    mutant(
        "a leave without a token is answered at once",
        "its program ends, and no client sends its last acks again",
        (
            "fmqbroker/consume/service.py",
            "            if not request.commit_token:  # else",
            "            if False:  # else",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_stored_progress.py::test_leave_is_answered_once_its_acks_are_stored",
        ),
        alone="a consumer must close within a token's way, and its broker be lost before it stores",
    ),
)
