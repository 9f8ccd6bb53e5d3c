"""The reconcile workers, one for each custom resource: look, act, report, again.

Level-triggered: a wake-up only means "look". A round that fails is tried again later and later; it
never stops another resource's. Rounds of many wait for one another only for a place among the few
that run at once. Each kind defines its rounds (`Rounds`).
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import structlog

from fmqcore.errors import FmqError
from fmqoperator.core.event_dedup import counted, old_definition
from fmqoperator.core.observation import Failure
from fmqoperator.core.status.group import patch, undated, worth_writing
from fmqoperator.shell.clock import wall_ms
from fmqoperator.shell.kube import NAMESPACE_ENDS, Json, Kube, KubeError, Ref

_log = structlog.get_logger()

AT_ONCE: Final = 32  # most of a round may be waiting for brokers that do not answer
RESYNC_S: Final = 30.0  # interval of rounds for what no watch reports (a lag, an end)
_REWRITE_MS: Final = 300_000  # interval of rewriting what an older definition dropped
_QUIET_S: Final = 0.05  # a burst of changes makes one round
_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)


class Key(NamedTuple):
    """One custom resource."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Outcome(NamedTuple):
    """The outcome of a round."""

    status: Json
    pause_s: float = RESYNC_S
    failures: tuple[Failure, ...] = ()


class Rounds(Protocol):
    """How resources of one kind are reconciled."""

    async def round(
        self, key: Key, body: Json, failures: tuple[Failure, ...], wake: Callable[[], None], /
    ) -> Outcome:
        """Observe, plan, act. `failures`: of the round before; `wake`: to be called on changes."""
        ...

    async def gone(self, key: Key, body: Json, /) -> None:
        """Do what is left to do for a resource that was deleted, as far as possible."""
        ...


@dataclass(slots=True)
class Counts:
    """Figures for Prometheus."""

    rounds: int = 0
    failed: int = 0
    status_writes: int = 0
    longest_ms: int = 0


class Keeper:
    """All workers. `kinds`: the `Rounds` of each kind."""

    def __init__(self, kube: Kube, kinds: Mapping[str, Rounds]) -> None:
        self.kube = kube
        self.kinds = kinds
        self.counts = Counts()
        self.places = asyncio.Semaphore(AT_ONCE)
        self._workers: dict[Key, Worker] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Run the workers until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            await asyncio.Event().wait()

    def update(self, key: Key, body: Json | None, uid: str = "") -> None:
        """Learn of a resource or its change; None: that `uid` is gone ("" = whichever it was).

        kopf reports a deleted resource and one recreated under its name separately, in any order:
        neither is taken for the other.
        """
        worker = self._workers.get(key)
        known = "" if worker is None else _uid(worker.body)
        if body is None:
            if worker is not None and uid in ("", known):
                self._let_go(key, worker)
            return
        if worker is not None and _uid(body) != known and not _is_older(body, worker.body):
            self._let_go(key, worker)
            worker = None
        if worker is None:
            assert self._tasks is not None, "run first"
            worker = self._workers[key] = Worker(self, key)
            worker.task = self._tasks.create_task(worker.run(), name=str(key))
        worker.refresh(body)

    def _let_go(self, key: Key, worker: "Worker") -> None:
        assert self._tasks is not None, "run first"
        del self._workers[key]
        last = worker.end()
        self._tasks.create_task(self._clean_up(key, last), name=f"clean up {key}")

    def wake(self, key: Key) -> None:
        """Wake the worker of a resource: something may look different."""
        if worker := self._workers.get(key):
            worker.wake()

    def count(self, kind: str) -> int:
        """Return how many resources of a kind there are."""
        return sum(key.kind == kind for key in self._workers)

    def bodies(self, kind: str) -> list[Json]:
        """Return all resources of a kind, with the status that was written last."""
        return [worker.body for key, worker in self._workers.items() if key.kind == kind]

    def neglected(self, kind: str) -> list[tuple[Json, float]]:
        """Return all of a kind, each with the seconds since its last round without failure."""
        now_s = time.monotonic()
        workers = [worker for key, worker in self._workers.items() if key.kind == kind]
        return [(worker.body, now_s - worker.whole_since) for worker in workers]

    def stalled_s(self) -> float:
        """Return the seconds of the longest wait, among resources, for the end of a round."""
        now_s = time.monotonic()
        due = [w.due_since for w in self._workers.values() if w.due_since is not None]
        return max((now_s - since for since in due), default=0.0)

    async def _clean_up(self, key: Key, body: Json) -> None:
        try:
            await self.kinds[key.kind].gone(key, body)
        except (FmqError, TimeoutError) as error:
            _log.warning("cleanup_failed", resource=str(key), reason=str(error))
        except Exception as error:  # noqa: BLE001  # the others must go on
            _log.error("cleanup_raised", resource=str(key), exc_info=error)


class Worker:
    """The worker of one resource."""

    def __init__(self, keeper: Keeper, key: Key) -> None:
        self.task: asyncio.Task[None] | None = None
        self.due_since: float | None = None  # monotonic: woken, and no round has ended since
        self.whole_since = time.monotonic()  # the last round in which nothing failed; or its birth
        self._keeper = keeper
        self._key = key
        self._body: Json = {}
        self._wake = asyncio.Event()
        self._woken_s = 0.0  # monotonic: when that was set
        self._failures: tuple[Failure, ...] = ()
        self._in_a_row = 0
        self._reported = ""
        self._ends = False  # its namespace is being deleted, for good
        self._status_ms = 0
        self._written: tuple[Json, Json] = (
            {},
            {},
        )  # the last status, and the status that the server stored
        self._old: tuple[Failure, ...] = ()  # that the cluster's definition is older

    # ---- input
    def refresh(self, body: Json) -> None:
        """Take the resource as it is now. A change in only the status wakes no worker.

        A watch may bring a version older than the answer to the last write: with that, the next
        round would believe that the status holds something else, and leave it as it is.
        """
        old = self._body
        if _is_older(body, old):
            return
        self._body = body
        if not old or _asks_for(old) != _asks_for(body):
            self.wake()

    @property
    def body(self) -> Json:
        """The resource, as it is known now."""
        return self._body

    def wake(self) -> None:
        """Wake the worker for another round."""
        if not self._wake.is_set():
            self._woken_s = time.monotonic()
        self._wake.set()
        if self.due_since is None:
            self.due_since = self._woken_s

    def end(self) -> Json:
        """End the worker of a resource that is gone; return the resource as it was last."""
        if self.task is not None:
            self.task.cancel()
        return self._body

    # ---- rounds
    async def run(self) -> None:
        """Run rounds, until cancelled."""
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
            # Woken during its round, it waits from then on: one that is woken in each does not
            # stall.
            self.due_since = self._woken_s if self._wake.is_set() else None

    async def _safely(self) -> float:
        """Run one round; return how many seconds to wait for the next.

        A bug concerns one resource, and is reported.
        """
        if self._ends:
            return RESYNC_S
        started_s, counts = time.monotonic(), self._keeper.counts
        counts.rounds += 1
        pause_s, failures = RESYNC_S, tuple[Failure, ...]()
        try:
            pause_s, failures = await self._round()
        except KubeError as error:
            failures = (Failure("status", error.reason, str(error)),)
        except Exception as error:  # noqa: BLE001  # the others must go on
            _log.error("round_raised", resource=str(self._key), exc_info=error)
            failures = (Failure("operator", type(error).__name__, str(error)),)
        if any(failure.reason == NAMESPACE_ENDS for failure in failures):
            self._ends, failures = True, ()
            _log.info(
                "namespace_terminating",
                resource=str(self._key),
                reason="the resource is ignored from now on",
            )
        self._failures = counted(self._failures, failures)
        counts.longest_ms = max(counts.longest_ms, int((time.monotonic() - started_s) * 1000))
        if not self._failures:
            self._in_a_row, self._reported = 0, ""
            self.whole_since = time.monotonic()
            return pause_s
        counts.failed += 1
        self._log_failures()
        self._in_a_row += 1
        return _RETRY_S[min(self._in_a_row, len(_RETRY_S)) - 1]

    def _log_failures(self) -> None:
        reasons = "; ".join(f"{f.what}: {f.message}" for f in self._failures)
        if reasons != self._reported:
            self._reported = reasons
            _log.warning("round_failed", resource=str(self._key), reason=reasons)

    async def _round(self) -> tuple[float, tuple[Failure, ...]]:
        rounds = self._keeper.kinds[self._key.kind]
        before = (*self._failures, *self._old)
        done = await rounds.round(self._key, self._body, before, self.wake)
        await self._write(done.status)
        return done.pause_s, done.failures

    async def _write(self, new: Json) -> None:
        """Write the status, if it reports anything new."""
        old, now_ms = self._body.get("status") or {}, wall_ms()
        same = (undated(new), old) == self._written and bool(self._old)
        tried = same and now_ms - self._status_ms < _REWRITE_MS
        if tried or not worth_writing(old, new, self._status_ms, now_ms):
            return
        ref, sent = Ref(*self._key), patch(old, new)
        try:
            written = await self._keeper.kube.merge(ref, {"status": sent}, "status")
        except KubeError as error:
            if error.status != 404 or await self._keeper.kube.get(ref) is not None:
                raise  # it is there, and its definition has no such part: an older one
            self._keeper.update(
                self._key, None, _uid(self._body)
            )  # no watch may have reported its deletion
            return
        self._keeper.counts.status_writes += 1
        if changes := _state_changes(old, new):
            _log.info(
                "status_changed",
                resource=str(self._key),
                **changes,
                reason=new.get("message") or "",
            )
        self._status_ms = now_ms
        self._written = undated(new), written.get("status") or {}
        older = old_definition(self._key.kind, sent, self._written[1])
        self._old = (
            self._old if self._old and older else older
        )  # reported once, however much it drops
        meta = {k: v for k, v in written["metadata"].items() if k != "managedFields"}
        self.refresh({**written, "metadata": meta})


_STATE: Final = ("phase", "access", "master", "reader", "verdict")
"""Fields of a status that people ask about afterwards: their changes are in the log."""


def _state_changes(old: Json, new: Json) -> dict[str, str]:
    """Return the changed ones of these, with what they were and are."""
    pairs = {name: (old.get(name) or "", new.get(name) or "") for name in _STATE}
    return {name: f"{was or 'none'}->{now or 'none'}" for name, (was, now) in pairs.items()
            if was != now}  # fmt: skip


def _uid(body: Json) -> str:
    return str((body.get("metadata") or {}).get("uid", ""))


def _is_older(body: Json, than: Json) -> bool:
    """Whether `body` is an earlier version of the object than `than`; no if they do not compare."""
    one, other = body["metadata"], than.get("metadata") or {}
    versions = [str(meta.get("resourceVersion", "")) for meta in (one, other)]
    if not all(v.isdecimal() for v in versions):
        return False
    return int(versions[0]) < int(versions[1])


def _asks_for(body: Json) -> tuple[object, ...]:
    meta = body["metadata"]
    return (
        meta.get("uid"),
        meta.get("generation"),
        meta.get("annotations"),
        meta.get("labels"),
        meta.get("deletionTimestamp"),
    )
