"""Errors about an unreachable ZooKeeper name the unresolved hosts."""

import socket
from collections.abc import Sequence
from typing import Any

import pytest

from fmqadapters.zookeeper.hosts import check_address, no_answer_text, unresolved
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqcore.errors import InvalidArgument
from fmqport.coordination import ConnectionLost


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name service that resolves only numbers and `localhost`, on any machine."""
    real = socket.getaddrinfo

    def lookup(host: str, *rest: Any, **more: Any) -> Sequence[Any]:
        if host == "zk9":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


@pytest.mark.parametrize(
    ("address", "wrong"),
    [
        ("127.0.0.1:2181", []),
        ("[::1]:2181/root", []),
        ("localhost", []),
        ("localhost:1,zk9:2181, zk9:2182/a/b", ["zk9"]),
        (f"{'a' * 70}.x:1", ["a" * 70 + ".x"]),
        (":2181", [""]),
    ],
)
async def test_the_names_that_do_not_resolve(address: str, wrong: list[str]) -> None:
    assert list(await unresolved(address)) == wrong


@pytest.mark.parametrize(
    "address",
    [
        *("", ":2181", "a:b", "a:0", "a:99999", "a:1,", "a:1:2", "[::1]:x", "a b:1", "\udcff:1"),
        *("a..b:1", ".a:1", "a..:1", f"{'a' * 64}.b:1"),
        *("[::::]:1", "[1.2.3.4]:1", "[1:2]:1", "[]:1", "a:1,[:::1]:1"),  # no IPv6 addresses
    ],
)
def test_invalid_zookeeper_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match="is not host:port"):
        ZooKeeperSession(address, timeout_ms=1000)


@pytest.mark.parametrize("address", ["a:1/../b", "a:1//b", "a:1/b/./c", "a:1/.."])
def test_a_root_that_is_no_path_is_refused(address: str) -> None:
    with pytest.raises(InvalidArgument, match="is no path of a node"):
        ZooKeeperSession(address, timeout_ms=1000)


@pytest.mark.parametrize(
    "address",
    [
        "a",
        "a:1/b",
        " a:1, b:2",
        "[::1]:1",
        "[::1]",
        "[fe80::1%eth0]:1",
        "a.b.:1",
        "a:1/",
        "a:1/b/",
        "a:1/b..c",
    ],
)
def test_valid_zookeeper_address_is_accepted(address: str) -> None:
    assert check_address(address) == address


async def test_unresolved_names_are_reported() -> None:
    text = await no_answer_text("127.0.0.1:1,zk9:2181", 3)
    assert "the name 'zk9' does not resolve (Name or service not known)" in text
    assert "is it running and reachable" in await no_answer_text("127.0.0.1:1", 3)


async def test_unreachable_session_reports_unresolved_names() -> None:
    session = ZooKeeperSession("zk9:2181", timeout_ms=1000)
    with pytest.raises(ConnectionLost, match="the name 'zk9' does not resolve"):
        await session.start(0.2)
