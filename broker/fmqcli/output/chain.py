"""The chain of an ordered topic as a picture: a row per group, a column per segment.

        segment   1          2           3
        g1        ├ 1–40 ┤               ├ 71 ─▶
        g2                   ├ 39–70 ┤
        billing   ▲                             reads here

`┤` ended, `─▶` open, `─…` closing, `─?` its end is unknown. Numbers are sequences of the one queue;
with more queues a segment shows its number of records.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.cells import cell_len

from fmqcli.common import counted
from fmqclient.admin.infos import OrderedTopicStatus
from fmqcore.ordered.waits import ReadWait, read_waits
from fmqcore.zk.chain import Chain, Segment

_GAP: Final = 2
_READERS: Final = 8
"""Rows of subscriptions, at most."""
_WIDTH: Final = 100
"""Columns of a picture that is not for a terminal."""
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def picture(status: OrderedTopicStatus, width: int | None) -> list[str]:
    """Return the lines for one topic. `width`: the terminal's columns; None: no terminal."""
    chain = status.chain
    lines = [_title(status), f"  sends: {_sends(status)}"]
    if len(status.senders) > 1:
        lines.append(f"  in line: {', '.join(status.senders[1:])}")
    if chain.segments:
        lines += ["", *_drawing(chain, width or _WIDTH), ""]
    lines += [
        f"  {group} may not take the next segment: {reason}"
        for group, reason in status.obstacles.items()
        if reason
    ]
    lines += [f"  {line}" for line in _stuck(status)]
    return lines


def _title(status: OrderedTopicStatus) -> str:
    chain = status.chain
    groups = ", ".join(
        g.group if g.weight == 1 else f"{g.group} (weight {g.weight})" for g in chain.groups
    )
    queues = "1 queue" if chain.queues == 1 else f"{chain.queues} queues"
    return f"{chain.topic}: ordered, {queues} over {groups}"


def _sends(status: OrderedTopicStatus) -> str:
    age = _age(status.since_ms, status.answered_ms)
    closing = status.chain.closing
    reason = f"{status.phase}{age}: {status.reason}"
    return reason if closing is None else f"{reason} (closed because {closing})"


def reader_waits(status: OrderedTopicStatus, subscription: str) -> list[str]:
    """Return what a consumer group waits for without a way on, since when, and what to do."""
    topic = f"ordered topic {status.topic}"
    return [
        f"{topic}: {_waiting(status, wait, segment)}: {status.stuck[wait.segment]}"
        for wait in read_waits(status.chain, status.stuck)
        if wait.subscription == subscription
        and (segment := status.chain.segment(wait.segment)) is not None
    ]


def _stuck(status: OrderedTopicStatus) -> Iterator[str]:
    """Yield a line for each segment without a way on: who waits there, since when, what to do."""
    waits = defaultdict[int, list[ReadWait]](list)
    for wait in read_waits(status.chain, status.stuck):
        waits[wait.segment].append(wait)
    for segment in status.chain.segments:
        if (remedy := status.stuck.get(segment.number)) is None:
            continue
        for wait in waits[segment.number]:
            yield f"{_waiting(status, wait, segment)}: {remedy}"
        if not waits[segment.number]:
            age = _age(segment.ended_ms, status.answered_ms)
            yield f"segment {segment.number} in {segment.group} has no known end{age}: {remedy}"


def _waiting(status: OrderedTopicStatus, wait: ReadWait, segment: Segment) -> str:
    queues = "" if status.chain.queues == 1 else f" in queues {', '.join(map(str, wait.queues))}"
    where = (
        f"for the end of segment {wait.segment}"
        if segment.end_unknown
        else (f"within segment {wait.segment}")
    )
    return f"{wait.subscription} waits{queues}{_age(wait.since_ms, status.answered_ms)} {where}"


def _age(since_ms: int, now_ms: int) -> str:
    """Return " for 3 min", or nothing if the time is not known."""
    if not since_ms:
        return ""
    seconds = max(now_ms - since_ms, 0) // 1000
    unit, name = next((u for u in _UNITS if seconds >= u[0]), _UNITS[-1])
    return f" for {seconds // unit} {name}"


# ---- the drawing
def _drawing(chain: Chain, width: int) -> list[str]:
    rows = _rows(chain)
    label = max(cell_len(name) for name, _ in rows) + _GAP
    columns = {
        s.number: max(cell_len(cells.get(s.number, "")) for _, cells in rows) + _GAP
        for s in chain.segments
    }
    shown = _fitting(chain.segments, columns, width - 2 - label)
    lines = []
    if hidden := len(chain.segments) - len(shown) + chain.floor.number:
        shown_from = shown[0].number if shown else chain.next_number
        reason = "consumers have read them" if hidden == chain.floor.number else "too many to draw"
        lines.append(f"  segments before {shown_from} are not drawn: {reason}")
    for name, cells in rows:
        row = "".join(_padded(cells.get(s.number, ""), columns[s.number]) for s in shown)
        lines.append(f"  {_padded(name, label)}{row}".rstrip())
    if len(chain.heads) > _READERS:
        lines.append(f"  and {len(chain.heads) - _READERS} more subscriptions")
    return lines


def _rows(chain: Chain) -> list[tuple[str, dict[int, str]]]:
    """Return each row's name and its cells by segment: the numbers, the groups, the readers."""
    groups = dict.fromkeys(g.group for g in chain.groups) | dict.fromkeys(
        s.group for s in chain.segments
    )
    return [
        ("segment", {s.number: str(s.number) for s in chain.segments}),
        *((g, {s.number: _cell(chain, s) for s in chain.segments if s.group == g}) for g in groups),
        *((name, dict.fromkeys(heads, "▲ reads")) for name, heads in chain.heads[:_READERS]),
    ]


def _fitting(
    segments: Sequence[Segment], columns: Mapping[int, int], room: int
) -> tuple[Segment, ...]:
    """Return the newest segments that fit, at least one."""
    shown: list[Segment] = []
    for segment in reversed(segments):
        room -= columns[segment.number]
        if shown and room < 0:
            break
        shown.append(segment)
    return tuple(reversed(shown))


def _cell(chain: Chain, segment: Segment) -> str:
    if segment.end is not None:
        return f"├ {_span(chain, segment)} ┤"
    first = f" {segment.first_sequence[0]}" if chain.queues == 1 else ""
    if segment.end_unknown:
        return f"├{first} ─?"
    return f"├{first} ─▶" if chain.closing is None else f"├{first} ─…"


def _span(chain: Chain, segment: Segment) -> str:
    last = segment.last_sequence
    assert last is not None
    count = sum(n - f + 1 for f, n in zip(segment.first_sequence, last, strict=True))
    if not count:
        return "empty"
    if chain.queues == 1:
        return f"{segment.first_sequence[0]}–{last[0]}"
    return counted(count, "record")


def _padded(text: str, width: int) -> str:
    return text + " " * max(width - cell_len(text), 0)
