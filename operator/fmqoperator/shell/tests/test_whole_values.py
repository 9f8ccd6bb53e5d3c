"""What the shell observes is given whole: a default of `observation.py` is for tests alone."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from fmqoperator import shell
from fmqoperator.core import observation

WHOLE = ("Pod", "Node", "Claim", "InZooKeeper", "Replica", "Periods", "Answer", "Defaults")


def calls(name: str) -> Iterator[ast.Call]:
    """Yield the calls in the shell that make a value of the class."""
    for path in sorted(Path(shell.__path__[0]).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                yield node


@pytest.mark.parametrize("name", WHOLE)
def test_every_field_of_an_observed_value_is_given(name: str) -> None:
    wanted = [field.name for field in fields(getattr(observation, name))]
    found = list(calls(name))
    assert found
    for call in found:
        given = wanted[: len(call.args)] + [str(keyword.arg) for keyword in call.keywords]
        assert sorted(given) == sorted(wanted), f"line {call.lineno}"
