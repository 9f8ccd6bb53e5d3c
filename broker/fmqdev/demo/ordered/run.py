"""The story: a change log copied through a chain of three groups while brokers die in turn.

    make the source → send ∥ apply → six times: kill -9 the master, then the slave, of the group
    that takes the sends → sends go on in another group → look into the dead broker's journal →
    start it again → the rest → stop in order → judge: target equal to source row by row, order
    kept, all that was acknowledged on two disks

`run_ordered_demo` does all of this; it leaves the cluster's folder, and no process.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import fmqclient
from fmqclient.client import Client
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqdev.demo.display import Outcome, Show
from fmqdev.demo.folder import clear_folder, lock_folder
from fmqdev.demo.ordered.changes import (
    ALL,
    count_rows,
    differing_rows,
    make_source,
    make_target,
)
from fmqdev.demo.ordered.copying import Applying, Sending
from fmqdev.demo.ordered.stored import StoredOffsets
from fmqdev.demo.ordered.verdict import Copied, Kill, judge_copy, lacking
from fmqdev.demo.run import FSYNC_AND_SYNC, compare_groups
from fmqdev.demo.traffic import now_ms
from fmqdev.demo.verdict import longest_pause
from fmqdev.demo.waiting import TIMEOUT_S, wait_caught_up, wait_until
from fmqdev.folder_lock import lock_cluster

TOPIC: Final = "changes"
ROLES: Final = ("master", "slave") * 3
"""Who is killed, one after the other, of the group that takes the sends then."""

_SECONDS_PER_KILL: Final = 5.0
_AFTER_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedReport(Outcome):
    """The results of a run."""

    total: int
    rows: int
    again: int  # deliveries of what the target had
    segments: int
    kills: list[Kill]


async def run_ordered_demo(directory: Path, show: Show, *, messages: int = ALL) -> OrderedReport:
    """Run the demo in `directory`, emptied first. Raises `FmqError` if it cannot go on."""
    with lock_folder(directory):
        async with lock_cluster(directory):
            clear_folder(directory)
        return await _run(directory, show, messages)


async def _run(directory: Path, show: Show, messages: int) -> OrderedReport:
    source, target = directory / "source.db", directory / "target.db"
    options = ClusterOptions(cluster="demo", groups=3, policy=FSYNC_AND_SYNC)
    cluster = DevCluster(directory, options)
    show.step("starting ZooKeeper and three groups, each a master and a slave: seven processes")
    async with cluster:
        show.step(f"up: {cluster.url}; logs and data in {cluster.directory}")
        total = await asyncio.to_thread(make_source, source, messages)
        await asyncio.to_thread(make_target, target)
        show.step(f"source: {count_rows(source)} rows of weather, a log of {total:,} changes")
        copy = _Copy(cluster, show, source, target, total)
        await copy.run()
        show.step("stopping in order")
    show.step("comparing the tables, and the journals of masters and slaves")
    compared = compare_groups(cluster)
    findings = judge_copy(copy.copied()) + [one.finding for one in compared if one.finding]
    return OrderedReport(
        total=total,
        rows=count_rows(target),
        again=copy.applying.again,
        segments=len({one.segment for one in copy.sending.acked}),
        kills=copy.kills,
        findings=findings,
        seconds=show.seconds,
        directory=directory,
    )


class _Copy:
    """One run, while the cluster is up."""

    def __init__(
        self, cluster: DevCluster, show: Show, source: Path, target: Path, total: int
    ) -> None:
        self._cluster = cluster
        self._show = show
        self._source, self._target, self._total = source, target, total
        self._topic_id = 0
        pace = total / (len(ROLES) * _SECONDS_PER_KILL)
        self.sending = Sending(TOPIC, self._share(2), pace)
        self.applying = Applying(TOPIC, target)
        self.kills: list[Kill] = []

    async def run(self) -> None:
        """Run all that happens while changes flow."""
        async with fmqclient.connect(self._cluster.url, name="demo") as client:
            groups = self._cluster.group_names
            topic = await client.admin().ordered.create(TOPIC, groups)
            self._topic_id = topic.id
            self._show.step(
                f"copying {self._total:,} changes through the ordered topic {TOPIC}, a chain over "
                f"{', '.join(groups)}; each acknowledged change is on the disks of both brokers"
            )
            with self._show.progress():
                async with self._traffic(client) as sender:
                    for number, role in enumerate(ROLES):
                        await self._kill_and_return(number, role)
                    self.sending.allow(self._total)
                    await sender
                    self._show.step("everything is sent; the target applies the rest")
                    await self._until(
                        lambda: self.applying.applied >= self._total, "the last change"
                    )
                    self.applying.stop.set()
        await wait_caught_up(self._cluster)

    @asynccontextmanager
    async def _traffic(self, client: Client) -> AsyncIterator["asyncio.Task[None]"]:
        """Run sender, target and progress; they end with the block, even on failure."""
        async with asyncio.TaskGroup() as tasks:
            shown = tasks.create_task(self._show_progress())
            tasks.create_task(self.applying.run(self._cluster.url))
            yield tasks.create_task(self.sending.run(client, self._source))
            shown.cancel()

    async def _show_progress(self) -> None:
        while True:
            self._show.flow(len(self.sending.acked), self.applying.applied)
            await asyncio.sleep(0.1)

    def _share(self, parts: int) -> int:
        return self._total * parts // (len(ROLES) + 1)

    # ---- the story
    async def _kill_and_return(self, number: int, role: str) -> None:
        acked = self.sending.acked
        await self._until(lambda: len(acked) >= self._share(number + 1) * 9 // 10, "acks")
        group = acked[-1].group
        broker = await self._member(group, role)
        kill = Kill(broker, group, role, now_ms(), len(acked), acked[-1].segment)
        pid = self._cluster.pid(broker)
        self._cluster.kill(broker)
        self._show.step(f"kill -9 {pid}: {broker}, the {role} of {group}, which takes the sends")
        await self._until(lambda: acked[-1].segment > kill.segment, "sends in another group")
        self._show.step(
            f"sends go on in {acked[-1].group} (segment {acked[-1].segment}) "
            f"{(now_ms() - kill.killed_ms) / 1000:.1f} s after that"
        )
        read = self.applying.segments  # none yet, if nothing was delivered before the kill
        await self._until(lambda: read[-1:] > [kill.segment], "reads from there")
        await asyncio.sleep(_AFTER_S)
        self._measure(kill)
        kill.lacking = await asyncio.to_thread(
            self._lacking_on, broker, kill.acked_before, kill.group
        )
        self.kills.append(kill)
        self._cluster.start_broker(broker)
        await self._cluster.wait_healthy(within_s=TIMEOUT_S)
        self._show.step(f"{broker} is back, {group} is whole")
        self.sending.allow(self._share(number + 3))

    async def _member(self, group: str, role: str) -> str:
        master = (await self._cluster.groups.state(group)).master
        members = [plan.id for plan in self._cluster.group(group)]
        return next(m for m in members if (m == master) == (role == "master"))

    def _measure(self, kill: Kill) -> None:
        until_ms = now_ms()
        sends = [one.at_ms for one in self.sending.acked]
        kill.sends_pause_ms = longest_pause(sends, kill.killed_ms, until_ms)
        kill.reads_pause_ms = longest_pause(self.applying.applied_ms, kill.killed_ms, until_ms)

    def _lacking_on(self, broker: str, acked: int, group: str) -> list[str]:
        """Look whether the dead broker's disk has everything its group had acknowledged."""
        stored = StoredOffsets(self._cluster.brokers[broker].data, self._topic_id)
        return lacking(
            self.sending.acked[:acked], group, broker, lambda _, offset: offset in stored
        )

    # ---- waiting
    async def _until(self, happened: Callable[[], bool], what: str) -> None:
        await wait_until(happened, self._moved, what)

    def _moved(self) -> tuple[int, int]:
        return len(self.sending.acked), self.applying.applied

    # ---- the verdict
    def copied(self) -> Copied:
        """Return the copied changes to judge, once the cluster has stopped."""
        stored = {
            broker: StoredOffsets(plan.data, self._topic_id)
            for broker, plan in self._cluster.brokers.items()
        }
        on_one_disk = [
            text
            for broker, plan in self._cluster.brokers.items()
            for text in lacking(
                self.sending.acked, plan.group, broker, lambda b, offset: offset in stored[b]
            )
        ]
        return Copied(
            total=self._total,
            acked=self.sending.acked,
            refused=self.sending.refused,
            applied=self.applying.applied,
            misfits=self.applying.misfits,
            differences=differing_rows(self._source, self._target),
            segments_read=self.applying.segments,
            kills=self.kills,
            expected_kills=len(ROLES),
            on_one_disk=on_one_disk,
        )
