"""One planted mistake: an edit of the sources, and a sentence that says why it is wrong.

An edit replaces a text that occurs exactly once, so that it fails loudly when the code has moved
on. Most mutants are caught by simulated seeds. One that random faults cannot show (a second guard
stands behind it, or it takes a configuration that a simulation never draws) names the tests that
must fail instead, and says why in `alone`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqsim.scenario.scene import Focus

POWER: Final = (
    "cut the power",
    "cut the group's power",
    "cut all power",
    "cut the power at a step",
    "kill",
)
AT_A_STEP: Final = ("cut the power at a step",)
ZOOKEEPER: Final = (
    "cut from zookeeper",
    "isolate",
    "expire",
    "lose zookeeper's answer",
    "late zookeeper",
    "stop zookeeper",
)
GRANTED: Final = ("cut from zookeeper", "cut from group", "isolate")
"""A master that is cut from ZooKeeper serves by its slaves' grants."""
LONG_GRANTS: Final = (("grant_ms", 3000),)
STANDSTILL: Final = ("pause", "wedge")
NETWORK: Final = ("cut from group", "reset", "lose reply", "stall", "slow network")
DISK: Final = ("failing fsync", "failing write", "slow disk")
TAKEOVER: Final = ("kill", "stop", "isolate", "pause")
ROLLS: Final = (("segment_bytes", 1 << 16), ("retention_bytes", 0))
SHORT: Final = (("segment_bytes", 1 << 16), ("retention_bytes", 1 << 17))

DURABLE_ONE: Final = AckPolicy(Flush.FSYNC, 300, SlaveCounts.DURABLE, HowMany.ONE)
DURABLE_ALL: Final = AckPolicy(Flush.FSYNC, 300, SlaveCounts.DURABLE, HowMany.ALL)
MASTER_ALONE: Final = AckPolicy(Flush.FSYNC, 300, SlaveCounts.SENT, HowMany.NONE)
CACHE_ONE: Final = AckPolicy(Flush.OS_CACHE, 300, SlaveCounts.DURABLE, HowMany.ONE)
CACHE_RECEIVED: Final = AckPolicy(Flush.OS_CACHE, 300, SlaveCounts.RECEIVED, HowMany.ONE)


class Misplaced(Exception):
    """The text to be replaced is not there exactly once: the code has changed under the mutant."""


@dataclass(frozen=True, slots=True)
class Edit:
    """In `file`, below the root of the sources, `old` becomes `new`."""

    file: str
    old: str
    new: str

    def apply(self, text: str) -> str:
        """The edited source. Raises `Misplaced`."""
        count = text.count(self.old)
        if count != 1:
            raise Misplaced(f"{self.file} holds {count} times, not once:\n{self.old}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mistake. `seeds`: known to catch it, tried first; `focus` narrows what a seed may draw."""

    name: str
    reason: str
    edits: tuple[Edit, ...]
    focus: Focus | None = None
    seeds: tuple[int, ...] = ()
    tests: tuple[str, ...] = ()
    alone: str = ""  # why only tests can catch it

    def plant(self, root: Path) -> None:
        """Make the mistake in a copy of the sources."""
        for edit in self.edits:
            path = root / edit.file
            path.write_text(edit.apply(path.read_text()))

    def check(self, root: Path) -> None:
        """Raises `Misplaced` if it cannot be planted; changes nothing."""
        texts: dict[str, str] = {}
        for edit in self.edits:
            text = texts.get(edit.file) or (root / edit.file).read_text()
            texts[edit.file] = edit.apply(text)


def mutant(
    name: str,
    reason: str,
    *edits: tuple[str, str, str],
    focus: Focus | None = None,
    seeds: tuple[int, ...] = (),
    tests: tuple[str, ...] = (),
    alone: str = "",
) -> Mutant:
    """One line of a table; files are named from `broker/` on."""
    planted = tuple(Edit(f"broker/{file}", old, new) for file, old, new in edits)
    return Mutant(name, reason, planted, focus, seeds, tests, alone)
