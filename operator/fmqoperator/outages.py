"""How long nobody served: since when, as far as somebody saw it begin, until a look finds it over.
Pure.
"""

from typing import Final

from fmqoperator import facts
from fmqoperator.seen import Observation
from fmqoperator.times import of_text

UNHEARD_MS: Final = 30_000
"""A broker that dies is silent first, and its session ends soon: outages count from the silence.
One that is silent for longer lives, and it is we who do not hear it."""

UNSEEN: Final = 0
"""Since then: it was so already when the operator began to look, or could look again. To count from
that look would make minutes without ZooKeeper a second."""


def since(seen: Observation, before: int | None) -> int:
    """Of what nobody serves now; `before`: as it was remembered."""
    if before == UNSEEN:
        return UNSEEN
    noticed_ms = before or _unheard_since(seen)
    if noticed_ms is None and not seen.watched:
        return UNSEEN
    return _began(seen, noticed_ms or seen.now_ms)


def length_ms(seen: Observation, since_ms: int | None) -> int | None:
    """Of one that is over now; None: it began, ended, or was, while nobody looked."""
    if not seen.watched or since_ms == UNSEEN:
        return None
    noticed_ms = since_ms or _unheard_since(seen)
    return 0 if noticed_ms is None else max(0, seen.now_ms - _began(seen, noticed_ms))


def _unheard_since(seen: Observation) -> int | None:
    """Since when who should serve has been silent, if that may be its end; None: it is not so."""
    since_ms = seen.group.status.memory.unheard_since_ms
    return since_ms if since_ms is not None and seen.now_ms - since_ms <= UNHEARD_MS else None


def _began(seen: Observation, noticed_ms: int) -> int:
    """When an outage began: as it was noticed, or when the container of who served had ended.

    The kubelet cuts that to the second, so it was then or up to a second later: the middle.
    """
    last, broker = seen.group.status.last_transition, seen.group.status.memory.served.split(" ")[0]
    pod = facts.pod_of(seen, broker)
    ended_ms = None if pod is None else pod.ended_ms
    if ended_ms is None or last is None or not of_text(last.at) <= ended_ms < noticed_ms:
        return noticed_ms  # that end was before it served, or is a later one
    return min(ended_ms + 500, noticed_ms)
