"""Event loop of a simulation: virtual time, one seed, many machines.

Every part of asyncio that the shells use works on it (tasks, groups, timeouts, events, queues);
there are no threads, sockets or signals. Time advances only when nothing is left to do at the
present moment, and then to the next timer. A callback belongs to the process in whose context it
was created: it is dropped if that process is dead, held back while its machine is frozen, and
`time()` shows it that machine's clock.

The loop is deterministic: tasks and futures hash by a running number (a `set` of them is iterated
in the same order every time), the garbage collector is off while the loop runs, and all randomness
comes from `random`. `note` feeds the trace; equal seeds give equal `trace_hash()`.

With `charge_for` the machine of a process whose callback made many steps (`engine.steps`) stands
still as long as they take, like a real event loop: its timers are late, and its lease may be over.
"""

import asyncio
import gc
import heapq
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from hashlib import blake2b
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fmqsim.engine.node import Crashed, Handle, Node, Process, current
from fmqsim.engine.steps import STEP_S
from fmqsim.engine.tasks import SimFuture, SimTask

T = TypeVar("T")
_TURN_S: Final = 2e-6
"""Seconds that one turn of the loop takes, so that a busy loop sees time pass."""
FREE_STEPS: Final = 1000
"""Steps of a callback that take no time beyond `_TURN_S`."""
MOST_STEPS: Final = 5000
"""Steps of a callback that are a bug: 5 ms of the event loop."""
_LIVELOCK: Final = 200_000
"""Callbacks without a timer coming due after which the loop reports a livelock."""


class Stuck(Exception):
    """The main coroutine cannot finish: nothing is scheduled, or time does not advance."""


if TYPE_CHECKING:
    _Base = asyncio.SelectorEventLoop  # it lacks nothing; ours lacks what needs a real machine
else:
    _Base = asyncio.AbstractEventLoop


class SimLoop(_Base):
    """An event loop in virtual time. `now` is world time in seconds since the start."""

    def __init__(self, seed: int = 0, *, shuffle: bool = False) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.nodes: dict[str, Node] = {}
        self.graveyard: list[Process] = []
        self.problems: list[str] = []  # uncaught errors: bugs
        self.on_note: Callable[[str], object] | None = None  # gets every line of the trace
        self.turns = 0
        self._shuffle = Random(seed) if shuffle else None
        self._hash = blake2b(digest_size=8)
        self._ready: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        self._sequence = count()
        self.next_number = count(1).__next__  # hashes of tasks and futures
        self._process: Process | None = None  # whose callback runs now
        self._world = copy_context()
        self._world.run(current.set, None)
        self._running = self._closed = self._stop = False
        self._still = 0
        self._steps: Callable[[], int] | None = None
        self.longest_turn = 0  # in steps

    def charge_for(self, steps: Callable[[], int]) -> None:
        """Let long callbacks take time. `steps` rises by one at each call, and with each step."""
        self._steps = steps

    # ---- time

    def time(self) -> float:
        """Return the clock of the calling code's machine, or world time outside any machine."""
        process = self._process
        return self.now if process is None else process.node.monotonic()

    @property
    def now_ms(self) -> float:
        """World time in milliseconds."""
        return self.now * 1000

    # ---- the trace

    def note(self, text: str) -> None:
        """Add a line to the trace, which two runs of one seed must share."""
        line = f"{self.now:.6f} {text}\n"
        self._hash.update(line.encode())
        if self.on_note is not None:
            self.on_note(line)

    def trace_hash(self) -> str:
        """Return a hash of all notes so far, of the number of callbacks run and of the time."""
        final = self._hash.copy()
        final.update(f"{self.turns} {self.now!r}".encode())
        return final.hexdigest()

    # ---- what adapters use

    def at_world(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Run a callback outside any node after `delay_s` of world time, for any caller."""
        return self.at_time(self.now + delay_s, callback, *args)

    def at_time(self, when: float, callback: Callable[..., object], *args: Any) -> Handle:
        """Run a callback outside any node at world time `when`; equal times run in order."""
        handle = Handle(None, callback, args, self._world, when)
        heapq.heappush(self._timers, (when, next(self._sequence), handle))
        return handle

    def on_node(self, process: Process, callback: Callable[..., object], *args: Any) -> Handle:
        """Run a callback soon as `process`.

        It never runs if the process is dead by then, and runs later if the process is frozen.
        """
        handle = Handle(process, callback, args, process.context.copy(), self.now)
        self._ready.append(handle)
        return handle

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Create a task that belongs to `process`."""
        return self.create_task(work, context=process.context.copy())

    def release(self, held: list[Handle]) -> None:
        """Run the callbacks held back on a machine that resumes, in order."""
        self._ready.extend(held)

    # ---- what asyncio uses

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        """See `asyncio.AbstractEventLoop`."""
        if context is None:
            context, process = copy_context(), self._process
        else:
            process = context.get(current)
        handle = Handle(process, callback, args, context, 0.0)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """See `asyncio.AbstractEventLoop`; `delay` is by the caller's clock."""
        process = self._process
        if process is None:
            at = when = self.now + delay
        else:
            node = process.node
            when = node.monotonic() + delay
            at = node.in_world(when)
        handle = Handle(process, callback, args, context or copy_context(), when)
        heapq.heappush(self._timers, (at, next(self._sequence), handle))
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Handle:
        """See `asyncio.AbstractEventLoop`; `when` is by the caller's clock."""
        process = self._process
        handle = Handle(process, callback, args, context or copy_context(), when)
        at = when if process is None else process.node.in_world(when)
        heapq.heappush(self._timers, (at, next(self._sequence), handle))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        """See `asyncio.AbstractEventLoop`."""
        return SimFuture(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[T]":
        """See `asyncio.AbstractEventLoop`; the task belongs to its context's process."""
        if name is None:
            name = "task"  # the default would count, beyond one simulation
        task: SimTask[T] = SimTask(coro, loop=self, name=name, context=context)
        process = self._process if context is None else context.get(current)
        if process is not None:
            process.owns(task)
        return task

    def get_debug(self) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """See `asyncio.AbstractEventLoop`."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep an unhandled error in `problems`, unless its process is dead."""
        error = context.get("exception")
        if isinstance(error, Crashed) or self._closed:
            return
        where = "the world" if self._process is None else repr(self._process)
        problem = f"{where}: {context.get('message')}: {error!r}"
        self.note(problem)
        self.problems.append(problem)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """See `asyncio.AbstractEventLoop`."""
        self.call_exception_handler(context)

    def set_exception_handler(self, handler: Any) -> None:
        """See `asyncio.AbstractEventLoop`: there is only one."""

    def set_task_factory(self, factory: Any) -> None:
        """See `asyncio.AbstractEventLoop`: there is only one."""

    def is_running(self) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        return self._running

    def is_closed(self) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        return self._closed

    def stop(self) -> None:
        """See `asyncio.AbstractEventLoop`."""
        self._stop = True

    def close(self) -> None:
        """See `asyncio.AbstractEventLoop`; processes in the graveyard fall silent first."""
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    async def shutdown_asyncgens(self) -> None:
        """See `asyncio.AbstractEventLoop`: generators end with the task that held them."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """See `asyncio.AbstractEventLoop`: there are no threads."""

    # ---- running

    def run_until_complete(self, future: Any) -> Any:
        """Run until `future` is done and return its result. Raises `Stuck` if it never can be."""
        assert not self._running
        main = asyncio.ensure_future(future, loop=self)
        main.add_done_callback(lambda _: self.stop())
        self.run_forever()
        if not main.done():
            raise RuntimeError("the loop was stopped before its main coroutine was done")
        return main.result()

    def run_forever(self) -> None:
        """Run until `stop`."""
        self._running, self._stop = True, False
        collects, hooks = gc.isenabled(), sys.get_asyncgen_hooks()
        gc.disable()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finish_generator)
        events._set_running_loop(self)
        try:
            self._run()
        finally:
            events._set_running_loop(None)
            self._running = False
            sys.set_asyncgen_hooks(*hooks)
            if collects:
                gc.enable()

    def _finish_generator(self, generator: Any) -> None:
        process = current.get()
        if process is None or process.alive:
            self.create_task(generator.aclose())

    def _run(self) -> None:
        """Run turn by turn. Half of a simulation's time is spent in and just below this loop."""
        ready, timers, pop, steps = self._ready, self._timers, heapq.heappop, self._steps
        while not self._stop:
            if not ready:
                self._advance()
            if timers and timers[0][0] <= self.now:
                now, self._still = self.now, 0
                while timers and timers[0][0] <= now:
                    ready.append(pop(timers)[2])
            if self._shuffle is not None and len(ready) > 1:
                self._mix()
            number = len(ready)
            self.turns += number
            self.now += _TURN_S
            self._still += number
            if self._still > _LIVELOCK:
                callback = ready[0].callback
                raise Stuck(f"at {self.now:.3f} s something turns in a circle: {callback!r}")
            for _ in range(number):
                handle = ready.popleft()
                if handle.gone:
                    continue
                process = handle.process
                if process is not None:
                    if not process.alive:
                        continue
                    node = process.node
                    if node.paused or node.wedged or node.busy:
                        node.held.append(handle)
                        continue
                self._process = process
                before = 0 if steps is None else steps()
                try:
                    handle.context.run(handle.callback, *handle.args)
                except (SystemExit, KeyboardInterrupt, Stuck):
                    raise
                except BaseException as error:  # noqa: BLE001 - reported by the loop, as asyncio does
                    message = f"error in callback {handle.callback!r}"
                    self.call_exception_handler({"message": message, "exception": error})
                if steps is not None and (made := steps() - before - 1) > FREE_STEPS:
                    self._charge(handle, made)
            self._process = None

    def _charge(self, handle: Handle, made: int) -> None:
        process = self._process
        if process is None or not process.alive:
            return
        self.longest_turn = max(self.longest_turn, made)
        self.note(f"{process} a turn of {made} steps")
        if made > MOST_STEPS:
            owner = getattr(handle.callback, "__self__", None)
            work = owner.get_coro() if isinstance(owner, asyncio.Task) else handle.callback
            name = getattr(work, "__qualname__", type(work).__name__)
            self.problems.append(f"{process}: a turn of {made} steps, at most {MOST_STEPS}: {name}")
        process.node.work(made * STEP_S)

    def _advance(self) -> None:
        """Advance to the next timer: nothing is left to do at the present moment."""
        timers = self._timers
        while timers and timers[0][2].gone:
            heapq.heappop(timers)
        if not timers:
            raise Stuck(f"at {self.now:.3f} s nothing is left to do, and it is not done")
        if timers[0][0] > self.now:
            self.now = timers[0][0]

    def _mix(self) -> None:
        """Shuffle the order of the processes; callbacks of one process stay in order."""
        assert self._shuffle is not None
        by_process: dict[Process | None, list[Handle]] = {}
        for handle in self._ready:
            by_process.setdefault(handle.process, []).append(handle)
        if len(by_process) == 1:
            return
        groups = list(by_process.values())
        self._shuffle.shuffle(groups)
        self._ready.clear()
        for group in groups:
            self._ready.extend(group)
