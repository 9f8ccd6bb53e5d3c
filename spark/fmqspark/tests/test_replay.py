"""`fmq job archive` and `replay` as a user types them: a round trip, by real brokers."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from fmqcore.policy import AckPolicy, HowMany
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(300)]
FMQ = [sys.executable, "-m", "fmqcli.main"]
COUNT = 12_000


async def start(url: str, *arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *FMQ,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "FMQ_BROKERS": url, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def fmq(url: str, *arguments: object) -> tuple[int, str]:
    process = await start(url, *arguments)
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


def records(out: Path) -> list[tuple[bytes, bytes, Any]]:
    """Return (key, value, headers), by queue and offset."""
    import pyarrow.dataset as ds

    found = ds.dataset(out, format="parquet", partitioning="hive")
    rows = found.to_table().to_pylist() if found.files else []
    rows.sort(key=lambda r: (r["queue"], r["offset"]))
    return [(r["key"], r["value"], r["headers"]) for r in rows]


async def archived(url: str, folder: Path, out: Path, topic: str, count: int) -> None:
    """The broker's checkpoint learns the commit end late: ask until all is there."""
    while True:
        code, output = await fmq(url, "job", "archive", folder, "--out", out, "--topic", topic)
        assert code == 0 or "no topic" in output, output  # the checkpoint does not know it yet
        if code == 0 and len(records(out)) >= count:
            return
        await asyncio.sleep(0.2)


async def test_killed_replay_then_all_archived_records_come_back(
    tmp_path: Path, zookeeper: str
) -> None:
    options = ClusterOptions(
        groups=1, slaves=0, policy=AckPolicy(how_many=HowMany.NONE), zookeeper=zookeeper
    )
    first, second = tmp_path / "first", tmp_path / "second"
    async with DevCluster(tmp_path / "dev", options) as cluster:
        url, home = cluster.url, next(iter(cluster.brokers.values())).directory / "data"
        for topic in ("orders", "copy"):
            assert (await fmq(url, "topic", "create", topic, "--queues", 2))[0] == 0
        lines = tmp_path / "lines"
        lines.write_text("".join(f"{n % 7}:{n}\n" for n in range(COUNT)))
        code, output = await fmq(url, "produce", "orders", "-f", lines, "-K", ":", "-H", "a=b")
        assert code == 0, output
        await archived(url, home, first, "orders", COUNT)

        again = ("job", "replay", first, "--topic", "orders", "--to", "copy")
        progress = first / "_fmq" / "replay-all-orders-to-copy.json"
        noted = -1
        for _ in range(3):  # each time a little further
            killed = await start(url, *again)
            while killed.returncode is None and rows_noted(progress) <= noted:
                await asyncio.sleep(0.005)
            if killed.returncode is None:
                killed.send_signal(signal.SIGKILL)
            await killed.communicate()
            noted = rows_noted(progress)
        await stored_and_not_noted(first, url)
        code, output = await fmq(url, *again)
        assert code == 0, output
        code, output = await fmq(url, *again)
        assert code == 0
        assert f"0 records stored in copy; {COUNT:,} were before" in output

        await archived(url, home, second, "copy", COUNT)
    sent, came = records(first), records(second)
    assert sent[0][2] == [("a", b"b")]
    assert len(came) == len(sent) == COUNT
    assert sorted(map(str, came)) == sorted(map(str, sent)), "each once"
    for key in {key for key, _, _ in sent}:
        assert [v for k, v, _ in came if k == key] == [v for k, v, _ in sent if k == key]


def rows_noted(progress: Path) -> int:
    try:
        return int(json.loads(progress.read_text())["rows"])
    except FileNotFoundError:
        return -1


async def stored_and_not_noted(archive: Path, url: str, topic: str = "orders") -> None:
    """A sender that dies between the two, twice in the same place: the records are sent again."""
    from fmqcli.commands.replay import _Job
    from fmqclient import connect
    from fmqspark.archive.replay import Place, Replay

    class Died(Exception): ...

    name = f"all-{topic}-to-copy"
    for _ in range(2):
        replay, notes = Replay(archive, topic, None, name), [0]
        place = replay.place
        real = replay.note

        def note(to: Place, state: Any, real: Any = real, notes: list[int] = notes) -> None:
            notes[0] += 1
            if notes[0] > 1:  # the first note records the sender
                raise Died
            real(to, state)

        replay.note = note  # type: ignore[method-assign, assignment]
        if replay.done_before < COUNT:
            with replay.at_work(), pytest.raises(Died):
                async with connect(url) as client:
                    await _Job(replay, "copy", False).send(client, "replicated")
        assert Replay(archive, topic, None, name).place == place


async def test_impossible_replay_is_refused(tmp_path: Path) -> None:
    code, output = await fmq("fmq://127.0.0.1:1", "job", "replay", tmp_path, "--topic", "x")
    text = f"fmq: {tmp_path} is not an archive: create one by `fmq job archive`\n"
    assert (code, output) == (64, text)


async def test_second_replay_of_a_name_is_refused(tmp_path: Path) -> None:
    from fmqspark.archive.replay import Replay
    from fmqspark.tests.kit import write
    from fmqspark.tests.test_archive import archive, small

    out = tmp_path / "out"
    archive(out, write(tmp_path / "a", small()))
    command = ("job", "replay", out, "--topic", "orders", "--name", "x")
    with Replay(out, "orders", None, "x").at_work():
        code, output = await fmq("fmq://127.0.0.1:1", *command)
    assert code == 69
    assert "another replay of this name is running" in output
    code, output = await fmq("fmq://127.0.0.1:1", *command, "--acks", "one_way")
    assert (code, output.count("\n")) == (64, 1), output
