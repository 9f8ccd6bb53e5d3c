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


def test_ready_sockets_are_returned(pair: Pair) -> None:
    ours, theirs = pair
    assert ready([ours], [], [], 0) == ([], [], [])
    assert ready([ours], [], [], 0.001) == ([], [], [])
    assert ready([ours], [ours], [], 10) == ([], [ours], [])
    theirs.send(b"x")
    assert ready([ours, theirs], [], [], 10) == ([ours], [], [])
    assert ready([ours], [ours], []) == ([ours], [ours], [])


def test_hung_up_socket_is_ready(pair: Pair) -> None:
    """A read or a write reports the hang-up."""
    ours, theirs = pair
    theirs.close()
    assert ready([ours], [], [], None)[0] == [ours]
    assert ready([], [ours], [], None)[1] == [ours]
    ours.close()
    with pytest.raises(ValueError, match="negative"):
        ready([ours], [], [], 0)


def test_socket_closed_during_the_wait_is_ready(pair: Pair) -> None:
    with socket.socket(fileno=pair[0].detach()) as ours:
        os.close(ours.fileno())
        assert ready([ours], [ours], [], 10) == ([ours], [ours], [])
        ours.detach()


def test_session_waits_with_this_selector() -> None:
    session = ZooKeeperSession("127.0.0.1:1", timeout_ms=1000)
    assert session._kazoo._client.handler.select is ready
