"""Mistakes below the ports, and in what judges a run: with one of these no seed says anything.

A simulated kernel stands in for the real calls, so seeds do not reach what only a real disk does;
and a disk that is too kind, or a check that no longer checks, makes every seed green. The tests of
the adapters and of the checks are named.
"""

from typing import Final

from fmqsim.mutants.mutant import Edit, Mutant, mutant

_FILES: Final = "broker/fmqadapters/tests/test_files.py::"

ADAPTERS: Final[tuple[Mutant, ...]] = (
    mutant(
        "no room at an fsync is a full disk",
        "the kernel may have dropped what it had no blocks for; the next fsync says yes",
        (
            "fmqadapters/disk/open_file.py",
            'if error.errno in FULL and not what.startswith("fdatasync"):',
            "if error.errno in FULL:",
        ),
        tests=(_FILES + "test_enospc_at_sync_is_a_permanent_failure",),
        alone="a simulated disk finds room when it is written, not when it is synced",
    ),
    mutant(
        "a directory above the data is made and not synced",
        "a power cut takes it away, and the whole journal below it",
        (
            "fmqadapters/disk/files.py",
            "            for made_in in self._calls.makedirs(self._path):\n"
            "                self._sync_directory(made_in)\n",
            "            self._calls.makedirs(self._path)\n",
        ),
        tests=(_FILES + "test_new_data_directory_and_its_parents_survive_power_cut",),
        alone="a simulated directory is always there",
    ),
    mutant(
        "a file is closed beside its writes",
        "they fail, or go to the file that gets its number next",
        (
            "fmqadapters/disk/open_file.py",
            "            await self._writer.submit(self._release)",
            "            await self._reader.submit(self._release)",
        ),
        tests=(
            "broker/fmqport/tests/test_disk_conformance.py::test_a_file_closed_while_it_is_written",
        ),
        alone="the journal closes a file only when nothing is written to it any more",
    ),
    mutant(
        "a simulated power cut leaves what was not synced",
        "no seed shows a missing fsync any more",
        (
            "fmqsim/engine/filesystem.py",
            "        self.data[:] = self.disk\n        self.dirty.clear()\n",
            "        self.dirty.clear()\n",
        ),
        tests=(
            "broker/fmqsim/tests/test_filesystem.py::"
            "test_any_part_of_unsynced_bytes_survives_a_power_cut",
        ),
        alone="a kinder disk makes seeds green, not red",
    ),
    Mutant(
        "the first message of a queue may be lost",
        "it is taken for one that retention has deleted: where nothing was, too",
        (
            Edit(
                "e2e/checks/content.py",
                "        if outcome.offset < truth.begin or outcome.offset in truth.records:\n",
                "        if outcome.offset <= truth.begin or outcome.offset in truth.records:\n",
            ),
        ),
        tests=(
            "e2e/tests/test_check_limits.py::test_the_first_message_of_a_queue_is_missed_as_any_other",
        ),
        alone="a check that misses something makes seeds green, not red",
    ),
)
