"""Turn one seed into one result: simulate, judge, describe.

`simulate` runs in this process. `forked` runs many seeds, each in its own process, forked off here:
no seed sees what another left, and dead parts of a simulation are never torn down.
"""

import gc
import os
import pickle
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.checks.verdict import ORDERED, SIMULATED, Outcome, judge
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.steps import count_steps, read_steps
from fmqsim.report.story import describe
from fmqsim.scenario.scene import Focus, draw
from fmqsim.scenario.world import World

_mortal: list[object] = []
"""Not empty: this process ends with its simulation; objects in here are never torn down."""
_charging: list[object] = []
"""Not empty: long turns take time and fail a seed."""
TOO_LONG_S: Final = 120
"""Seconds of CPU time after which a simulation counts as a livelock and is killed."""


def charge_for_turns() -> None:
    """Let the simulations of this process, and of those forked off, charge for long turns."""
    if not _charging:
        _charging.append(count_steps())


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one seed."""

    seed: int
    outcome: Outcome
    broken: tuple[str, ...] = ()  # checks, e.g. "I2"; "bug" for an uncaught error
    findings: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()  # why it is unknown
    counts: Mapping[str, int] = field(default_factory=dict)
    story: str = ""
    trace_hash: str = ""
    virtual_s: float = 0.0
    cpu_s: float = 0.0


def simulate(
    seed: int, *, trace: Callable[[str], object] | None = None, focus: Focus | None = None
) -> Result:
    """Run one seed in this process and judge it. `trace` gets every line of the trace."""
    before = time.process_time()
    scene = draw(seed, focus)
    loop = SimLoop(seed, shuffle=scene.shuffle)
    loop.on_note = trace
    if _charging:
        loop.charge_for(read_steps)
    world = World(scene, loop)
    try:
        loop.run_until_complete(world.run())
    except Exception as error:  # noqa: BLE001 - whatever it is, this seed has failed
        loop.problems.append(f"the simulation broke off: {error!r}\n{traceback.format_exc()}")
    result = _judged(world, seed)
    cpu_s = time.process_time() - before
    if _mortal:
        _mortal.append(world)
    else:
        bury(loop)
    return Result(**{**result, "cpu_s": cpu_s})


def _judged(world: World, seed: int) -> dict[str, Any]:
    loop = world.loop
    bugs = [*loop.problems, *(f"a client raised {bug!r}" for bug in world.traffic.bugs)]
    limits = SIMULATED if world.scene.ordered is None else ORDERED
    verdict = judge(world.history.events, world.journals(), limits)
    outcome = Outcome.BROKEN if bugs else verdict.outcome
    findings = tuple(map(str, verdict.findings))
    broken = tuple(sorted({finding.check.name for finding in verdict.findings}))
    if bugs:
        broken = (*broken, "bug")
    story = describe(world, verdict, bugs) if outcome is Outcome.BROKEN else ""
    return {
        "seed": seed,
        "outcome": outcome,
        "broken": broken,
        "findings": (*findings, *bugs),
        "reasons": verdict.reasons,
        "counts": dict(verdict.counts),
        "story": story,
        "trace_hash": loop.trace_hash(),
        "virtual_s": loop.now,
    }


def bury(loop: SimLoop) -> None:
    """Release the dead processes silently: their cleanup has no effect any more."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        loop.close()
        gc.collect()
    finally:
        sys.unraisablehook = hook


# ---- many


@dataclass(slots=True)
class _Child:
    seed: int
    pid: int
    output: bytearray


def forked(
    seeds: Iterable[int], jobs: int, run: Callable[[int], Any] = simulate
) -> Generator[Any, None, None]:
    """Yield `run(seed)` for each seed, in a process each, `jobs` at a time, as they finish.

    A process that returns nothing is a failed seed, too.
    """
    waiting, children = iter(seeds), dict[int, _Child]()
    gc.collect()
    gc.freeze()
    try:
        while True:
            while len(children) < jobs and (seed := next(waiting, None)) is not None:
                read, child = _fork(seed, run)
                children[read] = child
            if not children:
                return
            yield from _collect(children)
    finally:
        for read, child in children.items():
            os.kill(child.pid, signal.SIGKILL)
            os.close(read)
            os.waitpid(child.pid, 0)
        gc.unfreeze()


def _fork(seed: int, run: Callable[[int], Any]) -> tuple[int, _Child]:
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _in_child(seed, run, write)
    os.close(write)
    return read, _Child(seed, pid, bytearray())


def _in_child(seed: int, run: Callable[[int], Any], write: int) -> None:
    """Run the seed and send its result. Never returns, and never cleans up."""
    gc.disable()  # what one seed leaves behind goes with its process
    _mortal.append("a process of a seed")
    resource.setrlimit(resource.RLIMIT_CPU, (TOO_LONG_S, TOO_LONG_S))
    try:
        output = pickle.dumps(run(seed))
    except BaseException:  # noqa: BLE001 - it must not go on as a second parent
        output = pickle.dumps(_failed(seed, traceback.format_exc()))
    try:
        with open(write, "wb", closefd=False) as pipe:
            pipe.write(output)
    finally:
        os._exit(0)


def _collect(children: dict[int, _Child]) -> Iterator[Any]:
    ready, _, _ = select.select(list(children), [], [], 1.0)
    for read in ready:
        data = os.read(read, 1 << 20)
        children[read].output += data
        if not data:
            child = children.pop(read)
            os.close(read)
            _, status = os.waitpid(child.pid, 0)
            if child.output:
                yield pickle.loads(bytes(child.output))
            else:
                yield _failed(child.seed, f"its process ended: {_reason(status)}")


def _reason(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"status {os.WEXITSTATUS(status)}"


def _failed(seed: int, reason: str) -> Result:
    return Result(seed, Outcome.BROKEN, ("bug",), (reason,), story=f"seed {seed}: {reason}")
