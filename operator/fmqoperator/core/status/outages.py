"""How long no broker served: from the last moment of service to the first one after.

The operator notices both ends later than clients do, so brokers report them: a server when it
started and stopped to serve, a slave when its master was last heard. Without their reports (of
older brokers, of a server that no slave followed) the operator's own look counts. Pure.
"""

from collections.abc import Iterator
from typing import Final

from fmqcore.ids import Permission
from fmqoperator.api.times import of_text
from fmqoperator.core import facts
from fmqoperator.core.observation import Observation

UNHEARD_MS: Final = 30_000
"""Longest silence of a broker from which an outage is counted.

A broker that dies is silent first, and its session ends soon. One that is silent for longer lives,
and only the operator does not hear it.
"""

UNSEEN: Final = 0
"""Start of an outage that was there when the operator started to look, or could look again.

To count from that look would make minutes without ZooKeeper a second.
"""

_JITTER_MS: Final = 200
"""Tolerance for the transit time of an age: its moment differs a little at each look."""


def since(seen: Observation, before: int | None, bit: Permission) -> int:
    """Return the start of an outage that goes on; `before`: as it was remembered."""
    if before == UNSEEN:
        return UNSEEN
    noticed_ms = before or _unheard_since(seen)
    if noticed_ms is None and not seen.watched:
        return UNSEEN
    return _start_ms(seen, noticed_ms or seen.now_ms, bit)


def length_ms(seen: Observation, since_ms: int | None, bit: Permission) -> int | None:
    """Return the length of an outage that is over now.

    None: it started, ended, or was, while no operator looked.
    """
    if not seen.watched or since_ms == UNSEEN:
        return None
    ended_ms = _ended(seen, bit)
    noticed_ms = since_ms or _unheard_since(seen) or ended_ms
    return max(0, ended_ms - _start_ms(seen, min(noticed_ms, ended_ms), bit))


def _unheard_since(seen: Observation) -> int | None:
    """Return since when the server has been silent, if that may be its end; else None."""
    since_ms = seen.group.status.memory.unanswered_since_ms
    return since_ms if since_ms is not None and seen.now_ms - since_ms <= UNHEARD_MS else None


def _ended(seen: Observation, bit: Permission) -> int:
    """Return when the present server started to serve, as it reports; else now."""
    periods = facts.periods_of(seen, facts.server_of(facts.state_of(seen)))
    if periods is None:
        return seen.now_ms
    read = bit is Permission.READ
    started_ms = periods.reads_since_ms if read else periods.writes_since_ms
    return seen.now_ms if started_ms is None else min(started_ms, seen.now_ms)


def _start_ms(seen: Observation, noticed_ms: int, bit: Permission) -> int:
    """Return when an outage started: the last sign of the server before, or as noticed."""
    last, broker = (
        seen.group.status.last_transition,
        seen.group.status.memory.last_served.split(" ")[0],
    )
    if last is None:
        return noticed_ms
    earliest_ms = of_text(last.at)  # an earlier end was before it served
    own_ms = _own_end(seen, broker, bit)
    signs = [own_ms] if own_ms is not None else list(_signs(seen, broker, noticed_ms))
    fitting = [at_ms for at_ms in signs if earliest_ms <= at_ms < noticed_ms + _JITTER_MS]
    return min(max(fitting, default=noticed_ms), noticed_ms)


def _own_end(seen: Observation, broker: str, bit: Permission) -> int | None:
    """Return when the previous server stopped, by its own report; None: no report."""
    periods = facts.periods_of(seen, broker)
    if periods is None:
        return None
    return periods.reads_until_ms if bit is Permission.READ else periods.writes_until_ms


def _signs(seen: Observation, broker: str, noticed_ms: int) -> Iterator[int]:
    """Yield moments at which the server before was alive, if it cannot report itself.

    The kubelet truncates a container's end to the second, so it was then or up to a second later:
    the middle.
    """
    pod = facts.pod_of(seen, broker)
    if pod is not None and pod.ended_ms is not None and pod.ended_ms < noticed_ms:
        yield min(pod.ended_ms + 500, noticed_ms)
    for other in sorted(seen.answers):
        periods = facts.periods_of(seen, other)
        if other != broker and periods is not None and periods.heard_master == broker:
            yield periods.heard_at_ms
