"""Breaks each invariant of `docs/internals/invariants.md` and runs the tests that it names.

A break is a mistake of `fmqsim.mutants`, by its name, or an edit: file, text that is there once,
and what it becomes. At least one of the tests that the page names must fail; tests that start
processes are not run.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from fmqsim.mutants.mutant import Edit
from fmqsim.mutants.table import MUTANTS
from tools.mutation import running

PAGE: Final = running.ROOT / "docs/internals/invariants.md"
Own = tuple[str, str, str]

BREAKS: Final[dict[str, tuple[str | Own, ...]]] = {
    "D1": ("ack before fsync",),
    "D2": ("full segment not synced before the next",),
    "D3": ("go on after a failed fsync", "go on after the takeover journal failed"),
    "D4": (
        ("fmqcore/journal/recovery.py", "below = stop.position < durable_end", "below = False"),
    ),
    "D5": ("cut without saying so first",),
    "D6": (("fmqcore/journal/scan.py", "if header.type != BatchType.SNAP:", "if False:"),),
    "D7": (
        (
            "fmqbroker/journal/part_files.py",
            "if (part.base, part.end) == (segment.base, segment.end):",
            "if True:",
        ),
    ),
    "D8": (("fmqcore/journal/recovery.py", "next(iter([*lost, *gaps]), None)", "None"),),
    "D9": ("checkpoint counts what is only written",),
    "D10": (("fmqbroker/journal/journal.py", "self._head.being_cut = True", "pass"),),
    "D11": (
        (
            "fmqadapters/disk/syscalls.py",
            "fcntl.LOCK_EX | fcntl.LOCK_NB",
            "fcntl.LOCK_SH | fcntl.LOCK_NB",
        ),
    ),
    "D12": (
        ("fmqcore/journal/recovery.py", "(BatchFault.CONTENT, BatchFault.KIND)", "()"),
        (
            "fmqbroker/replication/master_stream.py",
            "except UnknownKind as newer:",
            "except ZeroDivisionError as newer:",
        ),
    ),
    "R1": (
        (
            "fmqbroker/journal/head.py",
            "check_batches(data, self._cursor())",
            "check_batches(data, Cursor(self.end))",
        ),
        "truncation to the wrong epoch",
    ),
    "R2": (("fmqbroker/journal/head.py", "if position != self.end:", "if False:"),),
    "R3": (
        "slave acks before its fsync",
        (
            "fmqbroker/replication/master_stream.py",
            "view.durable_end <= durable <= received",
            "True",
        ),
    ),
    "R4": ("the commit end may fall",),
    "R5": (
        "truncation below the commit end",
        (
            "fmqbroker/replication/slave_stream.py",
            "if position < self._commit.commit_end:",
            "if False:",
        ),
        (
            "fmqbroker/journal/truncation.py",
            "if position < parts.checkpoints.commit_end and position < parts.tail.end:",
            "if False:",
        ),
    ),
    "R6": ("no epoch check on ack", "a second change of the set begins while one is in doubt"),
    "R7": (
        (
            "fmqbroker/journal/catalog.py",
            "if hot.segment.base >= commit_end:",
            "if hot.segment.base > commit_end:",
        ),
    ),
    "R8": ("retention deletes what the master lost with its power",),
    "P1": ("an ack of one level is taken for another's",),
    "P2": ("OK over an epoch's end",),
    "P3": (
        (
            "fmqbroker/produce/pending_acks.py",
            "        self._waiting.append(waiting)",
            "        self._waiting.appendleft(waiting)",
        ),
    ),
    "P4": ("out of time is OK",),
    "P5": ("a retry is new",),
    "P6": (
        (
            "fmqbroker/produce/session.py",
            "        if refusal is not None:\n            return self._settle(batch, refusal)\n",
            "",
        ),
    ),
    "P7": ("an older session of a producer goes on",),
    "P8": ("a session outlives its term",),
    "P9": (
        (
            "fmqbroker/produce/session.py",
            "newest = self.settle and not self.superseded",
            "newest = not self.superseded",
        ),
    ),
    "F1": ("claim out of sync", "claim on a stale look"),
    "F2": (
        (
            "fmqcore/failover/context.py",
            "max(case.state.epoch, case.evidence.journal_epoch) + 1",
            "case.state.epoch + 1",
        ),
    ),
    "F3": (
        "a grant while claiming",
        ("fmqbroker/failover/loop.py", "self._slave.upstream.claiming = True", "pass"),
    ),
    "F4": (
        (
            "fmqbroker/consume/offsets/store.py",
            "self._keeping = _Keeping.FROZEN  # before the lock",
            "pass  # before the lock",
        ),
    ),
    "F5": ("grants count in anybody's term", "any slave's grant is enough"),
    "F6": (
        (
            "fmqcore/failover/machine.py",
            "if member is None or not g.HELD.holds(case):",
            "if member is None:",
        ),
    ),
    "F7": ("lease counts from its answer", "a session that is over keeps its lease"),
    "F8": ("a change without an answer counts as not made",),
    "F9": ("what is appended for a term leaves before it stands",),
    "F10": ("a grant without a lease",),
    "F11": ("claim without lease expiry",),
    "F12": (
        (
            "fmqbroker/serving/broker_group_state.py",
            "            await self._read_state()\n            standing = self.standing\n"
            "            self.live = await self._read_live()\n        if not",
            "            self.live = await self._read_live()\n"
            "            standing = self.standing\n"
            "            await self._read_state()\n        if not",
        ),
    ),
    "F13": ("a term survives its session",),
    "F14": (
        (
            "fmqbroker/failover/transitions.py",
            "        async with self._parts.master.reconciling:\n            if not heard",
            "        if True:\n            if not heard",
        ),
    ),
    "F15": (
        (
            "fmqbroker/failover/transitions.py",
            '        if state.master not in ("", p.me):  # another',
            "        if False:  # another",
        ),
    ),
    "F16": (
        "a stop makes a successor",
        ("fmqbroker/failover/transitions.py", "or view.incarnation != incarnation:", "or False:"),
    ),
    "F17": ("a master with another disk gives up what its reader has",),
    "F18": ("who lost its memory, too, is proof that no broker has more",),
    "F19": (
        (
            "fmqcore/failover/guards.py",
            "    return case.state.epoch == 0 or _all_heard(",
            "    return True or _all_heard(",
        ),
    ),
    "F20": (
        (
            "fmqcore/failover/guards.py",
            "journal_epoch > 0 and not (evidence.unproven and evidence.may_lack)",
            "journal_epoch > 0",
        ),
    ),
    "C1": (
        (
            "fmqcore/consume/in_flight.py",
            "            self.next = end\n",
            "            self.next = Offset(end + 1)\n",
        ),
    ),
    "C2": (
        (
            "fmqcore/consume/in_flight.py",
            "self.floor = max(self.floor, end)",
            "self.floor = first",
        ),
    ),
    "C3": ("stale offsets overwrite newer", "versions do not rise with the epoch"),
    "C4": ("a queue that moved is delivered all the same",),
    "C5": ("consumer acks confirmed before they are stored", "takeover journal not synced"),
    "C6": ("a queue moves while it is in flight",),
    "C7": (
        "progress in a topic that is gone goes at once",
        (
            "fmqbroker/consume/idle_groups.py",
            " or not retention_ms or self._has_members(key):",
            " or not retention_ms:",
        ),
    ),
    "L1": ("a topic that is back has its sequences from before",),
    "L2": ("more leaves beside an unknown outcome",),
    "L3": ("what was refused goes last",),
    "L4": ("many batches in flight before the first is accepted",),
    "L5": ("a queue buffer goes on after an abandoned batch",),
    "L6": ("records are placed again in any order",),
    "L7": ("a seek that comes back is a new one",),
    "L8": ("a producer's sessions are strangers to each other",),
    "L9": (
        (
            "fmqclient/producer/buffer_waiters.py",
            "        if not self._waiting:\n            try:",
            "        if True:\n            try:",
        ),
    ),
    "L10": ("what is not answered follows to another group",),
    "L11": (
        (
            "fmqclient/producer/ordered_state.py",
            "queue.sent, queue.retry_ms = 0, 0",
            "queue.retry_ms = 0",
        ),
    ),
    "L12": (
        (
            "fmqclient/producer/ordered_state.py",
            "        if batch is None or self.frozen:\n",
            "        if batch is None:\n",
        ),
    ),
    "L13": (
        (
            "fmqclient/producer/ordered_state.py",
            "return self.is_open and not self.frozen and self.error is None",
            "return self.is_open and not self.frozen",
        ),
    ),
    "L14": (
        "never appended covers attempts of other terms",
        (
            "fmqclient/producer/ordered_records.py",
            "    if batch.open_attempts:",
            "    if not refused:",
        ),
    ),
    "K1": (
        (
            "fmqcore/ordered/invariants.py",
            "if segment.number != chain.floor.number + 1 + index:",
            "if False:",
        ),
    ),
    "K2": (
        (
            "fmqcore/ordered/invariants.py",
            "if last is not None and last.has_ended and chain.closing is None:",
            "if False:",
        ),
    ),
    "K3": (
        (
            "fmqcore/ordered/invariants.py",
            "if segment.end is not None and not _reaches(segment.end, segment.start):",
            "if False:",
        ),
    ),
    "K4": (("fmqcore/ordered/invariants.py", "if after < before:", "if False:"),),
    "K5": (
        (
            "fmqcore/ordered/invariants.py",
            "if reached is not None and not _reaches(",
            "if False and not _reaches(",
        ),
    ),
    "K6": (
        (
            "fmqcore/ordered/invariants.py",
            "if before is not None and not _reaches(segment.start, before.end or before.start):",
            "if False:",
        ),
    ),
    "K7": (
        (
            "fmqcore/ordered/invariants.py",
            "if min(numbers) < first or max(numbers) > newest:",
            "if False:",
        ),
    ),
    "K8": (
        (
            "fmqcore/ordered/invariants.py",
            "if max(numbers) > number:",
            "if False:",
        ),
    ),
    "K9": (
        (
            "fmqcore/ordered/invariants.py",
            "if (chain.floor.number > 0) != bool(chain.floor.last_sequence):",
            "if False:",
        ),
    ),
    "K10": (("fmqcore/ordered/invariants.py", "if len(names) < 2:", "if False:"),),
    "K11": (
        (
            "fmqcore/ordered/invariants.py",
            "if old.end is not None and new.end != old.end and not fell:",
            "if False:",
        ),
    ),
    "K12": (
        (
            "fmqcore/ordered/invariants.py",
            "if after.next_number < before.next_number or after.sender.epoch",
            "if False and after.sender.epoch",
        ),
    ),
    "K13": (
        (
            "fmqcore/ordered/sending.py",
            "if batch.sequence == expected:",
            "if batch.sequence >= expected:",
        ),
    ),
    "K14": (("fmqcore/ordered/sending.py", "    if lacking:\n", "    if False:\n"),),
    "K15": (
        ("fmqcore/ordered/delivery.py", "if not opened or serving is not", "if serving is not"),
    ),
    "K16": (
        ("fmqcore/ordered/copies.py", "number >= chain.next_number", "number > chain.next_number"),
    ),
    "K17": (
        ("fmqcore/ordered/delivery.py", "max(min(first, end), progress)", "max(first, progress)"),
        ("fmqcore/ordered/delivery.py", "    return readable\n", "    return segment.end[queue]\n"),
    ),
    "K18": (
        (
            "fmqcore/ordered/delivery.py",
            "entry.deleted or entry.start_number != start_number",
            "entry.deleted",
        ),
    ),
}


class Break(NamedTuple):
    """One break of one invariant."""

    invariant: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def breaks(page: str) -> Iterator[Break]:
    """All breaks, with the tests that the page names."""
    named = {mutant.name: mutant.edits for mutant in MUTANTS}
    for invariant, tests in tests_of(page).items():
        for one in BREAKS[invariant]:
            edits = named[one] if isinstance(one, str) else (Edit(f"broker/{one[0]}", *one[1:]),)
            yield Break(invariant, edits, tests)


def tests_of(page: str) -> dict[str, tuple[str, ...]]:
    """The tests in the last column of each invariant's row."""
    rows = re.findall(r"^\| ([A-Z]\d+) \|.*\|([^|]*)\|$", page, re.M)
    found = re.compile(r"`([\w/]+\.py(?:::\w+)?)`")
    return {number: tuple(f"broker/{t}" for t in found.findall(cell)) for number, cell in rows}


def hunt(only: list[str]) -> int:
    """Plant the breaks; returns how many no test detected."""
    running.preload()
    missed = 0
    with running.copied() as copy:
        for each in breaks(PAGE.read_text()):
            if only and each.invariant not in only:
                continue
            with running.planted(changed(copy, each.edits)):
                ran = running.run(copy, each.tests, 1200.0)
            caught = ran.outcome == "caught"
            missed += not caught
            place = f"{each.invariant} {each.edits[0].file}: {each.edits[0].old.strip()[:60]!r}"
            sys.stdout.write(
                f"{'caught' if caught else 'NOT CAUGHT'} {place} {ran.verdict.text()}\n"
            )
            sys.stdout.flush()
    return missed


def changed(root: Path, edits: tuple[Edit, ...]) -> dict[Path, bytes]:
    """The files with the edits. Raises `Misplaced` if a text is not there exactly once."""
    texts: dict[Path, str] = {}
    for edit in edits:
        path = root / edit.file
        texts[path] = edit.apply(texts.get(path) or path.read_text())
    return {path: text.encode() for path, text in texts.items()}
