"""A local cluster whose brokers serve metrics to Prometheus, with load to observe."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

import fmqclient
from e2e.dashboards.prometheus import Target
from fmqadapters.disk.files import FileDisk
from fmqadapters.process.clock import SystemClock
from fmqadapters.process.free_ports import free_ports
from fmqbroker.journal.journal import BatchDraft, Journal
from fmqbroker.runtime.settings import BrokerSettings
from fmqclient.client import Client
from fmqcore.batch.control import encode_offsets
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType
from fmqcore.errors import FmqError
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

TOPIC: Final = "orders"
CHANGES: Final = "changes"
"""An ordered topic."""
READERS: Final = "billing"
_HOST: Final = "127.0.0.1"
_GROUPS: Final = 63
"""Consumer groups, with names of 30 letters and 4 queues, that fill 16 KiB."""
_BURST: Final = 20
_PAUSE_S: Final = 0.05
_PROBE_S: Final = 2.0


class WatchedCluster(DevCluster):
    """A `DevCluster` each of whose brokers serves its pages."""

    def __init__(self, directory: Path, options: ClusterOptions) -> None:
        super().__init__(directory, options)
        self._pages: dict[str, str] = {}

    def _plan(self, ports: Sequence[int]) -> None:
        super()._plan(ports)
        plans = self.brokers.values()
        for plan, port in zip(plans, free_ports(len(plans)), strict=True):
            page = self._pages[plan.id] = f"{_HOST}:{port}"
            # The shell becomes the broker: signals reach it.
            plan.under = ("sh", "-c", f'exec "$@" --set http_listen={page}', "sh", *plan.under)

    def targets(self, prefix: str = "") -> list[Target]:
        """Return every broker's page."""
        return [Target(prefix + broker, page) for broker, page in self._pages.items()]


@asynccontextmanager
async def watched(directory: Path, options: ClusterOptions) -> AsyncIterator[WatchedCluster]:
    """Run a watched cluster with a topic."""
    async with WatchedCluster(directory, options) as cluster:
        async with fmqclient.connect(cluster.url) as client:
            await client.admin().create_topic(TOPIC, queues=4)
        yield cluster


@asynccontextmanager
async def load(cluster: WatchedCluster) -> AsyncIterator[None]:
    """Send, consume and probe meanwhile, whatever happens to brokers.

    With two groups or more there is an ordered topic, too.
    """
    async with fmqclient.connect(cluster.url) as client, asyncio.TaskGroup() as tasks:
        if len(cluster.group_names) > 1:
            await client.admin().ordered.create(CHANGES, cluster.group_names)
        running = [
            tasks.create_task(_send(client)),
            tasks.create_task(_read(client)),
            tasks.create_task(_probe([target.address for target in cluster.targets()])),
        ]
        try:
            yield
        finally:
            for task in running:
                task.cancel()


async def fill(cluster: DevCluster, count: int, size: int) -> None:
    """Store `count` messages of `size` bytes."""
    values, left = [bytes(size)] * min(count, max(1, (4 << 20) // max(size, 256))), count
    async with fmqclient.connect(cluster.url) as client, client.producer() as producer:
        while left:
            await producer.send_batch(TOPIC, values[:left])
            left -= min(left, len(values))


async def join(cluster: DevCluster) -> None:
    """Read one message from the start in a consumer group, and leave."""
    async with (
        fmqclient.connect(cluster.url) as client,
        client.consumer(TOPIC, group=READERS, start="earliest") as consumer,
        client.producer() as producer,
    ):
        await producer.send(TOPIC, b"the first")
        async for message in consumer:
            await message.ack()
            return


class _Ahead(SystemClock):
    def wall_ms(self) -> int:
        return super().wall_ms() + 24 * 3600 * 1000


class _Life:
    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    def fatal(self, reason: str) -> NoReturn:
        raise AssertionError(reason)


async def append_in_the_future(data_dir: Path) -> None:
    """Append to the journal of a stopped broker with a clock that is a day ahead."""
    settings = BrokerSettings(
        cluster="dev", group="g1", broker="g1-0", data_dir=str(data_dir), zookeeper="-"
    )
    disk = FileDisk(str(data_dir))
    journal = await Journal.open(disk, settings, _Ahead(), _Life())
    running = asyncio.create_task(journal.run())
    payload = encode_offsets({})
    journal.append(BatchDraft(BatchType.OFFSETS, payload, crc32c(payload)))
    await journal.wait_durable(journal.end)
    running.cancel()
    await asyncio.wait((running,))
    await journal.close()
    await disk.close()


async def begin_groups(cluster: DevCluster, share: float) -> None:
    """Start enough consumer groups to take `share` of the space in small segments."""
    async with fmqclient.connect(cluster.url) as client:
        for number in range(round(share * _GROUPS)):
            await client.admin().seek(f"{number:030}", TOPIC, "earliest")


async def _send(client: Client) -> None:
    async with client.producer() as producer:
        number = 0
        while True:
            values = [b"%d" % (number + at) for at in range(_BURST)]
            with suppress(FmqError):  # a broker is away: the next ones
                await producer.send_batch(TOPIC, values, keys=values)
            number += _BURST
            await asyncio.sleep(_PAUSE_S)


async def _read(client: Client) -> None:
    while True:
        try:
            async with client.consumer(TOPIC, group=READERS, start="earliest") as consumer:
                async for message in consumer:
                    message.ack_now()
        except FmqError:
            await asyncio.sleep(_PAUSE_S)


async def _probe(pages: Sequence[str]) -> None:
    """Ask the brokers whether they are ready, as a kubelet does."""
    while True:
        await asyncio.to_thread(_ask_all, pages)
        await asyncio.sleep(_PROBE_S)


def _ask_all(pages: Sequence[str]) -> None:
    for page in pages:
        with suppress(OSError), urllib.request.urlopen(f"http://{page}/readyz", timeout=5):
            pass
