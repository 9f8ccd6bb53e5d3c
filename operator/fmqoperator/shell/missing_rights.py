"""Report an operator that, from its start, cannot see all that it must.

kopf calls no handler before it has listed every kind once, so one missing right holds up all
groups. The replica that works then asks by itself what it may not list, and reports it in the
status of every group and by an Event. Rounds take the condition back as soon as there are any.

Leaves conditions and Events in the cluster.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

import structlog

from fmqoperator.core.status.group import patch
from fmqoperator.core.status.unreconciled import blind
from fmqoperator.shell.cache import CHILDREN, Cache
from fmqoperator.shell.clock import wall_ms
from fmqoperator.shell.events import Events
from fmqoperator.shell.kube import Json, Kube, KubeError, Ref, collection

_log = structlog.get_logger()

REPORT_S: Final = 15.0
_POLL_S: Final = 5.0
_EVERYWHERE: Final = ("Node", "StorageClass", "CustomResourceDefinition")
_SEEN: Final = (
    *("BrokerGroup", "BrokerJob", "Topic", "Pod", "PersistentVolumeClaim", "Job"),
    *(kind for _, _, _, kind in CHILDREN),
)


class Blindness:
    """`blind_s`: how long kopf has asked for something in vain. `namespaces`: () = all."""

    def __init__(
        self,
        kube: Kube,
        events: Events,
        cache: Cache,
        namespaces: tuple[str, ...],
        blind_s: Callable[[], float],
    ) -> None:
        self._kube = kube
        self._events = events
        self._cache = cache
        self._namespaces = namespaces
        self._blind_s = blind_s

    async def watch(self) -> None:
        """Report until the cache has views, or cancelled."""
        while not self._cache.views:
            await asyncio.sleep(_POLL_S)
            if not self._cache.views and self._blind_s() > REPORT_S:
                try:
                    await self._report(await self._cause())
                except KubeError as error:
                    _log.warning("missing_rights_not_reported", reason=str(error))

    async def _cause(self) -> str:
        """Return what the operator may not list, in the API server's words."""
        for path in (*map(collection, _EVERYWHERE), *self._paths(*_SEEN)):
            try:
                await self._kube.ask("GET", path, query={"limit": "1"})
            except KubeError as error:
                return str(error)
        return "a kind cannot be listed or watched: see the operator's log"

    async def _report(self, cause: str) -> None:
        for path in self._paths("BrokerGroup"):
            for body in (await self._kube.ask("GET", path))["items"]:
                known = {"apiVersion": "fmq.io/v1alpha1", "kind": "BrokerGroup"}
                await self._report_group({**body, **known}, cause)

    async def _report_group(self, body: Json, cause: str) -> None:
        meta, old = body["metadata"], body.get("status") or {}
        new = blind(body, cause, wall_ms())
        if change := patch(old, new):
            ref = Ref("BrokerGroup", meta["namespace"], meta["name"])
            await self._kube.merge(ref, {"status": change}, "status")
        await self._events.emit(body, "Warning", "OperatorBlind", new["message"])

    def _paths(self, *kinds: str) -> Iterator[str]:
        for kind in kinds:
            yield from (collection(kind, space) for space in self._namespaces or ("",))
