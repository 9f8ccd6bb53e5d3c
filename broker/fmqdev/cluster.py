"""A whole cluster of real processes on this machine: ZooKeeper, groups of brokers, faults.

For `fmq dev`, the demo, tests and the benchmark. `DevCluster` is used as an async context manager,
from the main thread: its processes end with this one whatever happens
(`fmqadapters.process.spawn`), unless `detach`. Leaves in its folder: `zookeeper/`, one folder per
broker with `data/` and `broker.log`, and `cluster.json`.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from fmqadapters.process.free_ports import free_ports
from fmqadapters.process.spawn import spawn
from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper
from fmqcore.zk.group_state import Mode
from fmqdev.broker_process import BrokerStatus, ask, broker_command, tail
from fmqdev.cluster_plan import ZOOKEEPER as ZOOKEEPER
from fmqdev.cluster_plan import (
    BrokerPlan,
    ClusterFile,
    ClusterOptions,
    Running,
    broker_names,
    group_configs,
    read_file,
    remove_cluster,
    write_file,
)
from fmqdev.folder_lock import lock_cluster
from fmqdev.group_nodes import Groups
from fmqdev.processes import Child, holders, is_locked, owner_of
from fmqdev.proxy import Link, Proxies
from fmqdev.start_wait import ClusterFailed as ClusterFailed
from fmqdev.start_wait import StartWait, Steps
from fmqproto.v1 import admin_pb2

_LAST_PORT: Final = 65_535


class DevCluster:
    """One cluster. Broker ids are `g1-0` (a master), `g1-1` (its slave), ..., `g2-0`, ..."""

    def __init__(
        self,
        directory: Path,
        options: ClusterOptions | None = None,
        *,
        detach: bool = False,
        report: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`report` gets a line whenever a start that takes long lacks something else."""
        self.directory = directory.absolute()
        self.options = options or ClusterOptions()
        self.brokers: dict[str, BrokerPlan] = {}
        self.zookeeper_links: dict[str, Link] = {}  # if proxied: broker → a ZooKeeper server
        self.broker_links: dict[str, Link] = {}  # if proxied: anybody → broker, by caller
        self._detach = detach
        self._report = report
        self._steps = Steps()
        self._children: dict[str, Child] = {}
        self._zookeeper: EmbeddedZooKeeper | None = None
        self._groups: Groups | None = None
        self._stack = ExitStack()

    @classmethod
    def attach(cls, directory: Path) -> "DevCluster | None":
        """Return the cluster that an earlier command left here, running or not; None if none."""
        known = read_file(directory)
        if known is None:
            return None
        cluster = cls(directory, replace(known.options, proxied=False), detach=True)
        if not known.options.zookeeper:
            folder = cluster.directory / ZOOKEEPER
            cluster._zookeeper = EmbeddedZooKeeper(folder, known.port_of(ZOOKEEPER), detach=True)
        cluster._plan([known.port_of(broker) for _, broker, _ in broker_names(known.options)])
        cluster._children = {p.name: _child(p) for p in known.processes}
        cluster._adopt()
        return cluster

    def _adopt(self) -> None:
        """Adopt brokers that were started by hand on this cluster's data directories."""
        away = {b.lock: b.id for b in self.brokers.values() if not self.alive(b.id)}
        for lock, child in holders(away).items():
            self._children[away[lock]] = child

    # ---- where it is
    @property
    def url(self) -> str:
        """The argument of `fmqclient.connect`: all brokers, masters first."""
        masters_first = sorted(self.brokers.values(), key=lambda b: b.id.rpartition("-")[2])
        return "fmq://" + ",".join(b.address for b in masters_first)

    @property
    def zookeeper_address(self) -> str:
        """The address of the ZooKeeper server, not of a proxy in front."""
        own = self._zookeeper
        return self.options.zookeeper if own is None else own.address

    @property
    def groups(self) -> Groups:
        """The groups in ZooKeeper; available once started."""
        assert self._groups is not None, "not started"
        return self._groups

    @property
    def group_names(self) -> list[str]:
        """The names of all groups."""
        return list(dict.fromkeys(plan.group for plan in self.brokers.values()))

    def group(self, name: str) -> list[BrokerPlan]:
        """Return the group's brokers, the configured master first."""
        return [b for b in self.brokers.values() if b.group == name]

    # ---- life
    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything and wait until all groups are whole. Raises `ClusterFailed`.

        On failure, what was started is stopped again. Another command that starts a cluster in this
        folder meanwhile is refused.
        """
        async with lock_cluster(self.directory):
            try:
                await self._start()
            except BaseException:
                await self.stop()
                raise

    def require_startable(self) -> ClusterFile | None:
        """Return what the folder holds from before. Raises `ClusterFailed` if it is not this."""
        known = read_file(self.directory)
        if known is not None:
            refuse_if_running(self.directory)
            if broker_names(known.options) != broker_names(self.options):
                shape = f"--groups {known.options.groups} --slaves {known.options.slaves}"
                raise ClusterFailed(
                    f"{self.directory} holds a cluster of another shape: start it with {shape}, "
                    f"or remove it and its data: fmq dev down --wipe --dir {self.directory}"
                )
        return known

    async def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        ports = self._ports(self.require_startable())
        await self._start_zookeeper(ports.pop(0))
        self._plan(ports)
        self._groups = Groups(self.zookeeper_address, self.options.cluster)
        for config in group_configs(self.options, self.brokers.values()):
            await self._groups.put_config(config)
        for broker in self.brokers:
            self.start_broker(broker)
        await self.wait_healthy()

    def _ports(self, known: ClusterFile | None) -> list[int]:
        """Return ZooKeeper's and the brokers' ports; those of an earlier run where still free."""
        names = [ZOOKEEPER, *(broker for _, broker, _ in broker_names(self.options))]
        before = [known.port_of(name) if known else 0 for name in names]
        if first := self.options.first_port:
            wanted = [before[0], *(old or first + n for n, old in enumerate(before[1:]))]
            before = [p if p <= _LAST_PORT else 0 for p in (wanted[0], first, *wanted[2:])]
        ports = free_ports(len(names), before)
        for name, old, port in zip(names, before, ports, strict=True):
            if old not in (0, port):
                self._report(f"port {old} is taken: {name} listens on {port}")
        return ports

    async def _start_zookeeper(self, port: int) -> None:
        if self.options.zookeeper:
            return
        folder = self.directory / ZOOKEEPER
        self._zookeeper = server = EmbeddedZooKeeper(folder, port, detach=self._detach)
        server.start()
        assert server.process is not None
        self._children[ZOOKEEPER] = Child.of(server.process)
        self._steps.follow(server.log, server.process.pid)
        self._write_file()

        async def missing() -> str:
            ready = await asyncio.to_thread(server.ready)
            return "" if ready else f"ZooKeeper on {server.address} is not up; see {server.log}"

        await self._wait(missing)

    def _plan(self, ports: Sequence[int]) -> None:
        proxies = self._stack.enter_context(Proxies()) if self.options.proxied else None
        for (group, broker, zone), port in zip(broker_names(self.options), ports, strict=True):
            folder = self.directory / broker
            folder.mkdir(exist_ok=True)
            plan = BrokerPlan(
                broker, group, zone, port, f"127.0.0.1:{port}", self.zookeeper_address, folder
            )
            if proxies is not None:
                self.broker_links[broker] = proxies.link(plan.listen, who=self._who_calls)
                servers, slash, root = self.zookeeper_address.partition("/")
                self.zookeeper_links[broker] = proxies.link(servers.split(",")[0])
                plan.address = self.broker_links[broker].address
                plan.zookeeper = self.zookeeper_links[broker].address + slash + root
            self.brokers[broker] = plan

    def _who_calls(self, port: int) -> str:
        """Return the broker whose process has this port; "" if none has (a client)."""
        alive = (broker for broker in self.brokers if self.alive(broker))
        return owner_of(port, {str(broker): self.pid(broker) for broker in alive})

    async def stop(self) -> None:
        """Stop all in order: masters, slaves, ZooKeeper. No process is left running."""
        try:
            await self.leave()
            masters = [b.id for b in self.brokers.values() if b is self.group(b.group)[0]]
            for names in (masters, [b for b in self.brokers if b not in masters], [ZOOKEEPER]):
                await asyncio.gather(
                    *(self._children[b].stop() for b in names if b in self._children)
                )
        finally:
            for child in self._children.values():
                child.kill()
            await asyncio.gather(*(child.ended(5) for child in self._children.values()))

    async def leave(self) -> None:
        """Let the cluster run on (if `detach`): end only what belongs to this process."""
        if self._groups is not None:
            await self._groups.close()
            self._groups = None
        self._stack.close()

    async def wipe(self) -> list[str]:
        """Remove all data, also from an ensemble that is not this cluster's. Stop it first.

        Returns what else is in its folder, which then stays.
        """
        if self.options.zookeeper:
            groups = Groups(self.options.zookeeper, self.options.cluster)
            try:
                await groups.forget_cluster()
            finally:
                await groups.close()
        return await asyncio.to_thread(remove_cluster, self.directory, self.options)

    @property
    def running(self) -> bool:
        """Whether any process of the cluster lives."""
        return any(child.alive() for child in self._children.values())

    @property
    def in_use(self) -> list[BrokerPlan]:
        """The brokers on whose data directory an unknown process works."""
        return [b for b in self.brokers.values() if not self.alive(b.id) and is_locked(b.lock)]

    # ---- one broker
    def start_broker(self, broker: str) -> None:
        """Start the broker's process; it must not be running."""
        plan = self.brokers[broker]
        assert broker not in self._children or not self._children[broker].alive()
        command = [*plan.under, *broker_command(self.options, plan)]
        process = spawn(
            command,
            plan.log,
            detach=self._detach,
            environment={**os.environ, **plan.environment},
        )
        self._children[broker] = Child.of(process)
        self._steps.follow(plan.log, process.pid)
        self._write_file()

    def kill(self, broker: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the broker's process."""
        self._children[broker].send(number)

    async def ended(self, broker: str, within_s: float = 30) -> bool:
        """Wait until the process has ended; False if it still runs after `within_s` seconds."""
        return await self._children[broker].ended(within_s)

    async def stop_broker(self, broker: str) -> bool:
        """Send SIGTERM and wait; return whether the process ended in order."""
        return await self._children[broker].stop()

    async def restart(self, broker: str) -> None:
        """Stop the broker in order if it runs, and start it again."""
        await self.stop_broker(broker)
        self.start_broker(broker)

    def pause(self, broker: str) -> None:
        """Send SIGSTOP: the process stays, but does nothing."""
        self.kill(broker, signal.SIGSTOP)

    def resume(self, broker: str) -> None:
        """Send SIGCONT."""
        self.kill(broker, signal.SIGCONT)

    def alive(self, broker: str) -> bool:
        """Whether the broker's process exists."""
        return broker in self._children and self._children[broker].alive()

    def pid(self, broker: str) -> int:
        """Return the id of the broker's last process."""
        return self._children[broker].pid

    # ---- looking
    async def status(self) -> list[BrokerStatus]:
        """Return every broker's status, asked at its own port, past any link."""
        return list(await asyncio.gather(*map(self._status, self.brokers.values())))

    async def broker_status(self, broker: str) -> admin_pb2.StatusReply | None:
        """Return one broker's status; None if it does not answer."""
        return (await self._status(self.brokers[broker])).reply

    async def _status(self, plan: BrokerPlan) -> BrokerStatus:
        return await ask(plan, self._children.get(plan.id))

    async def wait_healthy(
        self, groups: Sequence[str] | None = None, *, within_s: float | None = None
    ) -> None:
        """Wait until each group has its master serving and all its slaves in sync.

        Raises `ClusterFailed` naming what is missing: after `within_s`, or without it when there is
        no progress; at once when a broker has ended.
        """
        for name in groups or self.group_names:
            try:
                await self._wait(partial(self._missing, name), within_s)
            except ClusterFailed as error:
                if not all(self.alive(plan.id) for plan in self.group(name)):
                    raise  # it names the log of the one that has ended
                raise ClusterFailed("\n".join((str(error), *await self._reasons(name)))) from None

    async def wait_answers(self, broker: str) -> None:
        """Wait until the broker answers. Raises `ClusterFailed`, at once if it has ended."""
        plan = self.brokers[broker]

        async def missing() -> str:
            if await self.broker_status(broker) is not None:
                return ""
            self._check_alive(plan)
            return f"broker {broker} does not answer; see {plan.log}"

        await self._wait(missing)

    async def _wait(
        self, missing: Callable[[], Awaitable[str]], within_s: float | None = None
    ) -> None:
        limits = () if within_s is None else (within_s, within_s)
        await StartWait(self._steps, self._report, *limits).until(missing)

    def _check_alive(self, plan: BrokerPlan) -> None:
        if not self.alive(plan.id):
            raise ClusterFailed(
                f"broker {plan.id} has ended{self._how(plan.id)}; its log is {plan.log}:\n"
                f"{tail(plan.log)}"
            )

    def _how(self, broker: str) -> str:
        child = self._children.get(broker)
        popen = child.popen if child else None
        return f" with status {popen.returncode}" if popen else ""

    async def _missing(self, group: str) -> str:
        """Return what the group lacks to be whole; "" if nothing."""
        brokers = self.group(group)
        for plan in brokers:
            self._check_alive(plan)
        state, config = await self.groups.state(group), await self.groups.config(group)
        if state.mode is not Mode.MASTER:
            return (
                f"{group} is in mode {state.mode.value} ({state.reason or 'nothing decided yet'})"
            )
        if away := sorted({b.id for b in brokers} - state.isr - {state.master}):
            return f"{group}: {', '.join(away)} not in sync"
        reply = await self.broker_status(state.master)
        member = config.member(state.master)
        if reply is None or member is None or reply.permission != member.permission:
            reason = reply.reason if reply else "it does not answer"
            return f"{group}: master {state.master} does not serve all that it may: {reason}"
        return ""

    async def _reasons(self, group: str) -> list[str]:
        """Return what each of the group's brokers reports, and its log. Its figures may change."""
        brokers = self.group(group)
        found = await asyncio.gather(*map(self._status, brokers))
        reasons = []
        for plan, reply in ((broker.plan, broker.reply) for broker in found):
            reason = "it does not answer"
            if reply is not None:
                reason = reply.disk_full_reason or reply.unwritable_reason or reply.reason
            reasons.append(f"{plan.id}: {reason or 'no reason'}; its log is {plan.log}")
        return reasons

    def _write_file(self) -> None:
        ports: dict[str, int] = {b.id: b.port for b in self.brokers.values()}
        if self._zookeeper is not None:
            ports[ZOOKEEPER] = self._zookeeper.port
        running = [Running(n, ports[n], c.pid, c.born) for n, c in self._children.items()]
        write_file(self.directory, ClusterFile(self.options, running))


def refuse_if_running(directory: Path) -> None:
    """Raise `ClusterFailed` if a cluster, or one broker, runs in this folder."""
    known = DevCluster.attach(directory)
    if known is not None and (known.running or known.in_use):
        raise ClusterFailed(
            f"a cluster runs in {directory} already: name another folder with --dir, or end that "
            f"one: fmq dev down --dir {directory}"
        )


def _child(known: Running) -> Child:
    return Child(known.pid, known.born)
