"""Events on the custom resources: what the operator decided, reported once.

`core/event_dedup.py` decides what is news. Nothing waits for an Event for long: the API server may
keep them in a store of their own, which is away or slow while all else works. Leaves Events in the
cluster, which forgets them by itself.
"""

import asyncio
import time
from typing import Final, Literal

import structlog

from fmqoperator.core.event_dedup import ReportedEvents
from fmqoperator.shell.clock import utc_text
from fmqoperator.shell.kube import NAMESPACE_ENDS, Json, Kube, KubeError

_log = structlog.get_logger()
_LONGEST: Final = 1000  # bytes; the API server refuses what is longer than 1024
_REFUSED: Final = range(400, 500)
_TIMEOUT_S: Final = 2.0  # short: later actions of the plan need a fresh observation
_PAUSE_AFTER_TIMEOUT_S: Final = 30.0  # pause of writing Events after one that was not answered

Kind = Literal["Normal", "Warning"]


class Events:
    """Writes Events."""

    def __init__(self, kube: Kube, me: str) -> None:
        self._kube = kube
        self._me = me
        self._reported = ReportedEvents()
        self._silent_until_s = float("-inf")  # monotonic

    async def emit(self, about: Json, kind: Kind, reason: str, message: str) -> None:
        """Write an Event on the object `about`. A failure to write is logged, and not raised."""
        meta = about["metadata"]
        key = (meta.get("uid", ""), reason, message)
        if not self._reported.is_news(key, time.monotonic()):
            return
        log = _log.warning if kind == "Warning" else _log.info
        log(
            "event_emitted",
            of=f"{meta['namespace']}/{meta['name']}",
            reason=reason,
            message=message,
        )
        if time.monotonic() < self._silent_until_s:
            return  # the log has it
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                event = self._event(about, *key[1:], kind)
                await self._kube.create("Event", meta["namespace"], event)
        except TimeoutError:
            _log.warning("event_not_written", event_reason=reason, reason="no answer in time")
            self._silent_until_s = time.monotonic() + _PAUSE_AFTER_TIMEOUT_S
            self._reported.forget(key)
        except KubeError as error:
            if error.reason == NAMESPACE_ENDS:
                return
            _log.warning("event_not_written", event_reason=reason, reason=str(error))
            if error.status not in _REFUSED:  # it may be taken the next time
                self._reported.forget(key)

    def round_ended(self, about: Json) -> None:
        """Note that a round of the object has reported all that there is to report."""
        self._reported.round_ended(about["metadata"].get("uid", ""))

    def _event(self, about: Json, reason: str, message: str, kind: Kind) -> Json:
        meta, now = about["metadata"], utc_text()
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{meta['name']}-", "namespace": meta["namespace"]},
            "type": kind,
            "reason": reason,
            "message": message.encode()[:_LONGEST].decode(errors="ignore"),
            "action": reason,
            "eventTime": now,
            "firstTimestamp": now[:19] + "Z",
            "lastTimestamp": now[:19] + "Z",
            "count": 1,
            "source": {"component": "fmq-operator"},
            "reportingComponent": "fmq.io/operator",
            "reportingInstance": self._me[:128],
            "involvedObject": {
                "apiVersion": about.get("apiVersion", "fmq.io/v1alpha1"),
                "kind": about.get("kind", "BrokerGroup"),
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta.get("uid", ""),
                "resourceVersion": meta.get("resourceVersion", ""),
            },
        }
