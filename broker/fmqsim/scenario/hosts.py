"""Machines with a purpose: one that runs a broker, one that runs a client.

Both start their program again when it has ended, as a supervisor would, unless they are held.
"""

from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, Final, Protocol

from e2e.history.cluster_events import Down, Ending, Refusal
from e2e.history.history import History
from e2e.traffic.ports import Door
from e2e.traffic.traffic import Traffic
from fmqbroker.app.broker import Broker, Ports
from fmqbroker.runtime.settings import BrokerSettings
from fmqcore.errors import FmqError
from fmqcore.ids import BrokerId
from fmqcore.zk.group_state import GroupState
from fmqport.coordination import Coordination
from fmqport.disk import DiskFailed, DiskFull
from fmqsim.adapters.clock import SimClock
from fmqsim.adapters.disk import Storage
from fmqsim.adapters.lifecycle import SimLifecycle
from fmqsim.adapters.transport import SimTransport
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.network import Network
from fmqsim.engine.node import Node, Process
from fmqsim.report.broker_watch import Watcher, WatchingProbe
from fmqsim.scenario.scene import Scene

_NOTICED_S: Final = 0.3
"""Seconds after `dead_after_ms` until a slave without power is out of the in-sync set.

A slave that is back by then is out of sync for a moment.
"""
_RESTART_S: Final = (0.2, 1.0)
Work = Callable[[Door], Awaitable[None]]


class HostWorld(Protocol):
    """What a machine needs from the world (`scenario.world.World`)."""

    scene: Scene
    loop: SimLoop
    network: Network
    history: History
    traffic: Traffic
    watcher: Watcher
    url: str

    def session(self, process: Process, timeout_ms: int) -> Coordination:
        """Return a ZooKeeper session of a process."""
        ...

    def state(self, group: str) -> GroupState:
        """Return a group's state as ZooKeeper's leader has it."""
        ...

    def record_ends(self, host: "BrokerHost", process: Process) -> None:
        """Record how far the host's journal goes now."""
        ...


class Host:
    """A node whose program is started again."""

    def __init__(self, world: HostWorld, name: str) -> None:
        drift = world.scene.weather.drift
        self.world = world
        self.name = name
        self.node = Node(world.loop, name, drift=1 + world.loop.random.uniform(-drift, drift))
        self.held = 0  # number of faults that hold it down
        self.lives = 0

    @property
    def wanted(self) -> bool:
        """Whether the program should run."""
        return self.held == 0

    def start(self) -> None:
        """Start the program, unless it runs or is held."""
        if not self.node.alive and self.wanted:
            self.lives += 1
            process = self.node.start(self.main)
            process.on_death(lambda: self._died(process))

    def hold(self) -> None:
        """Keep the program down from now on."""
        self.held += 1

    def let_go(self) -> None:
        """Undo one `hold`."""
        assert self.held > 0, f"{self.name} is held by no fault"
        self.held -= 1
        self.world.loop.at_world(self.world.loop.random.uniform(*_RESTART_S), self.start)

    def _died(self, process: Process) -> None:
        self.ended(process)
        if self.wanted:
            self.world.loop.at_world(self.world.loop.random.uniform(*_RESTART_S), self.start)

    def main(self, process: Process) -> Coroutine[Any, Any, None]:
        """Run the program."""
        raise NotImplementedError

    def ended(self, process: Process) -> None:
        """Handle the end of the program."""
        raise NotImplementedError


class BrokerHost(Host):
    """A broker's machine, with its disk."""

    def __init__(self, world: HostWorld, name: str, group: str) -> None:
        super().__init__(world, name)
        self.group = group
        self.settings = BrokerSettings(**world.scene.settings, group=group, broker=name)
        self.storage = Storage(world.loop, f"/{name}")
        self.lifecycle: SimLifecycle | None = None
        self.gone = False  # no member any more
        self.doubted_until_s = 0.0  # in sync by the state, maybe the state of the last incarnation
        self._how: Ending | None = None

    async def main(self, process: Process) -> None:
        """Run a broker on simulated ports."""
        world, loop = self.world, self.world.loop
        if BrokerId(self.name) in world.state(self.group).isr:
            self.doubt()
        self.lifecycle = SimLifecycle(loop, process)
        disk = self.storage.disk(process)
        ports = Ports(
            clock=SimClock(loop, process),
            transport=SimTransport(world.network, process),
            disk=disk,
            coordination=world.session(process, self.settings.session_timeout_ms),
            lifecycle=self.lifecycle,
        )
        await Broker(self._set_up(), ports, WatchingProbe(world.watcher, process)).run()
        await disk.close()

    def _set_up(self) -> BrokerSettings:
        """Return the settings of this incarnation; those that may change are drawn again."""
        grant_ms = self.settings.grant_ms
        dice = Random(f"{self.world.scene.seed}/{self.name}/{self.lives}")
        shorter = max(grant_ms // 4, 3 * self.settings.heartbeat_ms)
        changed = dice.choice((grant_ms, grant_ms, shorter))
        return self.settings.model_copy(update={"grant_ms": changed})

    def doubt(self, longer_s: float = 0.0) -> None:
        """Note that the broker may be in the in-sync set although it is behind, for a while."""
        noticed_s = self.settings.dead_after_ms / 1000 + _NOTICED_S
        until_s = self.world.loop.now + longer_s + noticed_s
        self.doubted_until_s = max(self.doubted_until_s, until_s)

    def stop(self) -> None:
        """Stop the broker with SIGTERM."""
        if self.node.alive and self.lifecycle is not None:
            self.lifecycle.ask_to_stop()

    def kill(self) -> None:
        """Kill the broker with SIGKILL."""
        self._end(Ending.KILLED)

    def cut_power(self) -> None:
        """Cut the machine's power; call `power_on` before it starts again."""
        self.world.network.dark.add(self.name)
        if not self.node.alive:  # its page cache goes all the same: checks must know
            now_ms = self.world.loop.now_ms
            down = Down(now_ms, self.name, self.group, Ending.POWER, Ending.POWER.value, -1)
            self.world.history.add(down)
        self._end(Ending.POWER)
        self.storage.cut_power()

    def power_on(self) -> None:
        """Allow the machine to start again."""
        self.world.network.dark.discard(self.name)

    def _end(self, how: Ending) -> None:
        self._how = how
        self.node.crash(how.value)
        self._how = None

    def ended(self, process: Process) -> None:
        """Write down how the broker ended."""
        world, reason = self.world, process.ended
        how = self._how or _ending(reason)
        journal = world.watcher.of(process).journal
        # While the journal is truncated, its disk may be ahead: then its durable end is unknown.
        known = journal if journal is not None and not journal.being_cut else None
        durable_end = int(known.durable_end) if known is not None else -1
        world.record_ends(self, process)
        event = Down(world.loop.now_ms, self.name, self.group, how, reason, durable_end)
        world.history.add(event)
        error = process.error
        if error is not None and _of(error, (DiskFailed, DiskFull)):
            pass  # it may start again when the disk works
        elif error is not None and _of(error, FmqError):
            world.history.add(Refusal(world.loop.now_ms, self.name, str(_first(error))))
        elif error is not None:
            world.loop.problems.append(f"{process}: {reason}: {_first(error)!r}")


class ClientHost(Host):
    """A client's machine. Its work is over when it ends by itself."""

    def __init__(self, world: HostWorld, name: str, work: Work) -> None:
        super().__init__(world, name)
        self._work = work
        self.done = False

    @property
    def wanted(self) -> bool:
        """Whether the work should run: until it is over."""
        return self.held == 0 and not self.done

    async def main(self, process: Process) -> None:
        """Do the work."""
        await self._work(self.door(process))

    def door(self, process: Process) -> Door:
        """Return the ports for a client on this machine."""
        world = self.world
        transport = SimTransport(world.network, process)
        return Door(world.url, transport, SimClock(world.loop, process))

    def kill(self) -> None:
        """Kill the client with SIGKILL."""
        if self.node.alive:
            self.node.crash("killed")
            self.world.traffic.died(self.name)

    def ended(self, process: Process) -> None:
        """Mark the work as done if it ended by itself."""
        if process.ended == "done":
            self.done = True
        elif process.error is not None:
            self.done = True
            self.world.loop.problems.append(f"{process}: {_first(process.error)!r}")


def _ending(reason: str) -> Ending:
    return Ending.STOPPED if reason == "done" else Ending.FATAL


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _of(error: BaseException, kind: type[FmqError] | tuple[type[FmqError], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_of(cause, kind) for cause in error.exceptions)
    return isinstance(error, kind)
