"""kopf's part: list, watch, and wake the worker that a change concerns. It writes nothing.

Only `index` and `event` handlers: no annotation, no finalizer, no progress kept anywhere. What to
do is found out by looking (`keeper.py`), never from an event.
"""

import itertools
import logging
import time
from collections.abc import Iterator
from typing import Any

import kopf

from fmqoperator.core.children.names import GROUP_LABEL, JOB_LABEL, PART_OF
from fmqoperator.shell.cache import CHILDREN, SPARK, Cache
from fmqoperator.shell.decoding import node_of
from fmqoperator.shell.keeper import Keeper, Key
from fmqoperator.shell.kube import credentials

_OURS = {GROUP_LABEL: kopf.PRESENT}
_OF_JOBS = {JOB_LABEL: kopf.PRESENT}
_TRIES_S = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 30.0, 60.0)
_SPARK = "group='sparkoperator.k8s.io'"
_APPLICATIONS = ("sparkoperator.k8s.io", "v1beta2", "sparkapplications")
_VIEWS = (
    *("pods", "claims", "nodes", "classes", "definitions", "groups"),
    *("jobs", "job_pods", "jobs_of_groups", "topics"),
    *(plural for _, _, plural, _ in CHILDREN),
)


def registry_of(cache: Cache, keeper: Keeper) -> kopf.OperatorRegistry:
    """Return the registry of all handlers."""
    registry = kopf.OperatorRegistry()
    _index(registry)

    @kopf.on.login(registry=registry)
    def log_in(**_: Any) -> kopf.ConnectionInfo | None:
        return credentials()

    def update(kind: str, namespace: Any, name: Any, body: Any, event: Any) -> None:
        gone = event["type"] == "DELETED"
        uid = body["metadata"].get("uid", "")
        keeper.update(Key(kind, namespace, name), None if gone else _plain(body), uid)

    @kopf.on.event("fmq.io", "v1alpha1", "topics", registry=registry)
    async def topic_changed(body: Any, namespace: Any, name: Any, event: Any, **given: Any) -> None:
        cache.views = {view: given[view] for view in _VIEWS}
        update("Topic", namespace, name, body, event)

    @kopf.on.event("fmq.io", "v1alpha1", "brokergroups", registry=registry)
    async def group_changed(body: Any, namespace: Any, name: Any, event: Any, **given: Any) -> None:
        cache.views = {view: given[view] for view in _VIEWS}
        update("BrokerGroup", namespace, name, body, event)

    @kopf.on.event("fmq.io", "v1alpha1", "brokerjobs", registry=registry)
    async def job_changed(body: Any, namespace: Any, name: Any, event: Any, **given: Any) -> None:
        cache.views = {view: given[view] for view in _VIEWS}
        update("BrokerJob", namespace, name, body, event)
        keeper.wake(Key("BrokerGroup", namespace, _group_of(body)))

    async def child_changed(namespace: Any, labels: Any, **_: Any) -> None:
        keeper.wake(Key("BrokerGroup", namespace, labels[GROUP_LABEL]))

    for group, version, plural, _ in CHILDREN:
        kopf.on.event(group, version, plural, labels=_OURS, registry=registry, id=plural)(
            child_changed
        )
    for plural in ("pods", "persistentvolumeclaims"):
        kopf.on.event("", "v1", plural, labels=_OURS, registry=registry, id=plural)(child_changed)

    async def job_child_changed(namespace: Any, labels: Any, **_: Any) -> None:
        keeper.wake(Key("BrokerJob", namespace, labels[JOB_LABEL]))

    for where in (("batch", "v1", "jobs"), ("", "v1", "pods"), _APPLICATIONS):
        kopf.on.event(*where, labels=_OF_JOBS, registry=registry, id=f"job-{where[2]}")(
            job_child_changed
        )

    @kopf.on.event("", "v1", "nodes", registry=registry)
    async def node_changed(name: Any, **_: Any) -> None:
        for namespace, group in cache.groups_on(name):
            keeper.wake(Key("BrokerGroup", namespace, group))

    return registry


def _index(registry: kopf.OperatorRegistry) -> None:
    def of_group(body: Any, namespace: Any, labels: Any, **_: Any) -> Any:
        return {(namespace, labels[GROUP_LABEL]): _plain(body)}

    for group, version, plural, _ in CHILDREN:
        kopf.index(group, version, plural, labels=_OURS, registry=registry, id=plural)(of_group)
    kopf.index("", "v1", "pods", labels=_OURS, registry=registry, id="pods")(of_group)
    kopf.index("", "v1", "persistentvolumeclaims", labels=_OURS, registry=registry, id="claims")(
        of_group
    )

    def of_job(body: Any, namespace: Any, labels: Any, **_: Any) -> Any:
        return {(namespace, labels[JOB_LABEL]): _plain(body)}

    for where, view in ((("batch", "v1", "jobs"), "jobs"), (("", "v1", "pods"), "job_pods")):
        kopf.index(*where, labels=_OF_JOBS, registry=registry, id=view)(of_job)

    @kopf.index("fmq.io", "v1alpha1", "brokergroups", registry=registry, id="groups")
    def groups(body: Any, namespace: Any, name: Any, **_: Any) -> Any:
        return {(namespace, name): _plain(body)}

    @kopf.index("fmq.io", "v1alpha1", "brokerjobs", registry=registry, id="jobs_of_groups")
    def jobs_of_groups(body: Any, namespace: Any, **_: Any) -> Any:
        return {(namespace, _group_of(body)): _plain(body)}

    @kopf.index("fmq.io", "v1alpha1", "topics", registry=registry, id="topics")
    def topics(body: Any, namespace: Any, name: Any, **_: Any) -> Any:
        spec = body.get("spec") or {}
        return {(spec.get("cluster") or namespace, spec.get("name") or name): _plain(body)}

    @kopf.index(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions",
        registry=registry, id="definitions", field="metadata.name", value=SPARK,
    )  # fmt: skip
    def definitions(name: Any, **_: Any) -> Any:
        return {name: True}

    @kopf.index("", "v1", "nodes", registry=registry, id="nodes")
    def nodes(body: Any, name: Any, **_: Any) -> Any:
        return {name: node_of(body)}  # the images that a node lists are longer than all else

    @kopf.index("storage.k8s.io", "v1", "storageclasses", registry=registry, id="classes")
    def classes(body: Any, name: Any, **_: Any) -> Any:
        return {name: bool(body.get("allowVolumeExpansion", False))}


def _group_of(job: Any) -> str:
    """Return the group that a BrokerJob names; "" if it is none that can be read."""
    return str((job.get("spec") or {}).get("group") or "")


def _plain(body: Any) -> dict[str, Any]:
    """Return an object without the part that is never read and makes up half the size."""
    found = dict(body)
    found["metadata"] = {k: v for k, v in found["metadata"].items() if k != "managedFields"}
    return found


class Patience:
    """How long kopf waits between two tries of a request, without an end.

    kopf would stop trying after a minute, and end the watch: a permission granted later would not
    help an operator that watches nothing any more.

    kopf takes one iterator per request and one pause from it before each try, and drops the
    iterator with the request. So this object knows which requests fail now, and since when.
    """

    def __init__(self) -> None:
        self._in_vain: dict[object, float] = {}  # request → monotonic: its first failure

    def __iter__(self) -> Iterator[float]:
        request = object()
        try:
            for pause_s in itertools.chain(_TRIES_S, itertools.repeat(_TRIES_S[-1])):
                yield pause_s
                self._in_vain.setdefault(request, time.monotonic())
        finally:
            self._in_vain.pop(request, None)

    def blind_s(self) -> float:
        """Return for how many seconds the oldest failing request has failed; 0: there is none."""
        now_s = time.monotonic()
        return now_s - min(self._in_vain.values(), default=now_s)


def kopf_settings(patience: Patience) -> kopf.OperatorSettings:
    """Return settings that are quiet, with watches that can neither hang nor end for ever."""
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = patience
    settings.posting.enabled = False
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 330
    settings.watching.connect_timeout = 10
    _ask_only_for_ours(settings)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.observation").addFilter(is_worth_a_line)
    return settings


def _ask_only_for_ours(settings: kopf.OperatorSettings) -> None:
    """Watch only objects with the operator's labels.

    Handlers' labels only choose from what has arrived: without these, all of the cluster's pods,
    ConfigMaps, Services come and are remembered. (An older kopf knows no such choice.)
    """
    selectors = getattr(settings.watching, "label_selectors", None)
    if selectors is None:
        return
    selectors["", "v1", "pods"] = PART_OF  # of groups or of jobs
    selectors["", "v1", "persistentvolumeclaims"] = GROUP_LABEL
    for group, version, plural, _ in CHILDREN:
        selectors[group, version, plural] = GROUP_LABEL
    for where in (("batch", "v1", "jobs"), _APPLICATIONS):
        selectors[where] = JOB_LABEL


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether a log record of kopf's is more than the notice that Spark's kind is unknown.

    kopf warns of every kind that the cluster does not know. Spark's operator need not be there;
    that one of FMQ's own definitions is missing must be reported.
    """
    text = record.getMessage()
    lacking = text.count("Selector(")
    return not (text.startswith("Unresolved resources") and 0 < lacking == text.count(_SPARK))
