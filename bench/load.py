"""The load: one-by-one sends with a fixed number outstanding, and a consumer process beside it."""

import asyncio
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence

import psutil

import fmqclient
from bench.cells import OUTSTANDING, Cell, Cpu, Run, run_of
from fmqclient.producer.producer import Producer

_QUEUES = 8
_WARM_UP_S = 0.5
_ALL_CONSUMED_S = 120.0


class Load:
    """Runs cells against one cluster. Each run creates its own topics."""

    def __init__(self, url: str, pids: Sequence[int]) -> None:
        self._url = url
        self._pids = pids  # of client, master, slave
        self._made = 0

    async def run(self, cell: Cell, seconds: float) -> tuple[Run, Cpu]:
        """Run one cell for about `seconds`."""
        self._made += 1
        names = [f"bench-{self._made}-{number}" for number in range(cell.topics)]
        async with fmqclient.connect(self._url) as client:
            for name in names:
                await client.admin().create_topic(name, queues=_QUEUES)
            async with client.producer() as producer:
                value = bytes(range(256)) * (cell.size_bytes // 256 + 1)
                sender = Sender(producer, names, value[: cell.size_bytes])
                await sender.run(_WARM_UP_S)
                cpu = _Meter(self._pids)
                if not cell.consume:
                    elapsed_s = await sender.run(seconds)
                    used = cpu.per_message(len(sender.latencies_s))
                    return run_of(sender.latencies_s, elapsed_s), used
                async with Consumer(self._url, names) as consumer:
                    before, start = sender.total, time.perf_counter()
                    await sender.run(seconds)
                    await consumer.wait_for(sender.total)
                    elapsed_s = time.perf_counter() - start
                    assert sender.total - before == len(sender.latencies_s)
                    used = cpu.per_message(len(sender.latencies_s))
                    return run_of(sender.latencies_s, elapsed_s), used


class _Meter:
    """The CPU that client, master and slave use from now on."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._processes = [psutil.Process(pid) for pid in pids]
        self._before = [cpu_s(process) for process in self._processes]

    def per_message(self, count: int) -> Cpu:
        """Return the microseconds per message that each process has used since the start."""
        used = zip(self._processes, self._before, strict=True)
        return Cpu(*(1e6 * (cpu_s(process) - before) / count for process, before in used))


def cpu_s(process: psutil.Process) -> float:
    """Return the processor time that a process has used."""
    times = process.cpu_times()
    return times.user + times.system


class Sender:
    """Keeps `OUTSTANDING` sends in flight: each acknowledgement starts the next send."""

    def __init__(self, producer: Producer, topics: Sequence[str], value: bytes) -> None:
        self._producer = producer
        self._topics = topics
        self._value = value
        self._until = 0.0
        self._outstanding = 0
        self._done: asyncio.Future[None] | None = None
        self.total = 0
        self.latencies_s: list[float] = []

    async def run(self, seconds: float) -> float:
        """Send for `seconds` and wait for the last acknowledgement; return the time taken."""
        self.latencies_s = []
        self._done = asyncio.get_running_loop().create_future()
        start = time.perf_counter()
        self._until = start + seconds
        for _ in range(OUTSTANDING):
            self._send()
        await self._done
        return time.perf_counter() - start

    def _send(self) -> None:
        start = time.perf_counter()
        topic = self._topics[self.total % len(self._topics)]
        self.total += 1
        self._outstanding += 1
        future = self._producer.send_nowait(topic, self._value)
        future.add_done_callback(lambda sent: self._sent(start, sent))

    def _sent(self, start: float, sent: "asyncio.Future[fmqclient.SendResult]") -> None:
        now = time.perf_counter()
        self._outstanding -= 1
        done = self._done
        assert done is not None
        if error := sent.exception():
            if not done.done():
                done.set_exception(error)
            return
        self.latencies_s.append(now - start)
        if now < self._until:
            self._send()
        elif not self._outstanding and not done.done():
            done.set_result(None)


class Consumer:
    """A consumer in a separate process (`bench.consume`), as a user's would be."""

    def __init__(self, url: str, topics: Sequence[str]) -> None:
        self._arguments = [url, *topics]
        self._process: Process | None = None

    async def __aenter__(self) -> "Consumer":
        command = [sys.executable, "-m", "bench.consume", *self._arguments]
        self._process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"ready\n", "the consumer did not start"
        return self

    async def wait_for(self, count: int) -> None:
        """Wait until the consumer has consumed `count` messages."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"%d\n" % count)
        async with asyncio.timeout(_ALL_CONSUMED_S):
            answer = await self._process.stdout.readline()
        assert answer == b"done\n", "the consumer failed"

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
