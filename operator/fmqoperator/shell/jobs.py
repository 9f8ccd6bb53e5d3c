"""Rounds of BrokerJobs: make Jobs or SparkApplications once, and report their end."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pydantic import ValidationError

from fmqoperator.api.group import BrokerGroup, read_group
from fmqoperator.api.job import BrokerJob
from fmqoperator.core.actions import Action, ApplyChild, DeleteChild, EmitEvent, Requeue
from fmqoperator.core.children.names import JOB_LABEL
from fmqoperator.core.event_dedup import lasting
from fmqoperator.core.jobs.objects import is_of
from fmqoperator.core.jobs.plan import JobSeen, job_status, plan_job
from fmqoperator.core.observation import Defaults, Failure
from fmqoperator.shell.cache import Cache
from fmqoperator.shell.clock import wall_ms
from fmqoperator.shell.decoding import job_pod_of
from fmqoperator.shell.events import Events
from fmqoperator.shell.keeper import RESYNC_S, Key, Outcome
from fmqoperator.shell.kube import Json, Kube, KubeError, Ref
from fmqoperator.shell.unreadable import report_unreadable

Children = Mapping[tuple[str, str], Json]
_OF_JOB: Final = "batch.kubernetes.io/controller-uid"


class Jobs:
    """The `Rounds` of BrokerJobs."""

    def __init__(self, kube: Kube, cache: Cache, events: Events, defaults: Defaults) -> None:
        self._kube = kube
        self._cache = cache
        self._events = events
        self._defaults = defaults

    async def round(
        self, key: Key, body: Json, failures: tuple[Failure, ...], _wake: Callable[[], None]
    ) -> Outcome:
        """See `Rounds`. Changes of the objects that it made wake it through kopf."""
        try:
            job = BrokerJob.model_validate(body)
        except ValidationError as error:
            return await report_unreadable(self._events, body, error)
        seen = self._observe(key, job, failures, await self._children(key))
        pause_s, failed = RESYNC_S, None
        for action in (*lasting(failures), *plan_job(seen)):
            if isinstance(action, Requeue):
                pause_s = min(pause_s, action.after_ms / 1000)
                continue
            try:
                await self._do(key, body, action)
            except KubeError as error:
                failed = Failure(f"job {key.name}", error.reason, str(error))
                break
        if failed is None:
            self._events.round_ended(body)
        after = replace(seen, failures=(failed,) if failed else ())
        return Outcome(job_status(after), pause_s, after.failures)

    async def gone(self, _key: Key, _body: Json) -> None:
        """See `Rounds`: the objects that it made go by their owner reference."""

    async def _children(self, key: Key) -> Children | None:
        """Return the job's objects by kind and name; None: not known.

        SparkApplications are asked for: kopf may have looked too early for a kind that came after
        it, and then it never watches them.
        """
        found = self._cache.jobs((key.namespace, key.name))
        if found is None:
            return None
        children = {("Job", body["metadata"]["name"]): body for body in found}
        if self._cache.knows_spark:
            where = ("SparkApplication", key.namespace, JOB_LABEL, key.name)
            try:
                more = await self._kube.labelled(*where)
            except KubeError:
                return None
            children |= {("SparkApplication", body["metadata"]["name"]): body for body in more}
        return children

    def _observe(
        self,
        key: Key,
        job: BrokerJob,
        failures: tuple[Failure, ...],
        children: Children | None,
    ) -> JobSeen:
        cache, where = self._cache, (key.namespace, job.spec.group)
        pods = cache.job_pods((key.namespace, key.name))
        own = {of: body for of, body in (children or {}).items() if is_of(body, job)}
        made = {body["metadata"].get("uid", "") for body in own.values()}
        return JobSeen(
            job=job,
            now_ms=wall_ms(),
            defaults=self._defaults,
            group=self._group(where),
            group_known=bool(cache.views),
            brokers=cache.pods(where),
            claims=cache.claims(where),
            children=None if children is None else own,
            others=tuple(sorted(name for _, name in (children or {}).keys() - own.keys())),
            spark=cache.knows_spark,
            pods=None if pods is None else tuple(job_pod_of(p) for p in pods if _is_of(p, made)),
            failures=failures,
        )

    def _group(self, where: tuple[str, str]) -> BrokerGroup | None:
        body = self._cache.group(where)
        if body is None:
            return None
        try:
            return read_group(body)
        except ValidationError:
            return None

    async def _do(self, key: Key, body: Json, action: Action) -> None:
        match action:
            case ApplyChild():
                name = action.manifest["metadata"]["name"]
                ref = Ref(action.manifest["kind"], key.namespace, name)
                await self._kube.apply(ref, action.manifest)
            case DeleteChild():
                await self._kube.delete(Ref(action.kind, key.namespace, action.name), action.uid)
            case EmitEvent():
                await self._events.emit(body, action.type, action.reason, action.message)
            case _:
                raise AssertionError(f"not an action of a job: {action}")


def _is_of(pod: Json, jobs: set[str]) -> bool:
    """Whether the pod is not that of an earlier Job of the same name."""
    return (pod["metadata"].get("labels") or {}).get(_OF_JOB) in (None, *jobs)
