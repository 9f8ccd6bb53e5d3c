"""The readiness check of kazoo's connection thread."""

import os
import socket
from collections.abc import Iterator

import pytest

from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqadapters.zookeeper.socket_select import ready

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def test_what_is_ready_is_told(pair: Pair) -> None:
    ours, theirs = pair
    assert ready([ours], [], [], 0) == ([], [], [])
    assert ready([ours], [], [], 0.001) == ([], [], [])
    assert ready([ours], [ours], [], 10) == ([], [ours], [])
    theirs.send(b"x")
    assert ready([ours, theirs], [], [], 10) == ([ours], [], [])
    assert ready([ours], [ours], []) == ([ours], [ours], [])


def test_who_has_hung_up_is_ready(pair: Pair) -> None:
    """A read or a write reports the hang-up."""
    ours, theirs = pair
    theirs.close()
    assert ready([ours], [], [], None)[0] == [ours]
    assert ready([], [ours], [], None)[1] == [ours]
    ours.close()
    with pytest.raises(ValueError, match="negative"):
        ready([ours], [], [], 0)


def test_who_is_closed_beneath_is_ready(pair: Pair) -> None:
    with socket.socket(fileno=pair[0].detach()) as ours:
        os.close(ours.fileno())
        assert ready([ours], [ours], [], 10) == ([ours], [ours], [])
        ours.detach()


def test_a_session_waits_so() -> None:
    session = ZooKeeperSession("127.0.0.1:1", timeout_ms=1000)
    assert session._kazoo._client.handler.select is ready
