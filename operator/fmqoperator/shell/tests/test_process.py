"""The operator's options, as the environment gives them."""

import pytest

from fmqcore.errors import InvalidArgument
from fmqoperator.shell.process import Options


@pytest.mark.parametrize(
    ("given", "moves"),
    [({}, True), ({"FMQ_PLANNED_MOVES": ""}, True)]
    + [({"FMQ_PLANNED_MOVES": value}, value == "true") for value in ("true", "false")],
)
def test_moves_are_on_unless_switched_off(given: dict[str, str], moves: bool) -> None:
    assert Options.read(given).defaults.planned_moves is moves


@pytest.mark.parametrize("value", ["off", "False", "0", "no", " false"])
def test_invalid_switch_value_is_refused(value: str) -> None:
    """A person who writes `off` means it: it does not count as on."""
    with pytest.raises(InvalidArgument, match=r"FMQ_PLANNED_MOVES is .*: it must be true or false"):
        Options.read({"FMQ_PLANNED_MOVES": value})


@pytest.mark.parametrize(
    ("value", "namespaces"), [("", ()), ("a", ("a",)), ("a, b,", ("a", "b")), (" ", ())]
)
def test_namespaces_that_are_watched(value: str, namespaces: tuple[str, ...]) -> None:
    assert Options.read({"FMQ_WATCH_NAMESPACES": value}).namespaces == namespaces


@pytest.mark.parametrize(("value", "most"), [("", 1), ("0", 0), ("25", 25)])
def test_number_of_concurrent_updates_is_an_option(value: str, most: int) -> None:
    assert Options.read({"FMQ_UPDATES_AT_ONCE": value}).defaults.updates_at_once == most


@pytest.mark.parametrize("value", ["-1", "all", "1.5", "²"])
def test_a_number_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(InvalidArgument, match=r"FMQ_UPDATES_AT_ONCE is .* must be a number"):
        Options.read({"FMQ_UPDATES_AT_ONCE": value})
