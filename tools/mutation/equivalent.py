"""The list of mutants that change nothing that matters, with reasons: `equivalent.toml`."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.mutation.operators import Mutant

LIST: Final = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A mutant that no test can detect or needs to detect."""

    file: str
    function: str
    old: str
    new: str
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Whether the mutant is this one; equal text elsewhere in the function counts too."""
        this = (self.file, self.function, self.old, self.new)
        return this == (mutant.file, mutant.function, mutant.old, mutant.new)


def load(path: Path = LIST) -> list[Equivalent]:
    """Read the list."""
    return [Equivalent(**each) for each in tomllib.loads(path.read_text())["mutant"]]
