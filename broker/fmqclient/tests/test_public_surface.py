"""The public surface: it changes only on purpose, and the blocking client offers the same."""

import pytest

import fmqclient
from fmqclient.tests.public_surface import SNAPSHOT, members, surface

ASYNC_ONLY = {"__aenter__", "__aiter__", "ack_now"}
SYNC_ONLY = {"__enter__", "__iter__", "closed"}


def test_public_surface_is_that_of_the_snapshot() -> None:
    """After an intended change, write it again: `python -m fmqclient.tests.public_surface`."""
    assert surface() == SNAPSHOT.read_text()


@pytest.mark.parametrize(
    "name",
    ["Admin", "Client", "Consumer", "Message", "OrderedAdmin", "OrderedProducer", "Producer"],
)
def test_blocking_class_has_the_same_members_and_types(name: str) -> None:
    asynchronous = members(getattr(fmqclient, name))
    blocking = members(getattr(fmqclient.sync, name))
    assert set(asynchronous) - ASYNC_ONLY == set(blocking) - SYNC_ONLY
    for member in set(asynchronous) - ASYNC_ONLY:
        wanted = asynchronous[member].removeprefix("async ")
        assert blocking[member] == wanted.replace("asyncio.Future", "Future")


def test_blocking_connect_has_the_same_arguments() -> None:
    first, second = (part for part in surface().splitlines() if part.startswith("def connect("))
    assert first == second


def test_no_public_member_hides_its_arguments_or_type() -> None:
    for line in surface().splitlines():
        assert "**" not in line, line
        assert "Any" not in line, line
    for name in fmqclient.sync.__all__:
        assert not hasattr(getattr(fmqclient.sync, name), "__getattr__"), name


def test_every_name_of_the_package_can_be_imported() -> None:
    for name in fmqclient.__all__:
        assert getattr(fmqclient, name) is not None
        assert name in dir(fmqclient)
    with pytest.raises(AttributeError, match="nonsense"):
        fmqclient.nonsense  # type: ignore[attr-defined]  # noqa: B018
