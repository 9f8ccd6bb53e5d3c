"""The modules that are mutated, and the tests that must fail: `modules.toml`."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_TABLE: Final = Path(__file__).with_name("modules.toml")
_SET: Final = "@"  # before the name of a set of tests


@dataclass(frozen=True, slots=True)
class Module:
    """A file, its test files, and the number of mutants in a sample."""

    file: str
    tests: tuple[str, ...]
    count: int

    def paths(self) -> tuple[str, ...]:
        """The test files."""
        return self.tests


def load(path: Path = _TABLE) -> tuple[Module, ...]:
    """Read the table; raise `KeyError` for a set of tests that it does not have."""
    table = tomllib.loads(path.read_text())
    found = []
    for row in table["modules"]:
        tests: list[str] = []
        for name in row["tests"]:
            tests += table["sets"][name.removeprefix(_SET)] if name.startswith(_SET) else [name]
        found += [Module(file, tuple(tests), row["count"]) for file in row["files"]]
    return tuple(found)


MODULES: Final = load()
