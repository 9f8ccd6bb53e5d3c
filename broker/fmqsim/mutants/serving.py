"""Mistakes in what producers and consumers are answered."""

from typing import Final

from fmqsim.mutants.mutant import (
    DURABLE_ONE,
    NETWORK,
    POWER,
    TAKEOVER,
    Mutant,
    mutant,
)
from fmqsim.scenario.scene import Focus

OFFSETS: Final = "fmqbroker/consume/offsets/store.py"
ACKS: Final = "fmqbroker/produce/pending_acks.py"

SERVING: Final[tuple[Mutant, ...]] = (
    mutant(
        "offsets not shipped",
        "what was consumed from the slave is consumed again once the master is back",
        (
            "fmqbroker/failover/transitions.py",
            "            await p.offsets.install(received.payload, "
            "lacking=edit.max_delivered_position > 0)\n",
            "            pass\n",
        ),
        focus=Focus(1, DURABLE_ONE, (), TAKEOVER),
        seeds=(0,),
    ),
    mutant(
        "stale offsets overwrite newer",
        "of two entries the one that came last wins, not the one of the later change",
        (
            "fmqcore/batch/offset_entry.py",
            "        if old is None or entry > old:\n",
            "        if old is None or entry != old:\n",
        ),
        tests=(
            "broker/fmqcore/tests/consume/test_merge.py::test_merging_is_commutative_associative_and_idempotent",
        ),
        alone="entries come in the order of their versions but for rare crashes",
    ),
    mutant(
        "versions do not rise with the epoch",
        "what a reader in slave-consume stores loses against what its lost master had stored",
        (
            "fmqcore/batch/offset_entry.py",
            "return max(entry.version + 1 if entry else 1, epoch << _VERSION_EPOCH_SHIFT)",
            "return max(entry.version + 1 if entry else 1, epoch)",
        ),
        tests=(
            "broker/fmqcore/tests/batch/test_control.py::test_a_later_epochs_versions_are_higher",
        ),
        alone="what a reader stores is nearly always newer by its number, too",
    ),
    mutant(
        "consumer acks confirmed before they are stored",
        "a crash takes an ack that its consumer holds for safe",
        (
            "fmqbroker/consume/progress_writer.py",
            "        for written in rounds:\n            await written.wait()\n",
            "",
        ),
        focus=Focus(1, DURABLE_ONE, (), POWER),
        seeds=(0,),
    ),
    mutant(
        "takeover journal not synced",
        "a reader's power cut takes the acks that it had confirmed",
        (
            "fmqbroker/consume/offsets/side_journal.py",
            "await self._or_die(file.write([(at, [data])], sync=True))",
            "await self._or_die(file.write([(at, [data])], sync=False))",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_side_journal.py::test_takeover_reader_fsyncs_entries_before_put_returns",
        ),
        alone="a reader that dies may lose its last second (ADR 0007), so the checks excuse it",
    ),
    mutant(
        "go on after the takeover journal failed",
        "a reader claims again and again, serves nothing, and keeps every other slave from it",
        (
            "fmqbroker/consume/offsets/side_journal.py",
            'return await or_die(work, self._lifecycle, "the side journal\'s disk")',
            "return await work",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_offset_store_disk.py::test_an_io_error_at_a_claim_ends_the_process",
            "broker/fmqbroker/tests/consume/test_offset_store_disk.py::test_io_error_while_becoming_master_ends_the_process",
            "broker/fmqsim/tests/test_side_journal.py::test_broker_without_side_journal_ends_and_the_other_reads",
        ),
        alone="a disk of a simulation fails once; it must be within the milliseconds of a claim",
    ),
    mutant(
        "takeover record not checkpointed",
        "if the reader dies too, all that was consumed from it is consumed again",
        (
            OFFSETS,
            "return replace(state, offsets=record) if is_reader else None",
            "return None if is_reader else None",
        ),
        focus=Focus(2, DURABLE_ONE, (), TAKEOVER),
        seeds=(31,),
    ),
    mutant(
        "takeover begins from nothing",
        "the second reader does not go on from what the first one had checkpointed",
        (
            OFFSETS,
            "            earlier = await in_turns(decoding_record(record))\n",
            "            earlier = await in_turns(decoding_record(record)) and {}\n",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_side_journal.py::test_next_takeover_reader_starts_from_record_not_its_journal",
        ),
        alone="it takes two takeovers in a row, and the side journal has most entries",
    ),
    mutant(
        "OK over an epoch's end",
        "an ack of a term that is over: what it confirmed may have been taken back",
        (
            ACKS,
            "elif first.end <= ends[first.level] and first.epoch == epoch:  # P1, P2",
            "elif first.end <= ends[first.level]:",
        ),
        tests=("broker/fmqbroker/tests/produce/test_produce.py::test_no_ok_over_an_epochs_end",),
        alone="the commit end of a new term covers the old batch: a second guard",
    ),
    mutant(
        "out of time is OK",
        "a wait that ends without the policy having held is answered as stored",
        (
            ACKS,
            "                ack = _failed(first, client_pb2.DELIVERY_UNKNOWN, reason)\n",
            "                ack = client_pb2.ProduceAck(\n"
            "                    correlation=first.correlation,\n"
            "                    base_offset=first.base_offset,\n"
            "                )\n",
        ),
        focus=Focus(1, DURABLE_ONE, (), (*POWER, *NETWORK)),
        seeds=(0,),
    ),
    mutant(
        "a retry is new",
        "a batch that is sent again is stored again",
        (
            "fmqcore/journal/producers.py",
            "            if batch[0] == base_sequence and batch[1] == count:\n"
            "                return ProducedBatch._make(batch)\n",
            "            if batch[0] == base_sequence and batch[1] == count:\n"
            "                return None\n",
        ),
        focus=Focus(1, DURABLE_ONE, (), (*NETWORK, "kill")),
        seeds=(0,),
    ),
    mutant(
        "a retry is acknowledged at once",
        "the first try is not committed yet, and the second gets an OK",
        (
            "fmqbroker/produce/session.py",
            "            level,\n            done.end,\n",
            "            level,\n            done.end if size else Position(0),\n",
        ),
        focus=Focus(1, DURABLE_ONE, (), (*POWER, *NETWORK)),
        seeds=(0,),
    ),
    mutant(
        "a queue that moved is delivered all the same",
        "two consumers of a group work on the same messages, one of them for nothing",
        (
            "fmqbroker/consume/delivery.py",
            "if batch is None or group.delivering(session, pick.queue) != pick.generation:",
            "if batch is None:",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_session_end.py::test_queue_moved_during_disk_read_is_not_sent_to_old_holder",
        ),
        alone="what the old holder acknowledges then counts for nothing: a second guard",
    ),
    mutant(
        "a queue moves while it is in flight",
        "what its old holder acknowledges counts for nothing, and comes again",
        (
            "fmqcore/consume/assignment.py",
            "        if busy and now_ms < holding.draining_until_ms:\n",
            "        if busy and now_ms < 0:\n",
        ),
        tests=(
            "broker/fmqcore/tests/consume/test_assignment.py::test_a_queue_in_flight_is_drained_before_it_moves",
        ),
        alone="what comes again is a duplicate that a change of members may bring",
    ),
    mutant(
        "an ack passes what was not acknowledged",
        "the floor jumps over messages that no consumer has done",
        (
            "fmqcore/consume/in_flight.py",
            "            if first <= self.floor:\n",
            "            if first >= 0:\n",
        ),
        seeds=(0,),
    ),
    mutant(
        "a nacked message is forgotten",
        "what a consumer could not handle never comes again, and nothing behind it is ever done",
        (
            "fmqcore/consume/in_flight.py",
            "        elif verdict.due_ms <= now_ms:\n            self._due.put(",
            "        elif verdict.due_ms <= now_ms:\n            (lambda *_: None)(",
        ),
        seeds=(13,),
    ),
    mutant(
        "an ack of a lost message counts for the one at its offset",
        "what no consumer has seen is called done",
        (
            "fmqbroker/consume/group.py",
            "            end = min(end, self.epoch_ends.get((queue, epoch), first))\n",
            "            pass\n",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_acks_over_epochs.py::test_ack_does_not_count_for_another_message_at_its_offset",
        ),
        alone="only a policy that may lose gives an offset twice",
    ),
    mutant(
        "a token without news is answered at once",
        "what an earlier term wrote is in the journal and not committed: it may be lost",
        (
            "fmqbroker/consume/offsets/store.py",
            "            return self._written()\n",
            "            pass\n",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_offset_store.py::test_empty_put_returns_once_entries_of_earlier_term_commit",
        ),
        alone="it takes a master that comes back, and is lost again within milliseconds",
    ),
    mutant(
        "the record goes when the master opens",
        "a master lost in that moment takes with it what was handed over to it",
        (
            "fmqcore/failover/transitions.py",
            "        offsets=case.state.offsets,\n        degraded",
            '        offsets="",\n        degraded',
        ),
        tests=(
            "broker/fmqcore/tests/failover/test_machine.py::test_states_written_by_each_decision",
        ),
        alone="it takes a loss within the milliseconds of a master's return",
    ),
    mutant(
        "the takeover journal writes over itself",
        "of all that was acked on the reader its file holds the last",
        ("fmqbroker/consume/offsets/side_journal.py", "        self._end += len(data)\n", ""),
        tests=(
            "broker/fmqbroker/tests/consume/test_side_journal.py::test_takeover_reader_stores_in_side_journal_and_checkpoints",
        ),
        alone="the record in ZooKeeper is at most a second older, and the checks excuse that",
    ),
    mutant(
        "an ack that the journal refuses is stored",
        "a full disk: its consumer is answered that it is safe",
        (
            OFFSETS,
            "            full.settle(error)\n        except asyncio.CancelledError",
            "            full.settle()\n        except asyncio.CancelledError",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_offset_store.py::test_entry_refused_by_the_journal_is_not_reported_stored",
        ),
        alone="acks find room when messages do not: the last bytes of a disk must be taken, too",
    ),
    mutant(
        "two changes of a group's progress get one version",
        "which of them stands is chance: a seek may be lost",
        (
            OFFSETS,
            "return (self._round.entries, self._writing.entries, self._takeover, stored)",
            "return (self._writing.entries, self._takeover, stored)",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_offset_store.py::test_entry_being_stored_is_already_visible",
        ),
        alone="of one version the higher floor wins, which is the later one but for a seek",
    ),
    mutant(
        "acks that found no room are forgotten",
        "the next try has nothing to store, and its consumer is answered that it is stored",
        (
            "fmqbroker/consume/progress_writer.py",
            "                self._unstored.give_back(entries)\n                self._waiters",
            "                self._waiters",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_stored_progress.py::test_acks_that_found_no_room_are_stored_by_the_next_try",
        ),
        alone="acks find room when messages do not: the last bytes of a disk must be taken, too",
    ),
    mutant(
        "what the store refuses is answered as stored",
        "a seek is answered with OK though the reads were lost before it was stored",
        (
            "fmqbroker/consume/progress_writer.py",
            "                error = refused  # whoever reads now has what was stored\n",
            "",
        ),
        tests=(
            "broker/fmqbroker/tests/consume/test_stored_progress.py::test_entry_refused_by_the_store_is_not_reported_stored",
        ),
        alone="sessions are over by then; no client seeks a live group in that very moment",
    ),
)
