"""The operator's options, as the environment gives them."""

import pytest

from fmqcore.errors import InvalidArgument
from fmqoperator.shell.process import Options


@pytest.mark.parametrize(
    ("given", "moves"),
    [({}, True), ({"FMQ_PLANNED_MOVES": ""}, True)]
    + [({"FMQ_PLANNED_MOVES": said}, said == "true") for said in ("true", "false")],
)
def test_moves_are_on_unless_switched_off(given: dict[str, str], moves: bool) -> None:
    assert Options.read(given).defaults.planned_moves is moves


@pytest.mark.parametrize("said", ["off", "False", "0", "no", " false"])
def test_invalid_switch_value_is_refused(said: str) -> None:
    """A person who writes `off` means it: it does not count as on."""
    with pytest.raises(InvalidArgument, match=r"FMQ_PLANNED_MOVES is .*: it must be true or false"):
        Options.read({"FMQ_PLANNED_MOVES": said})


@pytest.mark.parametrize(
    ("said", "namespaces"), [("", ()), ("a", ("a",)), ("a, b,", ("a", "b")), (" ", ())]
)
def test_namespaces_that_are_watched(said: str, namespaces: tuple[str, ...]) -> None:
    assert Options.read({"FMQ_WATCH_NAMESPACES": said}).namespaces == namespaces


@pytest.mark.parametrize(("said", "most"), [("", 1), ("0", 0), ("25", 25)])
def test_number_of_concurrent_updates_is_an_option(said: str, most: int) -> None:
    assert Options.read({"FMQ_UPDATES_AT_ONCE": said}).defaults.updates_at_once == most


@pytest.mark.parametrize("said", ["-1", "all", "1.5", "²"])
def test_a_number_that_is_none_is_refused(said: str) -> None:
    with pytest.raises(InvalidArgument, match=r"FMQ_UPDATES_AT_ONCE is .* must be a number"):
        Options.read({"FMQ_UPDATES_AT_ONCE": said})
