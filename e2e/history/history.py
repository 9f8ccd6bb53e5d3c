"""A run's history: everything that happened, in order, as it was seen from outside.

One list; `add` is the only way in, so a real run can write every event to a file as it happens
(`sink`), and a run that breaks off keeps its history. Each event is one JSON line: `to_line`,
`from_line`. The meaning of events is in `events.py`, their evaluation in `checks/`.
"""

import json
from collections.abc import Callable, Iterable
from enum import Enum
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from e2e.history import events as vocabulary
from e2e.history.client_events import Place
from e2e.history.cluster_events import GroupSetup
from e2e.history.events import Event
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts

_KINDS: Final[dict[str, type]] = {kind.__name__: kind for kind in get_args(Event)}


class History:
    """The events so far."""

    __slots__ = ("events", "sink")

    def __init__(
        self, events: Iterable[Event] = (), sink: Callable[[Event], None] | None = None
    ) -> None:
        self.events: list[Event] = list(events)
        self.sink = sink

    def add(self, event: Event) -> None:
        """Append an event that happened now, after all earlier ones."""
        self.events.append(event)
        if self.sink is not None:
            self.sink(event)

    def __len__(self) -> int:
        return len(self.events)


def to_line(event: Event) -> str:
    """Return the event as one JSON line, without a line end."""
    return json.dumps([type(event).__name__, *map(_plain, event)], separators=(",", ":"))


def from_line(line: str) -> Event:
    """Parse a line of `to_line`. Raises `ValueError`."""
    name, *values = json.loads(line)
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"{name} is no event")
    wanted = _TYPES[name]
    if len(values) > len(wanted):
        raise ValueError(f"{name} has {len(wanted)} fields, not {len(values)}")
    event: Event = kind(*map(_rich, values, wanted))
    return event


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case AckPolicy():
            return [
                value.flush.value,
                value.flush_interval_ms,
                value.counts.value,
                value.how_many.value,
                value.strict,
            ]
        case tuple():
            return [_plain(each) for each in value]
        case _:
            return value


def _rich(value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_rich(each, get_args(kind)[0]) for each in value)
    if kind is AckPolicy:
        flush, interval_ms, counts, how_many, strict = value
        return AckPolicy(
            Flush(flush), interval_ms, SlaveCounts(counts), HowMany(how_many), bool(strict)
        )
    if kind is Place:
        return Place(*value)
    if kind is GroupSetup:
        return GroupSetup(*map(_rich, value, get_type_hints(GroupSetup).values()))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    assert get_origin(kind) not in (Union, UnionType), "an event's field has one type"
    return value


_TYPES: Final[dict[str, list[Any]]] = {
    name: list(get_type_hints(kind, vars(vocabulary)).values()) for name, kind in _KINDS.items()
}
