"""Mistakes in the journal, its files and what recovery makes of them."""

from typing import Final

from fmqsim.mutants.mutant import (
    AT_A_STEP,
    CACHE_ONE,
    DISK,
    DURABLE_ONE,
    MASTER_ALONE,
    NETWORK,
    POWER,
    ROLLS,
    SHORT,
    Mutant,
    mutant,
)
from fmqsim.scenario.scene import Focus

FLUSHER: Final = "fmqbroker/journal/flusher.py"
FILES: Final = "fmqadapters/disk/files.py"
CUTTING: Final = "fmqbroker/journal/truncation.py"
_FULL: Final = "broker/fmqbroker/tests/journal/test_full_disk.py::"
_STUCK: Final = "broker/fmqbroker/tests/journal/test_stuck_writer.py::"
_LAST_BYTES: Final = "the last bytes of a disk must be taken, too"

JOURNAL: Final[tuple[Mutant, ...]] = (
    mutant(
        "ack before fsync",
        "the durable end moves though nothing was synced: a power cut takes what had an OK",
        (
            FLUSHER,
            "await file.write([(start - segment.base, pieces)], sync=sync)",
            "await file.write([(start - segment.base, pieces)], sync=False)",
        ),
        focus=Focus(1, DURABLE_ONE, (), POWER),
        seeds=(0,),
    ),
    mutant(
        "retry after a failed fsync",
        "the kernel has dropped the pages: the second fsync says yes to what is not on the disk",
        (
            "fmqadapters/disk/open_file.py",
            'raise self._health.failure(f"fdatasync {self._path}", error) from error',
            "self._calls.fdatasync(self._fd)",
        ),
        focus=Focus(1, MASTER_ALONE, (), (*POWER, *DISK)),
        seeds=(8,),
    ),
    mutant(
        "go on after a failed fsync",
        "what was written before is in doubt, and the broker serves on as if it were there",
        (
            FLUSHER,
            'self._lifecycle.fatal(f"the journal cannot be written: {error}")',
            "self.durable_end = self.written_end = self._tail.end; str(error)",
        ),
        focus=Focus(1, MASTER_ALONE, (), (*POWER, *DISK)),
        seeds=(0,),
    ),
    mutant(
        "a due sync waits for room",
        "on a full disk what was written and acknowledged is never synced, though that needs none",
        (
            FLUSHER,
            "                if sync:\n                    await self._sync_written()\n",
            "                if False:\n                    await self._sync_written()\n",
        ),
        tests=(_STUCK + "test_close_of_a_full_disk_syncs_what_is_written",),
        alone=_LAST_BYTES,
    ),
    mutant(
        "directory not fsynced after a roll",
        "the new segment has its old name after a power cut: its batches are gone",
        (
            FILES,
            "            file.move(path)\n            self._sync_directory(self._path)\n",
            "            file.move(path)\n",
        ),
        focus=Focus(1, DURABLE_ONE, ROLLS, AT_A_STEP),
        seeds=(39,),
    ),
    mutant(
        "checkpoint not atomic",
        "written in its place: a crash in the middle leaves neither the old nor the new one",
        (
            FILES,
            "        path = os.path.join(self._path, name)\n        aside = path + _TMP\n",
            "        path = os.path.join(self._path, name)\n        aside = path\n",
        ),
        focus=Focus(1, DURABLE_ONE, ROLLS, AT_A_STEP),
        seeds=(0,),
    ),
    mutant(
        "a replaced file not fsynced before the rename",
        "after a power cut the name is there and the bytes are not",
        (
            FILES,
            "        self._calls.fsync(fd)\n        self._calls.rename",
            "        self._calls.rename",
        ),
        focus=Focus(1, DURABLE_ONE, ROLLS, AT_A_STEP),
        seeds=(0,),
    ),
    mutant(
        "checkpoint counts what is only written",
        "it names as durable what a power cut takes: the next start sees damage and refuses",
        (
            "fmqbroker/journal/checkpoints.py",
            "durable_end = max(flusher.durable_end, store.journal_start)",
            "durable_end = max(flusher.written_end, store.journal_start)",
        ),
        focus=Focus(1, CACHE_ONE, (), POWER),
        seeds=(0,),
    ),
    mutant(
        "full segment not synced before the next",
        "two segments may be torn, and only the newest is looked at",
        (FLUSHER, "sync = sync or end == segment.end", "sync = bool(sync)"),
        focus=Focus(1, CACHE_ONE, ROLLS, POWER),
        seeds=(0,),
    ),
    mutant(
        "cut without saying so first",
        "a crash in the middle of a cut leaves a journal that is neither the old nor the new one",
        (
            CUTTING,
            "    await parts.checkpoints.write_with_reserve(drop_from=position)\n    with",
            "    with",
        ),
        tests=(
            "broker/fmqbroker/tests/journal/test_truncation.py::test_interrupted_truncation_finishes_at_next_start",
        ),
        alone="journals seldom part, and the crash must come between two steps",
    ),
    mutant(
        "a cut writes first what it drops",
        "a slave whose writer finds no room can never truncate, and dials for ever",
        (
            "fmqbroker/journal/journal.py",
            "await self._flusher.flush_below(position)",
            "await self._flusher.flush_all()",
        ),
        tests=(_STUCK + "test_truncation_drops_what_found_no_room",),
        alone=_LAST_BYTES,
    ),
    mutant(
        "a cut leaves unsynced what it keeps",
        "a crash in the middle takes bytes below the cut, which were acknowledged",
        (
            "fmqbroker/journal/journal.py",
            "await self._flusher.flush_below(position)",
            "pass",
        ),
        tests=(_STUCK + "test_truncation_with_a_stuck_writer_survives_a_crash",),
        alone=_LAST_BYTES,
    ),
    mutant(
        "a cut needs room that it would make",
        "a slave with a full disk that must truncate can never begin, and dials for ever",
        (
            CUTTING,
            "checkpoints.write_with_reserve(drop_from=position)",
            "checkpoints.write(drop_from=position)",
        ),
        tests=(_FULL + "test_a_journal_gets_shorter_on_a_full_disk[False]",),
        alone=_LAST_BYTES,
    ),
    mutant(
        "a reset needs room that it would make",
        "a slave with a full disk that must copy all again can never do so, and dials for ever",
        (
            "fmqbroker/journal/checkpoints.py",
            "await self._with_reserve(lambda: self._put(void))",
            "await self._put(void)",
        ),
        tests=(_FULL + "test_a_journal_gets_shorter_on_a_full_disk[True]",),
        alone=_LAST_BYTES,
    ),
    mutant(
        "what a reader hands over does not use the reserve",
        "a term's EPOCH fits and its offsets do not: the reader has stopped, and no broker serves",
        (
            "fmqbroker/journal/head.py",
            "        elif for_term:\n",
            "        elif False:\n",
        ),
        tests=(
            "broker/fmqbroker/tests/journal/test_full_disk_terms.py::"
            "test_handed_over_record_fits_where_its_term_fits",
        ),
        alone=_LAST_BYTES,
    ),
    mutant(
        "a record is installed as any other progress",
        "on a full disk its master opens no term, and its reader has stopped",
        (
            "fmqbroker/consume/offsets/store.py",
            "                end = await append_offsets(self._journal, news, for_term=True)\n",
            "                end = await append_offsets(self._journal, news)\n",
        ),
        tests=(
            "broker/fmqbroker/tests/journal/test_full_disk_terms.py::"
            "test_a_record_is_installed_with_the_reserve",
        ),
        alone=_LAST_BYTES,
    ),
    mutant(
        "retention notes no log start",
        "the index still offers what was deleted: a consumer far behind is led into nothing",
        (CUTTING, "    await parts.catalog.begin_at(store.segments[count])\n", ""),
        tests=(
            "broker/fmqbroker/tests/consume/test_delivery.py::"
            "test_progress_below_log_start_jumps_to_log_start",
        ),
        alone="a consumer must be behind by more than retention leaves, and ask just then",
    ),
    mutant(
        "retention deletes before it says so",
        "a crash in between leaves a journal whose checkpoint names segments that are gone",
        (
            CUTTING,
            "        await parts.checkpoints.write_with_reserve()\n",
            "        pass\n",
        ),
        focus=Focus(1, DURABLE_ONE, SHORT, AT_A_STEP),
        seeds=(5,),
    ),
    mutant(
        "retention deletes what the master lost with its power",
        "a reader alone has it: its master finds a hole when it is back, and opens no term",
        (
            "fmqbroker/data/retention.py",
            "return held.keep_from if known else Position(0)",
            "return self._journal.durable_end",
        ),
        tests=(
            "broker/fmqbroker/tests/data/test_retention.py::test_slave_keeps_segments_the_master_may_lack",
        ),
        alone="more than a segment must be lost with the power, and be old enough to go",
    ),
    mutant(
        "a slave deletes what another in sync lacks",
        "who is promoted lacks it, or an emptied master: the one that had it is not believed",
        (
            "fmqbroker/replication/master_stream.py",
            "keep_from=self._host.held_by_all(),",
            "keep_from=self._journal.durable_end,",
        ),
        tests=(
            "broker/fmqbroker/tests/data/test_retention.py::test_slave_keeps_segments_another_in_sync_slave_lacks",
        ),
        alone="a slave must be cut off with more than a segment that another in sync lacks",
    ),
    mutant(
        "what a slave has in its memory is held for sure",
        "who deletes it had it alone on a disk: two losses at once, and no broker has it",
        (
            "fmqbroker/replication/master.py",
            "ends = [view.durable_end for view in self._views_in_sync()]",
            "ends = [self.counted_end(view) for view in self._views_in_sync()]",
        ),
        tests=(
            "broker/fmqbroker/tests/data/test_retention.py::"
            "test_unsynced_bytes_of_in_sync_slave_hold_retention",
        ),
        alone="more than a segment must be in memory alone, and be old enough to go",
    ),
    mutant(
        "a slave believes what its master sent in an older term",
        "the master has lost its memory since, and the slave deletes what it alone has",
        (
            "fmqbroker/data/retention.py",
            "(held.master, held.epoch) == (state.master, state.last_opened_epoch)",
            "held.master == state.master",
        ),
        tests=(
            "broker/fmqbroker/tests/data/test_retention.py::test_slave_keeps_segments_the_master_may_lack",
        ),
        alone="it takes a slave that was away while the master came back without its disk",
    ),
    mutant(
        "dedup table not restored from SNAP",
        "a retry after a restart is taken for something new and stored twice",
        (
            "fmqcore/journal/state.py",
            "        self.producers = other.producers\n",
            "        self.producers = ProducerTable()\n",
        ),
        focus=Focus(1, DURABLE_ONE, ROLLS, (*POWER, *NETWORK)),
        seeds=(82,),
    ),
    mutant(
        "next offsets not restored from SNAP",
        "a queue without a batch in the newest segment begins at 0 again after a restart",
        (
            "fmqcore/journal/state.py",
            "        self.next_offsets = other.next_offsets\n",
            "",
        ),
        focus=Focus(1, DURABLE_ONE, ROLLS, POWER),
        seeds=(58,),
    ),
    mutant(
        "queue index passes the commit end",
        "consumers read what may still be taken back",
        (
            "fmqbroker/journal/journal.py",
            "        if commit_end >= self.end:\n            return",
            "        if commit_end <= self.end:\n            return",
        ),
        seeds=(0,),
    ),
    mutant(
        "what was cut is cut again",
        "the checkpoint goes on saying what is void: a crash takes what was written there since",
        (
            CUTTING,
            "        await forget_above(store.disk, position)\n"
            "        await parts.checkpoints.write()",
            "        await forget_above(store.disk, position)",
        ),
        tests=(
            "broker/fmqbroker/tests/journal/test_truncation.py::test_bytes_written_after_truncation_are_not_truncated_again",
        ),
        alone="journals seldom part, and the next checkpoint comes within a moment",
    ),
    mutant(
        "a cut is undone by a resume file",
        "what was void comes back after a crash in the middle, and its master has something else",
        (
            "fmqbroker/journal/recovery.py",
            " or (until is not None and until < resume.position):\n",
            ":\n",
        ),
        tests=(
            "broker/fmqbroker/tests/journal/test_resume_file.py::test_resume_file_does_not_undo_a_started_truncation",
        ),
        alone="journals seldom part, and the crash must come between two steps of the cut",
    ),
    mutant(
        "a second start forgets that its disk was new",
        "what it was given counts as its own: it opens a term without what others acknowledged",
        (
            "fmqbroker/journal/recovery.py",
            "    unproven = checkpoint is None or checkpoint.unproven\n",
            "    unproven = checkpoint is None\n",
        ),
        tests=(
            "broker/fmqbroker/tests/journal/test_recovery.py::test_loss_flags_persist_until_the_journal_is_whole",
        ),
        alone="an emptied broker must end before it is whole again",
    ),
    mutant(
        "of two policies the newer says who acknowledged",
        "a master that stopped uncleanly does not hear those whom the older one had asked",
        (
            "fmqbroker/journal/loss_flags.py",
            "mark if before in (0, mark) else MIXED",
            "mark",
        ),
        tests=(
            "broker/fmqbroker/tests/journal/test_loss_flags.py::test_two_policies_leave_the_acknowledgers_unknown",
        ),
        alone="no seed changes a policy",
    ),
)
