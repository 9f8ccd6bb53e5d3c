"""The choice of free ports."""

import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fmqadapters.process import free_ports as module
from fmqadapters.process.free_ports import free_port, free_ports


def test_a_port_lies_below_those_of_outgoing_connections() -> None:
    """A killed broker's port must still be free when it restarts."""
    assert all(module.LOWEST <= port < module.HIGHEST for port in free_ports(20))


def test_requested_number_of_distinct_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HIGHEST", module.LOWEST + 3)
    assert len(set(free_ports(20))) == 20, "what chance does not give, the kernel does"


def test_preferred_ports_come_first_unless_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, other = taken.getsockname()[1], free_port()
        first, second, third = free_ports(3, [port, other])
        assert first != port
        assert second == other
        assert third not in (first, second)
    assert free_ports(2, [port, port])[0] == port
    assert len(set(free_ports(2, [port, port]))) == 2


def test_no_preference_is_not_left_to_the_kernel() -> None:
    """The kernel would give an outgoing port; a new cluster has no preference."""
    assert all(module.LOWEST <= port < module.HIGHEST for port in free_ports(9, [0] * 9))


@pytest.mark.parametrize("port_range", ["", "nothing", "0 0", "1024 60999"])
def test_no_room_below_outgoing_range_then_port_inside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port_range: str
) -> None:
    """No room below the outgoing range: then one inside it."""
    (tmp_path / "range").write_text(port_range)
    monkeypatch.setattr(module, "OUTGOING", tmp_path / "range")
    assert 0 < free_port() < 65536


def test_kernel_without_port_range_still_gives_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "OUTGOING", tmp_path / "none")
    assert module.LOWEST <= free_port() < module.HIGHEST


_OTHER = """
import sys
from fmqadapters.process import free_ports as module
module.HIGHEST = module.LOWEST + 60
print(*module.free_ports(20), flush=True)
sys.stdin.read()
"""


def test_port_given_before_is_not_drawn_though_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HIGHEST", module.LOWEST + 60)
    assert len({free_port() for _ in range(100)}) == 100


def test_port_of_a_living_process_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server may be down for a moment: a broker restarts."""
    monkeypatch.setattr(module, "HIGHEST", module.LOWEST + 60)
    command = [sys.executable, "-c", _OTHER]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout is not None
        claimed = [int(port) for port in other.stdout.readline().split()]
        drawn = [free_port() for _ in range(60)]
        assert free_ports(1, claimed[:1]) != claimed[:1], "preferred, and claimed"
    assert len(claimed) == 20
    assert not set(claimed) & set(drawn)
    assert set(claimed) & set(free_ports(20, claimed)), "its process has ended"


def test_file_system_without_locks_still_gives_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(module, "_claims", module._Claims())
    monkeypatch.setattr("fcntl.lockf", refuse)
    assert len({free_port() for _ in range(10)}) == 10


def test_no_file_for_claims_still_gives_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_claims", module._Claims())
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/proc/none")
    assert len({free_port() for _ in range(10)}) == 10
