"""A cluster's plan and its state file; ports; children that die with their parent."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from fmqadapters.process.free_ports import free_ports
from fmqadapters.process.spawn import spawn
from fmqcli import common
from fmqcli.commands import dev
from fmqclient.address import DEFAULT_URL
from fmqcore.errors import InvalidArgument
from fmqcore.ids import Permission
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqdev.broker_process import BrokerStatus
from fmqdev.cluster import ClusterFailed, DevCluster
from fmqdev.cluster_plan import (
    BrokerPlan,
    ClusterFile,
    ClusterOptions,
    Running,
    broker_names,
    group_configs,
    read_file,
    state_folder,
    write_file,
)
from fmqdev.demo.folder import clear_folder
from fmqdev.processes import Child
from fmqproto.v1 import admin_pb2

FULL_OPTIONS = ClusterOptions(
    groups=2,
    slaves=2,
    policy=AckPolicy(Flush.INTERVAL, 50, SlaveCounts.RECEIVED, HowMany.ZONES, strict=True),
    zones=("a", "b"),
    permissions={"g1-1": Permission.WRITE},
    settings={"segment_bytes": 1 << 20},
)


def test_the_state_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    file = ClusterFile(FULL_OPTIONS, [Running("zookeeper", 2181, 7, 1.5), Running("g1-0", 1, 8, 2)])
    assert read_file(tmp_path) is None
    write_file(tmp_path, file)
    assert read_file(tmp_path) == file
    assert (file.port_of("g1-0"), file.port_of("g9-9")) == (1, 0)


def test_the_command_line_knows_all_brokers_of_the_usual_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default cluster may be the one that was killed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "fmq" / "dev"
    folder.mkdir(parents=True)
    assert common._known(DEFAULT_URL) == DEFAULT_URL
    running = [Running("zookeeper", 2181, 7, 1.5), Running("g1-0", 9876, 8, 2)]
    write_file(folder, ClusterFile(FULL_OPTIONS, [*running, Running("g1-1", 1, 9, 2)]))
    assert common._known(DEFAULT_URL) == "fmq://127.0.0.1:9876,127.0.0.1:1"
    assert common._known("fmq://127.0.0.1:1") == "fmq://127.0.0.1:1"
    write_file(folder, ClusterFile(FULL_OPTIONS, [Running("g1-0", 9000, 8, 2)]))
    assert common._known(DEFAULT_URL) == DEFAULT_URL, "another cluster"
    (folder / "cluster.json").write_text("{}")
    assert common._known(DEFAULT_URL) == DEFAULT_URL


def test_no_home_directory_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a user that its system does not know."""

    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert common._known(DEFAULT_URL) == DEFAULT_URL
    assert dev._where(tmp_path) == f" --dir {tmp_path}"
    with pytest.raises(InvalidArgument, match="--dir"):
        state_folder("dev")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"options": {"zones": 1}, "processes": []}'])
def test_a_state_file_that_cannot_be_read_is_no_bug(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(InvalidArgument, match="another version, or damaged"):
        DevCluster.attach(tmp_path)


def test_wiping_a_cluster_leaves_foreign_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--dir .` in a project, say."""
    precious = tmp_path / "src" / "precious"
    precious.parent.mkdir()
    precious.write_text("kept")
    for name in ("g1-0", "g1-1", "g2-0", "g2-1", "zookeeper"):
        (tmp_path / name / "data").mkdir(parents=True)
    write_file(tmp_path, ClusterFile(ClusterOptions(), []))
    dev.down(wipe=True, directory=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["src"]
    assert precious.read_text() == "kept"
    assert f"{tmp_path} stays, as more is in it: src" in capsys.readouterr().err


def test_a_demo_removes_an_earlier_run_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for name in ("g1-0", "zookeeper"):
        (folder / name).mkdir(parents=True)
    write_file(folder, ClusterFile(ClusterOptions(), []))
    (folder / "notes").write_text("kept")
    clear_folder(folder)
    assert [path.name for path in folder.iterdir()] == ["notes"]
    (folder / "notes").unlink()
    write_file(folder, ClusterFile(ClusterOptions(), []))
    clear_folder(folder)
    assert not folder.exists()


def test_ports_above_the_maximum_are_replaced(tmp_path: Path) -> None:
    cluster = DevCluster(tmp_path, ClusterOptions(first_port=65_535))
    assert all(0 < port < 65_536 for port in cluster._ports(None))


def test_names_zones_and_configurations(tmp_path: Path) -> None:
    names = broker_names(FULL_OPTIONS)
    assert [(b, zone) for _, b, zone in names] == [
        ("g1-0", "a"),
        ("g1-1", "b"),
        ("g1-2", "a"),
        ("g2-0", "a"),
        ("g2-1", "b"),
        ("g2-2", "a"),
    ]
    plans = [
        BrokerPlan(b, g, zone, 9000, "127.0.0.1:9000", "", tmp_path / b) for g, b, zone in names
    ]
    first, second = group_configs(FULL_OPTIONS, plans)
    assert (first.group, first.master, second.master) == ("g1", "g1-0", "g2-0")
    assert first.policy == FULL_OPTIONS.policy
    assert [m.permission for m in first.members] == [
        Permission.FULL,
        Permission.WRITE,
        Permission.FULL,
    ]


@pytest.mark.parametrize(("groups", "slaves"), [(0, 1), (1, -1), (1, 10)])
def test_a_shape_that_makes_no_sense_is_refused(groups: int, slaves: int) -> None:
    with pytest.raises(InvalidArgument):
        ClusterOptions(groups=groups, slaves=slaves)


def test_a_port_in_use_is_replaced_by_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = free_ports(3, [port])
        assert port not in ports
        assert len(set(ports)) == 3
    assert free_ports(1, [port]) == [port]


def test_a_child_dies_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    """The parent is killed with SIGKILL, so it cannot clean up."""
    if sys.platform != "linux":
        pytest.skip("needs PR_SET_PDEATHSIG")
    parent = (
        "import sys, time\nfrom pathlib import Path\nfrom fmqadapters.process.spawn import spawn\n"
        "child = spawn(['sleep', '1000'], Path(sys.argv[1]))\n"
        "kept = spawn(['sleep', '1000'], Path(sys.argv[1]), detach=True)\n"
        "print(child.pid, kept.pid, flush=True)\ntime.sleep(1000)\n"
    )
    command = [sys.executable, "-c", parent, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        child, kept = (psutil.Process(int(pid)) for pid in running.stdout.readline().split())
        try:
            assert child.is_running()
            running.send_signal(signal.SIGKILL)
            psutil.wait_procs([child], timeout=30)
            assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
            assert kept.is_running()
        finally:
            kept.kill()


async def test_a_process_is_known_by_id_and_birth(tmp_path: Path) -> None:
    popen = spawn(["sleep", "1000"], tmp_path / "log")
    child = Child.of(popen)
    assert child.alive()
    assert Child(child.pid, child.born).alive()
    assert not Child(child.pid, child.born - 100).alive()  # the process id was reused
    stranger = Child(os.getpid(), 0.0)
    stranger.kill()  # would end this very test
    child.send(signal.SIGSTOP)
    async with asyncio.timeout(60):
        assert await child.stop()
    assert not child.alive()
    child.kill()


async def test_a_process_that_ignores_sigterm_is_killed_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmqdev.processes.TERM_S", 0.3)
    log = tmp_path / "log"
    deaf = (
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\ntime.sleep(1000)\n"
    )
    child = Child.of(spawn([sys.executable, "-c", deaf], log))
    async with asyncio.timeout(30):
        while "deaf" not in log.read_text():
            await asyncio.sleep(0.01)
        assert not await child.stop()
    assert not child.alive()


async def test_changed_shape_is_refused_with_data_saving_advice(tmp_path: Path) -> None:
    write_file(tmp_path, ClusterFile(ClusterOptions(groups=2, slaves=2), []))
    with pytest.raises(ClusterFailed, match=r"with --groups 2 --slaves 2, or .* --wipe"):
        await DevCluster(tmp_path).start()


def test_each_broker_whose_port_is_taken_is_named(tmp_path: Path) -> None:
    """Only the URL showed that a broker had moved."""
    reports: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        known = ClusterFile(ClusterOptions(groups=1), [Running("g1-1", port, 7, 1.5)])
        options = ClusterOptions(groups=1)
        ports = DevCluster(tmp_path, options, report=reports.append)._ports(known)
    assert reports == [f"port {port} is taken: g1-1 listens on {ports[2]}"]


async def test_start_that_fails_names_what_each_broker_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk: `not in sync`, and the broker that knew the cause was stopped then."""

    async def status(plan: BrokerPlan) -> BrokerStatus:
        full = admin_pb2.StatusReply(reason="it lags", disk_full_reason="3 bytes are free")
        return BrokerStatus(plan, True, 7, full if plan.id == "g1-0" else None)

    async def wait(*_: object) -> None:
        raise ClusterFailed("not ready, and no progress for 60 s: g1: g1-1 not in sync")

    cluster = DevCluster(tmp_path, ClusterOptions(groups=1, zookeeper="127.0.0.1:1"))
    cluster._plan([1, 2])
    monkeypatch.setattr(cluster, "alive", lambda _: True)
    monkeypatch.setattr(cluster, "_status", status)
    monkeypatch.setattr(cluster, "_wait", wait)
    with pytest.raises(ClusterFailed) as failed:
        await cluster.wait_healthy()
    first, *rest = str(failed.value).splitlines()
    assert first.endswith("g1-1 not in sync")
    assert rest == [
        f"g1-0: 3 bytes are free; its log is {cluster.brokers['g1-0'].log}",
        f"g1-1: it does not answer; its log is {cluster.brokers['g1-1'].log}",
    ]
