"""Mistakes of a producer: what it sends again, and where."""

from typing import Final

from fmqsim.mutants.mutant import Mutant, mutant
from fmqsim.scenario.scene import Focus

TOPIC: Final = "fmqclient/producer/topic_buffers.py"

SENDING: Final[tuple[Mutant, ...]] = (
    mutant(
        "a one-way batch that was given up is answered",
        "its stream took it when no caller waited any more, and the producer ends",
        (
            "fmqclient/producer/sender.py",
            "            if batch not in buffer.in_flight:\n"
            "                continue  # it expired before the stream took it\n",
            "",
        ),
        tests=(
            "broker/fmqclient/tests/test_producer_link.py::test_batch_abandoned_in_a_stalled_stream_ends_nothing",
        ),
        alone="known seeds find it (`test_seeds.py`); this is quicker",
    ),
    mutant(
        "what is pinned moves with the rest",
        "it goes to a group that its program did not ask for",
        (
            TOPIC,
            "            (record, pending_batch, buffer if record[5] else None)\n",
            "            (record, pending_batch, None)\n",
        ),
        tests=(
            "broker/fmqclient/tests/test_topic_buffers.py::test_unanswered_batch_stays_with_its_group",
        ),
        alone="no producer of a simulation pins a record of a key that others have, too",
    ),
    mutant(
        "a topic that is not there any more forgets its number",
        "one that had the name before comes back with a broker that knows less",
        (
            "fmqcore/routing.py",
            "        if topic.id >= newest.get(topic.name, 0):\n",
            "        if topic.id >= newest.get(topic.name, 0) or topic.name not in table.topics:\n",
        ),
        tests=(
            "broker/fmqclient/tests/test_client_regressions.py::test_answer_lacking_a_topic_restores_no_older_one",
        ),
        alone="two brokers must be late, one by more than the other, while a topic is recreated",
    ),
    mutant(
        "a producer's sessions are strangers to each other",
        "what was given up comes over its old connection, and is stored after what is newer",
        (
            "fmqclient/producer/sender.py",
            "        if self._producer_id and self._producer_epoch < MAX_PRODUCER_EPOCH:\n",
            "        if self._producer_id < 0:\n",
        ),
        tests=(
            "broker/fmqclient/tests/test_producer_link.py::test_late_abandoned_batch_is_not_stored_after_newer_ones",
        ),
        alone="a link must be cut one way past a deadline, and heal (1220001552)",
    ),
    mutant(
        "an older session of a producer goes on",
        "what comes late over its connection is stored before the newer one has stored anything",
        (
            "fmqbroker/produce/producer_sessions.py",
            "            other.superseded = other.superseded or _number(other) < newest\n",
            "            other.superseded = False\n",
        ),
        tests=(
            "broker/fmqbroker/tests/produce/test_produce.py::test_late_batch_of_older_session_is_refused",
        ),
        alone="the table sees to it from the next batch on: a second guard but for one_way",
    ),
    mutant(
        "a session outlives its term",
        "what its connection holds still is stored when its broker is master again, after others",
        (
            "fmqbroker/produce/session.py",
            "        if self.epoch != now:\n",
            "        if self.epoch > now:\n",
        ),
        tests=(
            "broker/fmqbroker/tests/produce/test_session_ends.py::test_a_session_ends_with_the_term_in_which_it_was_opened",
        ),
        alone="the table sees to it where there was an answer: a second guard but for one_way",
    ),
    mutant(
        "a topic that is back has its sequences from before",
        "its sequences restart in the same session: a new batch is taken for a retry, and is lost",
        (
            "fmqclient/producer/accumulator.py",
            "                self.senders[buffer.group].renew()\n",
            "                pass\n",
        ),
        tests=(
            "broker/fmqclient/tests/test_deleted_topics.py::test_topic_briefly_missing_from_routes_gets_a_new_session",
        ),
        alone="a broker must not have heard of a topic that others use",
    ),
    mutant(
        "what is under way of a topic that is gone is forgotten",
        "its stream ends, and whoever waits for it waits for ever",
        (
            "fmqclient/producer/accumulator.py",
            "            self._gone.append((topic, error))\n",
            "            pass\n",
        ),
        focus=Focus(topics=True),
        seeds=(7, 13),
    ),
    mutant(
        "a Hello from before another's term counts",
        "who is promoted hears that a slave has no more, which it had not by then",
        (
            "fmqbroker/replication/master.py",
            "        self.links.clear()\n        self._lost.clear()\n",
            "        self._streams._dials.clear()\n"
            "        self.links.clear()\n        self._lost.clear()\n",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_hello.py::test_a_hello_from_an_earlier_mastership_proves_nothing",
        ),
        alone="a dial must be held up while its master is another one that is lost for good then",
    ),
    mutant(
        "a one-way producer has one session for all its life",
        "what its lost connection holds still is stored after what is newer",
        (
            "fmqclient/producer/sender.py",
            "            self._renew = True  # a late copy must not come after newer records\n",
            "",
        ),
        tests=(
            "broker/fmqclient/tests/test_producer_link.py::test_session_numbers_rise_then_producer_id_is_renewed",
        ),
        alone="what a lost connection holds comes seldom, and seldom after what is newer",
    ),
    mutant(
        "a late ack of what was given up counts",
        "its producer ends, though something else is under way on that stream",
        (
            "fmqclient/producer/sender.py",
            "                if batch not in buffer.in_flight:\n"
            "                    continue  # it expired meanwhile\n",
            "",
        ),
        tests=(
            "broker/fmqclient/tests/test_producer_link.py::test_ack_of_an_abandoned_batch_ends_nothing",
        ),
        alone="it must come between two deadlines",
    ),
    mutant(
        "records are placed again in any order",
        "groups come and go, and what is older follows what is younger of the same key",
        (TOPIC, "        moved.sort(key=lambda entry: entry[0][6])\n", ""),
        tests=(
            "broker/fmqclient/tests/test_topic_buffers.py::test_records_placed_again_keep_their_send_order",
        ),
        alone="the group that was there first must hold what is younger",
    ),
    mutant(
        "what is not answered follows to another group",
        "it is refused late, and comes behind what was handed in after it",
        (
            TOPIC,
            "                batch.free_keys.discard(key)\n",
            "                pass\n",
        ),
        tests=(
            "broker/fmqclient/tests/test_topic_buffers.py::test_unanswered_batch_stays_with_its_group",
        ),
        alone="a refusal that takes longer than the hold is rare",
    ),
    mutant(
        "more leaves beside an unknown outcome",
        "the client sends what follows while it does not know of what went before: order is lost",
        (
            "fmqclient/producer/queue_buffer.py",
            "            and not any(f.unknown for f in in_flight)\n",
            "",
        ),
        tests=(
            "broker/fmqclient/tests/test_queue_buffer.py::test_no_send_beside_an_unknown_outcome",
        ),
        alone="the broker refuses a sequence that leaves a gap: a second guard",
    ),
    mutant(
        "what was refused goes last",
        "the client lets later records of a key pass the one that it must send again",
        (
            "fmqclient/producer/queue_buffer.py",
            "        self.pending.extendleft(reversed(turned_back))\n",
            "        self.pending.extend(turned_back)\n",
        ),
        seeds=(0,),
    ),
    mutant(
        "who finds room passes those who wait for it",
        "a full window, and records of one key are stored in another order than they were sent",
        (
            "fmqclient/producer/buffer_waiters.py",
            "        if not self._waiting:\n",
            "        if True:\n",
        ),
        tests=(
            "broker/fmqclient/tests/test_producer_room.py::test_small_records_do_not_overtake_a_large_one",
        ),
        alone="producers of a simulation never fill their window",
    ),
    mutant(
        "never appended covers attempts of other terms",
        "a batch that a takeover reader showed ends as not stored",
        (
            "fmqclient/producer/batches.py",
            "            self.doubtful = self.doubtful or self.terms != {term}\n",
            "",
        ),
        seeds=(6386310128,),
    ),
    mutant(
        "many batches in flight before the first is accepted",
        "an unknown producer may begin anywhere: a lost first batch leaves an undetected hole",
        (
            "fmqclient/producer/queue_buffer.py",
            "            self.proven\n            and self",
            "            self",
        ),
        tests=(
            "broker/fmqclient/tests/test_queue_buffer.py::test_only_one_flight_until_one_is_accepted",
        ),
        alone="it takes the loss of the very first batch of a producer",
    ),
    mutant(
        "a queue buffer goes on after an abandoned batch",
        "its outcome is unknown, and what follows takes its sequence",
        (
            "fmqclient/producer/queue_buffer.py",
            "        self._over(batch)\n        self.poisoned = True\n",
            "        self._over(batch)\n",
        ),
        tests=(
            "broker/fmqclient/tests/test_queue_buffer.py::test_abandoned_flight_blocks_sends_until_a_new_session",
        ),
        alone="the broker refuses a sequence that leaves a gap: a second guard",
    ),
    mutant(
        "a repeat that falls due without a stream is sent twice",
        "that no copy was appended is true of one of them only, and it is stored twice",
        (
            "fmqclient/producer/sender.py",
            "        self._resends.clear()  # each",
            "        # each",
        ),
        (
            "fmqclient/producer/sender.py",
            "        self._window_bytes = 0  # not",
            "        # not",
        ),
        tests=(
            "broker/fmqclient/tests/test_settling.py::test_a_repeat_due_without_a_stream_is_sent_once",
        ),
        alone="its session must end between a refusal and the repeat, and writes return",
    ),
)
