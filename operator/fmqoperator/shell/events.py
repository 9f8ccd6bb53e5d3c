"""Events on the custom resources: what the operator decided, once and not again and again."""

import time
from typing import Final, Literal

import structlog

from fmqoperator.shell.kube import Json, Kube, KubeError
from fmqoperator.shell.times import utc_text

_log = structlog.get_logger()
_AGAIN_S: Final = 600.0
_MOST: Final = 10_000
_LONGEST: Final = 1000

Kind = Literal["Normal", "Warning"]


class Events:
    """Writes them. One that was said in the last minutes is not said again."""

    def __init__(self, kube: Kube, me: str) -> None:
        self._kube = kube
        self._me = me
        self._said: dict[tuple[str, str, str], float] = {}

    async def tell(self, about: Json, kind: Kind, reason: str, message: str) -> None:
        """On the object `about`. What cannot be written is logged, and no reason to stop."""
        meta, now_s = about["metadata"], time.monotonic()
        key = (meta.get("uid", ""), reason, message)
        if now_s - self._said.get(key, -_AGAIN_S) < _AGAIN_S:
            return
        if len(self._said) > _MOST:
            self._said = {k: at for k, at in self._said.items() if now_s - at < _AGAIN_S}
        self._said[key] = now_s
        _log.info("tells", of=f"{meta['namespace']}/{meta['name']}", reason=reason, message=message)
        try:
            await self._kube.create("Event", meta["namespace"], self._event(about, *key[1:], kind))
        except KubeError as error:
            _log.warning("event_not_written", reason=reason, why=str(error))

    def _event(self, about: Json, reason: str, message: str, kind: Kind) -> Json:
        meta, now = about["metadata"], utc_text()
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{meta['name']}-", "namespace": meta["namespace"]},
            "type": kind,
            "reason": reason,
            "message": message[:_LONGEST],
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
