"""Mistakes between master and slave."""

from typing import Final

from fmqsim.mutants.mutant import (
    CACHE_ONE,
    DURABLE_ONE,
    MASTER_ALONE,
    POWER,
    Mutant,
    mutant,
)
from fmqsim.scenario.scene import Focus

LINK: Final = "fmqbroker/replication/master_stream.py"
MASTER: Final = "fmqbroker/replication/master.py"
STREAMS: Final = "fmqbroker/replication/slave_registry.py"
UPSTREAM: Final = "fmqbroker/replication/slave_stream.py"
ISR: Final = "fmqbroker/replication/in_sync_set.py"
_CORNERS: Final = "broker/fmqbroker/tests/replication/test_in_sync_set_full_disk.py::"
RECONCILE: Final = "fmqcore/replication/reconciliation.py"

REPLICATING: Final[tuple[Mutant, ...]] = (
    mutant(
        "a second change of the set begins while one is in doubt",
        "the first is forgotten: whom it took out acknowledges alone (R6)",
        (
            ISR,
            "        if current is None or self._pending is not None:",
            "        if current is None:",
        ),
        tests=(_CORNERS + "test_a_second_change_of_the_set_does_not_forget_one_in_doubt",),
        alone="an answer must be lost, ZooKeeper stay away, and a third slave join just then",
    ),
    mutant(
        "slave acks before its fsync",
        "it calls durable what it only received: its power cut takes what had an OK",
        (
            UPSTREAM,
            "            durable_end=journal.durable_end,\n            credit_bytes",
            "            durable_end=journal.end,\n            credit_bytes",
        ),
        focus=Focus(1, DURABLE_ONE, (), ("slow disk",)),
        seeds=(0,),
    ),
    mutant(
        "no epoch check on append",
        "a master of the past writes into the journal of a slave that has a newer one",
        (
            UPSTREAM,
            "if append.epoch < journal.epoch:",
            "if append.epoch < 0:",
        ),
        (
            UPSTREAM,
            "seen = max(read, self._journal.epoch, self._group.state.value.epoch)",
            "seen = Epoch(0)",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_master_stream.py::test_an_append_that_does_not_fit_is_refused",
        ),
        alone="the stream of the past is closed before the newer epoch is known: a second guard",
    ),
    mutant(
        "no epoch check on ack",
        "what a slave reported in another term counts in this one",
        (
            "fmqcore/policy.py",
            "        if ends.epoch == master.epoch\n",
            "        if ends.epoch <= master.epoch\n",
        ),
        tests=("broker/fmqcore/tests/test_policy.py::test_commit_end_matches_the_definition",),
        alone="streams do not outlive a term with another history: a second guard",
    ),
    mutant(
        "acks counted from an old stream",
        "a slave that came back with less still counts with what it had before",
        (
            STREAMS,
            "        view.sent_end = view.received_end = view.durable_end = NOTHING\n"
            "        view.epoch = Epoch(0)\n",
            "",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_master_stream.py::test_acks_of_an_older_stream_count_for_nothing",
        ),
        alone="it counts from the Hello to the first ack of the new stream, some milliseconds",
    ),
    mutant(
        "in-sync set expanded early",
        "a learner enters before it holds what was committed: it may take over without it",
        (
            ISR,
            "if joining is None or facts[joining.broker].counted_end < joining.mark:",
            "if joining is None:",
        ),
        (
            "fmqcore/replication/in_sync_set.py",
            "        and master_end - facts.counted_end <= limits.in_sync_lag_bytes\n",
            "",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_in_sync_set.py::test_a_learner_enters_only_with_all_that_was_committed",
        ),
        alone="a simulated learner lacks so little that it has caught up before anything happens",
    ),
    mutant(
        "in-sync set shrunk after, not before, its waiters are answered",
        "the policy holds without a slave that ZooKeeper still lets take over",
        (
            ISR,
            "return [current] if asked is None or asked == current else [current, asked]",
            "return [current] if asked is None or asked == current else [asked]",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_in_sync_set.py::test_lost_slave_blocks_acks_while_zookeeper_is_away",
        ),
        alone="it shows only while ZooKeeper does not answer, and is over with the lease",
    ),
    mutant(
        "a lost slave fails no waiter",
        "what waits for it waits until its time is out, instead of being failed at once",
        (
            ISR,
            "            self._commit.refuse(reason, self._journal.end)\n",
            "            pass\n",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_in_sync_set.py::test_a_policy_that_cannot_be_met_refuses_at_once",
        ),
        alone="no answer is ever wrong, only late",
    ),
    mutant(
        "truncation to the wrong epoch",
        "a slave is cut to where the common epoch begins: it loses more than the difference",
        (
            RECONCILE,
            'return _cut(slave, master, common.end, f"the journals part at {common.end}")',
            'return _cut(slave, master, common.start, f"the journals part at {common.end}")',
        ),
        tests=(
            "broker/fmqcore/tests/replication/test_reconciliation.py::test_all_pairs_of_short_histories_reconcile",
        ),
        alone="what is cut too far is sent again",
    ),
    mutant(
        "truncation below the commit end",
        "a slave cuts away what was committed, and perhaps served",
        (
            RECONCILE,
            "    if lost_from < slave.floor:",
            "    if lost_from < Position(0):",
        ),
        (
            UPSTREAM,
            "        if position < self._commit.commit_end:\n",
            "        if position < 0:\n",
        ),
        (
            "fmqbroker/journal/truncation.py",
            "    if position < parts.checkpoints.commit_end and position < parts.tail.end:\n",
            "    if position < 0:\n",
        ),
        tests=(
            "broker/fmqcore/tests/replication/test_reconciliation.py::test_all_pairs_of_short_histories_reconcile",
        ),
        alone="histories that part below a commit end need two mistakes: this guard is the second",
    ),
    mutant(
        "slave ahead is truncated instead of read",
        "a master that lost its cache takes away from its slaves what they alone still have",
        (
            RECONCILE,
            "    if common.end == master.end and master.opening:\n",
            "    if common.end == master.end and not master.opening:\n",
        ),
        focus=Focus(1, CACHE_ONE, (), POWER),
        seeds=(0,),
    ),
    mutant(
        "what is appended for a term leaves before it stands",
        "a slave holds an epoch that another broker may open, too",
        (
            MASTER,
            "return self._journal.end if self._epoch else self._settled.end",
            "return self._journal.end",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_replication.py::test_returning_master_ships_only_settled_bytes",
        ),
        alone="it takes another change to win the race for the state just then",
    ),
    mutant(
        "retention deletes under a slave's feet",
        "a slave in sync that is a little behind must drop all it has and start again",
        (
            MASTER,
            "return min([self._journal.durable_end, *map(self.counted_end,",
            "return max([self._journal.durable_end, *map(self.counted_end,",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_replication.py::test_retention_waits_for_the_slowest_in_sync_slave",
        ),
        alone="the slave starts again and has all again: nothing is lost but time",
    ),
    mutant(
        "a learner counts",
        "slaves out of sync make an OK, and none of them may be there when it matters",
        (
            "fmqcore/policy.py",
            "for broker in sorted(isr)]",
            "for broker in sorted({*isr, *counted})]",
        ),
        tests=("broker/fmqcore/tests/test_policy.py::test_commit_end_matches_the_definition",),
        alone="a simulated slave is out of sync only for moments",
    ),
    mutant(
        "the commit end may fall",
        "a reader sees what it has seen vanish",
        (
            "fmqbroker/replication/commit_frontier.py",
            "        self.commit_end = max(self.commit_end, commit_end)\n",
            "        self.commit_end = commit_end\n",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_replication.py::test_every_policy_holds_back_until_enough_slaves_count",
        ),
        alone="what it is computed from does not fall within a stream: a second guard",
    ),
    mutant(
        "an ack of one level is taken for another's",
        "acks=all is answered as soon as the group's own policy holds",
        (
            "fmqbroker/produce/pending_acks.py",
            "ends = (commit.commit_end, end, end, journal.durable_end, commit.all_end)",
            "ends = (commit.commit_end, end, end, journal.durable_end, commit.commit_end)",
        ),
        focus=Focus(2, MASTER_ALONE, (), POWER),
        seeds=(1,),
    ),
    mutant(
        "who is on the way into the set does not count yet",
        "what is committed until it is in it need not hold, and then it may take over",
        (ISR, "            asked = current | {self._joining.broker}\n", "            pass\n"),
        tests=(
            "broker/fmqbroker/tests/replication/test_in_sync_set.py::test_a_learner_enters_only_with_all_that_was_committed",
        ),
        alone="a simulated learner lacks so little that it has caught up before anything happens",
    ),
    mutant(
        "a change of the in-sync set of another term",
        "who was lost in one term is taken out in the next, in which it is in sync",
        (ISR, "if not is_master or state.epoch != epoch:", "if not is_master:"),
        tests=(
            "broker/fmqbroker/tests/replication/test_in_sync_set.py::test_a_change_of_the_set_is_of_one_term",
        ),
        alone="a term must end and begin while the change waits for ZooKeeper",
    ),
    mutant(
        "a replaced stream still counts",
        "what a slave sent before it came back is read after its Hello",
        (
            STREAMS,
            "            older.view = LinkView()\n            older.cancel()",
            "            older.cancel()",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_hello.py::test_a_newer_stream_of_the_same_process_takes_over",
        ),
        alone="both messages must be read within one turn of the loop",
    ),
    mutant(
        "a stream is missing in the table",
        "a member that dials before its master knows that member never comes in sync",
        (MASTER, "        self.links[link.broker] = link.view", "        _ = link.view"),
        tests=(
            "broker/fmqbroker/tests/replication/test_replication.py::test_member_dialing_before_master_knows_it_becomes_in_sync",
        ),
        alone="no member is added in a simulation",
    ),
    mutant(
        "who becomes master keeps what it had settled",
        "all that it followed as a slave counts as an unfinished term, to be cut for a suffix",
        (
            MASTER,
            "        self._settled.all()\n        self._streams.end_all()",
            "        self._streams.end_all()",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_replication.py::test_slave_that_becomes_master_ships_its_whole_journal",
        ),
        alone="the term is open within milliseconds, and the commit end bounds what is cut",
    ),
    mutant(
        "a term given up counts as a try",
        "the part that slaves may have is cut to make room for a suffix",
        (
            MASTER,
            "        self._settled.all()\n        self._ends.close()",
            "        self._ends.close()",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_replication.py::test_broker_that_ended_its_term_ships_all_its_bytes",
        ),
        alone="the committed part is not cut: a second guard",
    ),
    mutant(
        "the commit end is not remembered",
        "after a restart it may be cut back by another master, and no guard objects",
        (
            "fmqbroker/replication/commit_end.py",
            "            journal.note_commit_end(self._commit.commit_end)\n",
            "            pass\n",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_replication.py::test_a_slave_gets_every_byte",
        ),
        alone="it is the last guard behind others",
    ),
    mutant(
        "retention takes what is not committed",
        "what was stored on the master's disk alone goes before anybody could read it",
        (
            "fmqbroker/data/retention.py",
            "keep_from = min(ours, self._master.keep_from() if masters else self._others_hold())",
            "keep_from = self._master.keep_from() if masters else self._others_hold()",
        ),
        tests=(
            "broker/fmqbroker/tests/data/test_retention.py::test_master_keeps_uncommitted_segments",
        ),
        alone="it takes a policy that is not met for as long as retention keeps",
    ),
    mutant(
        "a stale master cuts a newer slave",
        "it has an old state of the group: what it does not know of is not void",
        (RECONCILE, "    if newest > master.epoch:\n", "    if newest > master.epoch + 1:\n"),
        tests=(
            "broker/fmqcore/tests/replication/test_reconciliation.py::test_each_reconciliation_row",
        ),
        alone="no state of a group is lost in a simulation",
    ),
    mutant(
        "a grant counts from its ack",
        "an ack that was long on its way: who granted claims while the master serves on",
        (LINK, "ack.echo_ms + ack.grant_ms)", "now + ack.grant_ms)"),
        tests=(
            "broker/fmqbroker/tests/replication/test_hello.py::test_grant_counts_from_the_masters_send_and_acks_never_fall",
        ),
        alone="a promise outlasts its grant by more than most acks are late",
    ),
    mutant(
        "one chunk holds what is settled and what is not",
        "a term's batches leave before it stands, to a slave that is behind",
        (
            LINK,
            "return chunk if position + len(chunk) <= end else chunk[: end - position]",
            "return chunk",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_replication.py::test_lagging_slave_gets_only_settled_bytes",
        ),
        alone="it takes another change to win the race for the state just then",
    ),
    mutant(
        "a slave's commit end is beyond its journal",
        "what comes there later, and may be taken back, counts as committed",
        (
            UPSTREAM,
            "commit_end = min(self._master_commit, self._journal.end)",
            "commit_end = self._master_commit",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_hello.py::test_a_slave_knows_of_no_commit_end_beyond_its_journal",
        ),
        alone="a slave is behind for moments, and histories seldom part there",
    ),
    mutant(
        "a Hello that was held up counts",
        "the network lets go of an old one, and a slave that follows is cut off and out of sync",
        (
            STREAMS,
            "dial <= link.dial:",
            "dial > 0:",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_hello.py::test_delayed_hello_does_not_displace_a_newer_stream",
        ),
        alone="its link must stall for a dial's time and heal while the next one stands",
    ),
    mutant(
        "duties wake together, later",
        "a lease is renewed, and a heartbeat sent, up to a tenth of a second too late",
        (
            "fmqport/wakeup_alignment.py",
            "due_ms // GRID_MS * GRID_MS",
            "-(-due_ms // GRID_MS) * GRID_MS",
        ),
        tests=(
            "broker/fmqport/tests/test_wakeup_alignment.py::test_long_wait_ends_at_the_last_common_moment_before_its_end",
        ),
        alone="every bound has room for it: nothing breaks, it is only nearer",
    ),
)
