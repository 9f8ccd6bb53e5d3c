"""The ordered producer against real brokers: two groups of two, over switches and deaths."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import fmqclient
from fmqcore.ids import BrokerId
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]
TOPIC = "changes"


@pytest.fixture
async def running(tmp_path: Path, zookeeper: str) -> AsyncIterator[DevCluster]:
    options = ClusterOptions(groups=2, slaves=1, zookeeper=zookeeper)
    async with DevCluster(tmp_path / "dev", options) as running:
        yield running


async def created(client: fmqclient.Client) -> None:
    await client.admin().ordered.create(TOPIC, ["g1", "g2"])


async def consumed(client: fmqclient.Client, count: int) -> list[fmqclient.Message]:
    """Read so many messages, acknowledging each; then no more may come."""
    got: list[fmqclient.Message] = []
    async with client.consumer(TOPIC, group="check") as consumer:
        while len(got) < count:
            fetched = await consumer.fetch(timeout=60)
            assert fetched, f"{len(got)} of {count} came"
            for message in fetched:
                got.append(message)
                await message.ack()
        await consumer.commit()
        assert await consumer.fetch(timeout=1) == []
    return got


async def test_order_over_planned_switches(running: DevCluster) -> None:
    async with fmqclient.connect(running.url) as client:
        await created(client)
        ordered = client.admin().ordered
        async with client.ordered_producer(TOPIC, name="copier") as p:
            assert (await p.send(b"0")).sequence == 1
            futures = []
            for n in range(1, 3_000):
                futures.append(p.send_nowait(b"%d" % n))
                if n % 10 == 0:
                    await asyncio.sleep(0.001)
                if n in (1_000, 2_000):
                    await ordered.switch(TOPIC, reason="a test")
            await p.flush()
            assert {future.result().segment for future in futures} == {1, 2, 3}
        messages = await consumed(client, 3_000)
        assert [m.value for m in messages] == [b"%d" % n for n in range(3_000)]
        assert [m.segment for m in messages] == sorted(m.segment for m in messages)
        async with client.ordered_producer(TOPIC, name="copier") as again:
            assert again.last[0].value == b"2999"
            assert again.last[0].sequence == 3_000


@pytest.mark.parametrize("number", [0, 1])
async def test_loss_of_a_broker_is_a_pause_or_resumed(running: DevCluster, number: int) -> None:
    """A switch is invisible; a place in line that was lost in mid-flight is asked for again."""
    count, fenced = 2_000, 0
    async with fmqclient.connect(running.url) as client:
        await created(client)
        done = 0
        while done < count:
            try:
                async with client.ordered_producer(TOPIC, name="copier") as p:
                    done = p.last[0].sequence if p.last else 0
                    assert not p.last or p.last[0].value == b"%d" % done
                    futures = []
                    for n in range(done + 1, count + 1):
                        futures.append(p.send_nowait(b"%d" % n))
                        if n % 5 == 0:
                            await asyncio.sleep(0.002)
                        if n == 700 and not fenced:
                            group = (await futures[0]).group
                            running.kill(BrokerId(f"{group}-{number}"))
                    await asyncio.gather(*futures)
                    done = count
            except fmqclient.SenderFenced as error:
                fenced += 1
                print("fenced:", error)
        assert fenced < 2
        running.start_broker(BrokerId(f"{group}-{number}"))
        messages = await consumed(client, count)
        assert [m.value for m in messages] == [b"%d" % n for n in range(1, count + 1)]


async def test_sender_keeps_its_role_while_its_broker_stops(running: DevCluster) -> None:
    """It takes a place at another broker before the first one goes: the next in line waits on."""
    async with fmqclient.connect(running.url) as client:
        await created(client)
        async with client.ordered_producer(TOPIC, name="copier") as p:
            second = client.ordered_producer(TOPIC, name="other")
            entering = asyncio.create_task(second.__aenter__())
            while "first in line" not in second.waits_for:
                await asyncio.sleep(0.02)
            assert (await p.send(b"0")).segment == 1
            for n in range(3):
                assert p._line is not None
                broker = next(
                    b for b, plan in running.brokers.items() if plan.listen == p._line._address
                )
                assert await running.stop_broker(broker)
                assert (await p.send(b"%d" % (n + 1))).sequence == n + 2
                assert p._state.epoch == 1, "no other sender had the role"
                running.start_broker(broker)
                await running.wait_healthy()
            assert not entering.done()
        await entering
        assert second.last[0].value == b"3"
        await second.close()


async def test_other_programs_take_the_role_in_turn(running: DevCluster, tmp_path: Path) -> None:
    """The command, the example, and the blocking client, one after the other."""
    environment = {**os.environ, "FMQ_BROKERS": running.url}
    example = Path(__file__).parents[3] / "examples" / "ordered.py"
    for stored in (0, 20, 20, 20):  # in the end the last record lies in a dropped segment
        out = await output_of(environment, example)
        assert f"active; {stored} changes are stored" in out
        if not stored:
            async with fmqclient.connect(running.url) as client:
                await consumed(client, 20)
    lines = tmp_path / "lines"
    lines.write_bytes(b"a\nb\nc\n")
    command = ("-m", "fmqcli.main", "produce", TOPIC, "--ordered", "--print", "-f", lines)
    assert (await output_of(environment, *command)).split("\n")[0].startswith("g1 0 ")
    await asyncio.to_thread(send_blocking, running.url)
    async with fmqclient.connect(running.url) as client:
        assert [m.value for m in await consumed(client, 4)] == [b"a", b"b", b"c", b"d"]
        with pytest.raises(fmqclient.InvalidArgument, match="use ordered_producer"):
            async with client.producer() as ordinary:
                await ordinary.send(TOPIC, b"v")
        await client.admin().create_topic("plain")
        with pytest.raises(fmqclient.InvalidArgument, match="is not ordered"):
            await client.ordered_producer("plain").__aenter__()


def send_blocking(url: str) -> None:
    with fmqclient.sync.connect(url) as client, client.ordered_producer(TOPIC) as p:
        assert p.last[0].value == b"c"
        assert p.send(b"d").sequence == 24


async def output_of(environment: dict[str, str], *arguments: str | Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *map(str, arguments)),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, (out, errors)
    return out.decode()
