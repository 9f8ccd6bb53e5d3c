"""Report to kopf what was deleted while a watch was broken: it relists, and misses that.

Its indices would keep a pod, a claim, a StatefulSet that is gone for as long as the process lives:
a scale-down that never ends, a Service that is never recreated. So an object that was in a stream
and is in no new list of that stream is reported to kopf as deleted, in the order of that very
stream.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import structlog
from kopf._cogs.clients import watching

_log = structlog.get_logger()

Watch = Callable[..., AsyncIterator[Any]]
Uid = str
_META: Final = ("name", "namespace", "uid", "labels", "creationTimestamp")
"""What kopf asks of a deleted object: its identity, and whether a handler is meant."""


class Relisting:
    """Replaces kopf's `watch`, which lists once, then streams until its place is lost."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._known: dict[object, dict[Uid, dict[str, Any]]] = {}

    async def __call__(self, **given: Any) -> AsyncIterator[Any]:
        """Yield the stream's events, and after its list the deletions that no event reported."""
        known = self._known.setdefault((given["resource"], given["namespace"]), {})
        listed: set[Uid] | None = set()
        async for event in self.watch(**given):
            if event is watching.Bookmark.LISTED:
                yield event
                for uid in sorted(known.keys() - (listed or set())):
                    yield {"type": "DELETED", "object": _log_missed(known.pop(uid))}
                listed = None
                continue
            if uid := (event["object"].get("metadata") or {}).get("uid", ""):
                if event["type"] == "DELETED":
                    known.pop(uid, None)
                else:
                    known[uid] = _brief(event["object"])
                if listed is not None:
                    listed.add(uid)
            yield event


def _brief(body: dict[str, Any]) -> dict[str, Any]:
    meta = {key: body["metadata"][key] for key in _META if key in body["metadata"]}
    return {"apiVersion": body.get("apiVersion"), "kind": body.get("kind"), "metadata": meta}


def _log_missed(gone: dict[str, Any]) -> dict[str, Any]:
    meta = gone["metadata"]
    resource = f"{meta.get('namespace', '')}/{meta['name']}"
    _log.info("deletion_missed", kind=gone["kind"], resource=resource, reason="a new list lacks it")
    return gone


def report_missed_deletions() -> None:
    """Replace every watch of kopf's from now on."""
    if not isinstance(watching.continuous_watch, Relisting):
        watching.continuous_watch = Relisting(watching.continuous_watch)
