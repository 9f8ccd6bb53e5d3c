"""The reconcile workers, one for each BrokerGroup: observe → plan → apply → status, again.

Level-triggered: whatever wakes a worker says nothing but "look". A round that fails is tried again
later and later; it never stops another group's. Rounds of many groups wait for one another only
for a place among the few that run at once.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog
from pydantic import ValidationError

from fmqoperator.actions import Requeue
from fmqoperator.plan import plan
from fmqoperator.resources import BrokerGroup
from fmqoperator.seen import Failure, Observation
from fmqoperator.shell.apply import Applier, Failed
from fmqoperator.shell.kube import Json, KubeError, Ref
from fmqoperator.shell.observe import Observer
from fmqoperator.shell.times import wall_ms
from fmqoperator.status import patch, status, unreadable, worth_writing

_log = structlog.get_logger()

Key = tuple[str, str]

AT_ONCE: Final = 8
RESYNC_S: Final = 30.0  # what nobody tells of (a lag, an end) is looked at so often
_QUIET_S: Final = 0.05  # a burst of changes makes one round
_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass(slots=True)
class Counts:
    """For Prometheus."""

    rounds: int = 0
    failed: int = 0
    actions: int = 0
    status_writes: int = 0
    longest_ms: int = 0


class Keeper:
    """All workers."""

    def __init__(self, observer: Observer, applier: Applier) -> None:
        self.observer = observer
        self.applier = applier
        self.counts = Counts()
        self.places = asyncio.Semaphore(AT_ONCE)
        self._workers: dict[Key, Worker] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Give the workers a home until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await asyncio.Event().wait()

    def know(self, key: Key, body: Json | None) -> None:
        """A group is there, or has changed; None: it is gone."""
        worker = self._workers.get(key)
        if body is None:
            if worker is not None:
                del self._workers[key]
                worker.end()
            return
        if worker is None:
            assert self._tasks is not None, "run first"
            worker = self._workers[key] = Worker(self, key)
            worker.task = self._tasks.create_task(worker.run(), name=f"group {key}")
        worker.learn(body)

    def wake(self, key: Key) -> None:
        """Something of this group may look different."""
        if worker := self._workers.get(key):
            worker.wake()

    @property
    def groups(self) -> int:
        """How many there are."""
        return len(self._workers)

    def stalled_s(self) -> float:
        """How long the group that waits longest has been waiting for the end of a round."""
        now_s = time.monotonic()
        due = [w.due_since for w in self._workers.values() if w.due_since is not None]
        return max((now_s - since for since in due), default=0.0)


class Worker:
    """Of one group."""

    def __init__(self, keeper: Keeper, key: Key) -> None:
        self.task: asyncio.Task[None] | None = None
        self.due_since: float | None = None  # monotonic: woken, and no round has ended since
        self._keeper = keeper
        self._key = key
        self._body: Json = {}
        self._wake = asyncio.Event()
        self._failures: tuple[Failure, ...] = ()
        self._in_a_row = 0
        self._complained = ""
        self._status_ms = 0
        self._watched: tuple[str, str] | None = None
        self._unwatch: Callable[[], None] = lambda: None

    # ---- what others say
    def learn(self, body: Json) -> None:
        """The resource as it is now. Its own status alone wakes nobody."""
        old, self._body = self._body, body
        if not old or _asks_for(old) != _asks_for(body):
            self.wake()

    def wake(self) -> None:
        """Look again."""
        self._wake.set()
        if self.due_since is None:
            self.due_since = time.monotonic()

    def end(self) -> None:
        """The resource is gone; what it owned goes by itself."""
        self._unwatch()
        if self.task is not None:
            self.task.cancel()

    # ---- life
    async def run(self) -> None:
        """Rounds, until cancelled."""
        pause_s = 0.0
        while True:
            try:
                async with asyncio.timeout(pause_s or None):
                    await self._wake.wait()
            except TimeoutError:
                self.wake()
            await asyncio.sleep(_QUIET_S)
            self._wake.clear()
            async with self._keeper.places:
                pause_s = await self._safely()
            if not self._wake.is_set():
                self.due_since = None

    async def _safely(self) -> float:
        """One round; how long to wait for the next. A bug is one group's, and is told."""
        begun, counts = time.monotonic(), self._keeper.counts
        counts.rounds += 1
        try:
            pause_s = await self._round()
        except KubeError as error:
            self._failures = (Failure("status", error.reason, str(error)),)
            pause_s = None
        except Exception as error:  # noqa: BLE001  # the others' groups must go on
            _log.error("round_broke", group="/".join(self._key), exc_info=error)
            self._failures = (Failure("operator", type(error).__name__, str(error)),)
            pause_s = None
        counts.longest_ms = max(counts.longest_ms, int((time.monotonic() - begun) * 1000))
        if pause_s is not None:
            self._in_a_row = 0
            return pause_s
        counts.failed += 1
        self._complain()
        self._in_a_row += 1
        return _RETRY_S[min(self._in_a_row, len(_RETRY_S)) - 1]

    def _complain(self) -> None:
        said = "; ".join(f"{f.what}: {f.message}" for f in self._failures)
        if said != self._complained:
            self._complained = said
            _log.warning("round_failed", group="/".join(self._key), why=said)

    async def _round(self) -> float | None:
        """None: an action failed."""
        body = self._body
        try:
            group = BrokerGroup.model_validate(body)
        except ValidationError as error:
            await self._write(unreadable(body, error, wall_ms()))
            return RESYNC_S
        self._watch(group)
        seen = await self._keeper.observer.look(group, self._failures)
        pause_s, failures = await self._act(group, body, seen)
        self._failures = failures
        await self._write(status(replace(seen, failures=failures)))
        if not failures:
            self._complained = ""
        return None if failures else pause_s

    async def _act(
        self, group: BrokerGroup, body: Json, seen: Observation
    ) -> tuple[float, tuple[Failure, ...]]:
        pause_s = RESYNC_S
        for action in plan(seen):
            if isinstance(action, Requeue):
                pause_s = min(pause_s, action.after_ms / 1000)
                continue
            self._keeper.counts.actions += 1
            try:
                await self._keeper.applier.do(group, body, action)
            except Failed as failed:
                return pause_s, (failed.failure,)
        return pause_s, ()

    async def _write(self, new: Json) -> None:
        """The status, if it says anything new."""
        old, now_ms = self._body.get("status") or {}, wall_ms()
        if not worth_writing(old, new, self._status_ms, now_ms):
            return
        namespace, name = self._key
        try:
            written = await self._keeper.applier.kube.merge(
                Ref("BrokerGroup", namespace, name), {"status": patch(old, new)}, "status"
            )
        except KubeError as error:
            if error.status == 404:
                return
            raise
        self._keeper.counts.status_writes += 1
        self._status_ms = now_ms
        self._body = {**self._body, "status": written.get("status") or {}}

    def _watch(self, group: BrokerGroup) -> None:
        """Hear of changes in ZooKeeper."""
        wanted = (group.spec.zookeeper.connect, group.cluster)
        if wanted == self._watched:
            return
        self._unwatch()
        ensemble = self._keeper.observer.ensembles.of(wanted[0])
        self._unwatch = ensemble.watch(group.cluster, group.metadata.name, self.wake)
        self._watched = wanted


def _asks_for(body: Json) -> tuple[object, ...]:
    meta = body["metadata"]
    return (
        meta.get("uid"),
        meta.get("generation"),
        meta.get("annotations"),
        meta.get("labels"),
        meta.get("deletionTimestamp"),
    )
