"""Spark and the archive on live brokers: no disk is shared, and brokers are killed in mid-scan."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fmqcore.batch.header import BatchType
from fmqcore.errors import InvalidArgument, Unavailable
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqspark.archive.ledger import Unit, open_book
from fmqspark.engines.engines import LocalEngine
from fmqspark.source import brokers
from fmqspark.tests.kit import journal, write
from fmqspark.tests.test_brokers import COUNT, MASTER, SLAVE, Played, produced, same_end
from fmqspark.tests.test_spark_source import rows

pytestmark = [pytest.mark.spark, pytest.mark.processes, pytest.mark.timeout(300)]
SEGMENT = 256 * 1024
JOB = [sys.executable, "-m", "fmqspark"]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from fmqspark.spark.session import open_session
    from fmqspark.spark.source import register

    with open_session(2) as session:
        register(session)
        yield session


def cluster_in(folder: Path, zookeeper: str, **settings: int) -> DevCluster:
    settings = {"segment_bytes": SEGMENT, "checkpoint_interval_ms": 50, **settings}
    options = ClusterOptions(groups=1, slaves=1, zookeeper=zookeeper, settings=settings)
    return DevCluster(folder / "dev", options)


async def synced(cluster: DevCluster) -> None:
    await same_end(*(f"fmq://{cluster.brokers[b].address}" for b in ("g1-1", "g1-0")))


async def start(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *JOB,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def job(*arguments: object) -> tuple[int, str]:
    process = await start(*arguments)
    out, _ = await process.communicate()
    assert b"Traceback" not in out, out.decode()
    return process.returncode or 0, out.decode()


async def test_spark_reads_brokers_as_it_reads_their_directories(
    spark: Any, tmp_path: Path, zookeeper: str
) -> None:
    async with cluster_in(tmp_path, zookeeper) as cluster:
        sent = await produced(cluster.url)
        await synced(cluster)

        def compare() -> None:
            frame = spark.read.format("fmq").option("connect", cluster.url)
            live = frame.option("topic", "orders").option("splitBytes", "64k").load()
            assert rows(live) == sent
            some = live.where("queue = 1 and offset >= 100 and offset < 150")
            assert rows(some) == [r for r in sent if r[0] == 1 and 100 <= r[1] < 150]
            with pytest.raises(Exception, match="no topic bills: the cluster's topics are orders"):
                frame.option("topic", "bills").load().count()

            out, progress = str(tmp_path / "out"), str(tmp_path / "progress")
            stream = spark.readStream.format("fmq").option("connect", cluster.url).load()
            for _ in range(2):
                query = (
                    stream.writeStream.format("parquet")
                    .option("checkpointLocation", progress)
                    .trigger(availableNow=True)
                    .start(out)
                )
                query.awaitTermination()
                cluster.kill("g1-1")  # the second time only the master is there
            assert rows(spark.read.parquet(out)) == sent

        await asyncio.to_thread(compare)


async def test_archive_survives_broker_loss_and_fails_without_brokers(
    tmp_path: Path, zookeeper: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    # Each segment takes a second, so brokers die while one is read.
    async with cluster_in(tmp_path, zookeeper, scan_bytes_per_s=SEGMENT) as cluster:
        sent = await produced(cluster.url)
        await synced(cluster)
        connect = ("archive", "--connect", cluster.url)
        code, output = await job(*connect, "--out", first, "--topic", "bills")
        assert (code, output.count("\n")) == (64, 1)
        assert "no topic bills" in output

        running = await start(*connect, "--out", first, "--topic", "orders", "-o", "json")
        await unit_done(first, running)
        cluster.kill("g1-1")
        out, _ = await running.communicate()
        assert running.returncode == 0, out.decode()
        assert json.loads(out)["rows"] == len(sent) == COUNT
        assert archived(first) == sent

        running = await start(*connect, "--out", second)
        await unit_done(second, running)
        cluster.kill("g1-0")
        out, _ = await running.communicate()
        assert running.returncode == 3, out.decode()
        assert b"could not be read from any broker" in out
        assert cluster.brokers["g1-0"].address.encode() in out
        assert b"are not archived" in out
        assert b"Traceback" not in out
        code, output = await job(*connect, "--out", second)
        assert code == 69
        assert "no broker answers" in output


async def unit_done(folder: Path, running: asyncio.subprocess.Process) -> None:
    ledger = folder / "_fmq" / "g1.ledger"
    while running.returncode is None and not (ledger.exists() and '"done"' in ledger.read_text()):
        await asyncio.sleep(0.02)


def archived(folder: Path) -> list[tuple[int, int, bytes]]:
    import pyarrow.dataset as ds

    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    columns = (table.column(name).to_pylist() for name in ("queue", "offset", "value"))
    return sorted(zip(*columns, strict=True))


def test_brokers_that_know_less_than_the_archive_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories that are behind are the wrong ones; brokers will know again (69, not 64)."""
    from fmqspark.archive.job import ArchiveOptions, run_archive

    played = Played(tmp_path)
    monkeypatch.setattr(brokers, "Lines", played.lines)
    out, end = tmp_path / "out", played.end("slave:1")
    with open_book(out, "g1") as book:
        book.begin(None)
        book.plan([Unit(0, end)], {})
    for name in ("slave", "master"):
        write(tmp_path / name, commit_end=end - 4096)

    def archive(*sources: str) -> None:
        run_archive(ArchiveOptions(sources, out, "g1"), LocalEngine())

    with pytest.raises(Unavailable, match=f"the archive is at position {end}"):
        archive(SLAVE, MASTER)
    with pytest.raises(InvalidArgument, match=f"the archive is at position {end}"):
        archive(str(tmp_path / "slave"), str(tmp_path / "master"))
    for name in ("slave", "master"):
        write(tmp_path / name)
    archive(SLAVE, MASTER)
    assert len(archived(out)) == sum(
        h.record_count for h in journal().headers if h.type == BatchType.DATA
    )
