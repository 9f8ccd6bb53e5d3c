"""Simulated machines and the processes that run on them.

A `Node` is a machine: it has a name and clocks that drift and jump, and it survives a crash of the
program. A `Process` is one incarnation of the program on a node. After a process dies, its code
never runs again: its callbacks are dropped, and its tasks are kept until the simulation is over, so
that no `finally` and no `__aexit__` runs. Code that still runs in the same call stack (an `except`
on the way out of `Lifecycle.fatal`) must have no effect: every adapter starts with `Process.check`.

A process is frozen in two ways: `pause` (SIGSTOP: no thread runs, nothing in the process answers)
and `wedge` (only the event loop stands still: threads of libraries go on, ZooKeeper's session
lives).
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

WALL_START_MS: Final = 1_790_000_000_000
"""The wall clock at the start of a simulation: some day in 2026."""


class Crashed(BaseException):
    """Raised in a dead process, so that its code does not go on."""


class Process:
    """One incarnation of the program on a node."""

    def __init__(self, node: "Node", incarnation: int) -> None:
        self.node = node
        self.incarnation = incarnation
        self.alive = True
        self.ended = ""  # how: "" while it lives, "done", or why it died
        self.error: BaseException | None = None  # what its main coroutine raised
        self.context: Context = copy_context()
        self.context.run(current.set, self)
        self._on_death: list[Callable[[], None]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._purge_at = 256

    def __repr__(self) -> str:
        return f"{self.node.name}#{self.incarnation}"

    def check(self) -> None:
        """Raise `Crashed` if the process is dead; every adapter calls this first."""
        if not self.alive:
            raise Crashed(f"{self} is dead")

    def on_death(self, callback: Callable[[], None]) -> None:
        """Call back, outside any node, when this process ends in any way."""
        self._on_death.append(callback)

    def owns(self, task: "asyncio.Task[Any]") -> None:
        """Keep a reference to a task, so that the garbage collector never tears it down."""
        tasks = self._tasks
        tasks.append(task)
        if len(tasks) > self._purge_at:
            tasks[:] = [t for t in tasks if not t.done()]
            self._purge_at = 2 * len(tasks) + 256

    def die(self, reason: str) -> None:
        """End the process now; use `Node.crash` or `Node.exit`."""
        self.alive, self.ended = False, reason
        for task in self._tasks:
            asyncio.tasks._unregister_task(task)  # no task may wait for it, or cancel it
        callbacks, self._on_death = self._on_death, []
        for callback in callbacks:
            callback()


current: ContextVar[Process | None] = ContextVar("current", default=None)
"""The process that the running code belongs to; None = the world outside."""


class Handle:
    """A scheduled callback; see `asyncio.Handle` and `asyncio.TimerHandle`."""

    __slots__ = ("args", "callback", "context", "gone", "process", "when_s")

    def __init__(
        self,
        process: Process | None,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        when_s: float,
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.context = context
        self.when_s = when_s  # by the clock of whoever asked
        self.gone = False

    def cancel(self) -> None:
        """See `asyncio.Handle`."""
        self.gone = True

    def cancelled(self) -> bool:
        """See `asyncio.Handle`."""
        return self.gone

    def when(self) -> float:
        """See `asyncio.TimerHandle`."""
        return self.when_s


class NodeLoop(Protocol):
    """What a node needs of the simulated event loop (`SimLoop`)."""

    now: float
    random: Random
    nodes: dict[str, "Node"]
    graveyard: list[Process]

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        ...

    def create_task(
        self, coro: Coroutine[Any, Any, T], *, context: Context | None = None
    ) -> "asyncio.Task[T]":
        """See `asyncio.AbstractEventLoop`."""
        ...

    def release(self, held: list[Handle]) -> None:
        """Run the callbacks that were held while their node stood still."""
        ...

    def at_world(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Run a callback outside any node after `delay_s` of world time."""
        ...


class Node:
    """A machine: its processes die and start again, its clocks and its name stay."""

    def __init__(self, loop: "NodeLoop", name: str, *, drift: float = 1.0) -> None:
        self.name = name
        self.process: Process | None = None
        self.incarnation = 0
        self.paused = False
        self.wedged = False
        self.busy = False  # the event loop is in a long callback
        self.drift = drift
        self.held: list[Handle] = []  # what could not run while it stood still
        self.on_stand: list[Callable[[], None]] = []  # called when `paused` or `wedged` changed
        self._loop = loop
        self._wall_ms = WALL_START_MS
        self._since = (loop.now, loop.random.uniform(10, 10_000))  # (world's, our) seconds
        loop.nodes[name] = self

    def __repr__(self) -> str:
        return self.name

    @property
    def alive(self) -> bool:
        """Whether a process runs on the machine."""
        return self.process is not None

    @property
    def frozen(self) -> bool:
        """Whether the machine's event loop stands still."""
        return self.paused or self.wedged

    # ---- clocks

    def monotonic(self) -> float:
        """Seconds of the machine's monotonic clock.

        It drifts, does not jump, and goes on while the machine is frozen.
        """
        world, ours = self._since
        return ours + (self._loop.now - world) * self.drift

    def in_world(self, ours: float) -> float:
        """Return the world time at which the machine's monotonic clock will show `ours`."""
        world, since = self._since
        return world + (ours - since) / self.drift

    def wall_ms(self) -> float:
        """Milliseconds since 1970 on the machine's wall clock, which drifts and jumps."""
        return self._wall_ms + self._loop.now * self.drift * 1000

    def jump_wall(self, ms: float) -> None:
        """Move the wall clock by `ms`, as if a person had set it."""
        self._wall_ms += int(ms)

    # ---- lives

    def start(self, main: Callable[[Process], Coroutine[Any, Any, Any]]) -> Process:
        """Start a process whose main coroutine is `main(process)`."""
        assert self.process is None, f"{self.name} runs already"
        self.incarnation += 1
        process = self.process = Process(self, self.incarnation)
        self.paused = self.wedged = self.busy = False
        self.held.clear()
        self._loop.note(f"{process} starts")
        task = self._loop.create_task(main(process), context=process.context.copy())
        task.add_done_callback(lambda task: self._main_ended(process, task), context=copy_context())
        return process

    def _main_ended(self, process: Process, task: "asyncio.Task[Any]") -> None:
        if not process.alive:
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        process.error = error
        self._end("done" if error is None else f"{type(error).__name__}: {error}")

    def crash(self, reason: str) -> None:
        """Kill the process: kill -9, power cut, `Lifecycle.fatal`."""
        if self.process is not None:
            self._end(reason)

    def _end(self, reason: str) -> None:
        process = self.process
        assert process is not None
        self.process = None
        self.paused = self.wedged = self.busy = False
        self.held.clear()
        self._loop.note(f"{process} ends: {reason}")
        self._loop.graveyard.append(process)
        process.die(reason)

    def on_crash(self, callback: Callable[[], None]) -> None:
        """Call back once, outside any node, when the running process ends."""
        assert self.process is not None, f"nothing runs on {self.name}"
        self.process.on_death(callback)

    # ---- standing still

    def pause(self) -> None:
        """Stop all threads of the process, as SIGSTOP does."""
        self._stand(paused=True, wedged=self.wedged)

    def wedge(self) -> None:
        """Block the process's event loop; its libraries' threads go on."""
        self._stand(paused=self.paused, wedged=True)

    def resume(self) -> None:
        """Let the process go on; callbacks that were held back run now, in order."""
        self._stand(paused=False, wedged=False)

    def _stand(self, *, paused: bool, wedged: bool) -> None:
        before = (self.paused, self.wedged)
        self.paused, self.wedged = paused, wedged
        if before != (paused, wedged):
            self._loop.note(f"{self.name} paused={paused} wedged={wedged}")
            for callback in self.on_stand:
                callback()
        self._release()

    def work(self, seconds: float) -> None:
        """Hold all callbacks for a time, as if the last one took it."""
        self.busy = True
        self._loop.at_world(seconds, self._done, self.process)

    def _done(self, process: Process) -> None:
        if self.process is process:
            self.busy = False
            self._release()

    def _release(self) -> None:
        if self.held and not (self.frozen or self.busy):
            held, self.held = self.held, []
            self._loop.release(held)
