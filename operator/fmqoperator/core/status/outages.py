"""How long nobody served: from the last moment at which clients were served to the first one after.

The operator notices both ends later than clients do, so brokers report them: a server when it began
and ended to serve, a slave when its master was last heard. Without their word (of older brokers, of
a server that nobody followed) the operator's own look counts. Pure.
"""

from collections.abc import Iterator
from typing import Final

from fmqcore.ids import Permission
from fmqoperator.api.times import of_text
from fmqoperator.core import facts
from fmqoperator.core.observation import Observation

UNHEARD_MS: Final = 30_000
"""A broker that dies is silent first, and its session ends soon: outages count from the silence.
One that is silent for longer lives, and it is we who do not hear it."""

UNSEEN: Final = 0
"""Since then: it was so already when the operator began to look, or could look again. To count from
that look would make minutes without ZooKeeper a second."""

_JITTER_MS: Final = 200
"""An age on its way from the broker: the moment that it makes differs a little at each look."""


def since(seen: Observation, before: int | None, bit: Permission) -> int:
    """Of what nobody serves now; `before`: as it was remembered."""
    if before == UNSEEN:
        return UNSEEN
    noticed_ms = before or _unheard_since(seen)
    if noticed_ms is None and not seen.watched:
        return UNSEEN
    return _began(seen, noticed_ms or seen.now_ms, bit)


def length_ms(seen: Observation, since_ms: int | None, bit: Permission) -> int | None:
    """Of one that is over now; None: it began, ended, or was, while nobody looked."""
    if not seen.watched or since_ms == UNSEEN:
        return None
    ended_ms = _ended(seen, bit)
    noticed_ms = since_ms or _unheard_since(seen) or ended_ms
    return max(0, ended_ms - _began(seen, min(noticed_ms, ended_ms), bit))


def _unheard_since(seen: Observation) -> int | None:
    """Since when who should serve has been silent, if that may be its end; None: it is not so."""
    since_ms = seen.group.status.memory.unheard_since_ms
    return since_ms if since_ms is not None and seen.now_ms - since_ms <= UNHEARD_MS else None


def _ended(seen: Observation, bit: Permission) -> int:
    """When the server of now began to serve, as it reports; else now."""
    periods = facts.periods_of(seen, facts.server_of(facts.state_of(seen)))
    if periods is None:
        return seen.now_ms
    read = bit is Permission.READ
    began_ms = periods.reads_since_ms if read else periods.writes_since_ms
    return seen.now_ms if began_ms is None else min(began_ms, seen.now_ms)


def _began(seen: Observation, noticed_ms: int, bit: Permission) -> int:
    """When an outage began: the last sign that who served before did so still, or as noticed."""
    last, broker = seen.group.status.last_transition, seen.group.status.memory.served.split(" ")[0]
    if last is None:
        return noticed_ms
    earliest_ms = of_text(last.at)  # an earlier end was before it served
    own_ms = _own_end(seen, broker, bit)
    signs = [own_ms] if own_ms is not None else list(_signs(seen, broker, noticed_ms))
    fitting = [at_ms for at_ms in signs if earliest_ms <= at_ms < noticed_ms + _JITTER_MS]
    return min(max(fitting, default=noticed_ms), noticed_ms)


def _own_end(seen: Observation, broker: str, bit: Permission) -> int | None:
    """When the broker that served before stopped, as it reports; None: it does not report it."""
    periods = facts.periods_of(seen, broker)
    if periods is None:
        return None
    return periods.reads_until_ms if bit is Permission.READ else periods.writes_until_ms


def _signs(seen: Observation, broker: str, noticed_ms: int) -> Iterator[int]:
    """Moments at which who served before was alive, if it cannot report itself.

    The kubelet cuts a container's end to the second, so it was then or up to a second later: the
    middle.
    """
    pod = facts.pod_of(seen, broker)
    if pod is not None and pod.ended_ms is not None and pod.ended_ms < noticed_ms:
        yield min(pod.ended_ms + 500, noticed_ms)
    for other in sorted(seen.answers):
        periods = facts.periods_of(seen, other)
        if other != broker and periods is not None and periods.heard_master == broker:
            yield periods.heard_at_ms
