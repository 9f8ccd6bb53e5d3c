"""When the steps of a chain were made, by the wall clock of the broker that wrote them. Pure.

For people only: no decision reads these times, because the clocks of brokers may differ.
"""

from dataclasses import replace

from fmqcore.zk.chain import Chain, Segment


def stamped(before: Chain, after: Chain, wall_ms: int) -> Chain:
    """Return `after` with the time of what changed since `before`.

    The code that writes a chain calls it last. `wall_ms`: milliseconds since 1970.
    """
    return replace(
        after,
        closing_since_ms=_closing_since_ms(before, after, wall_ms),
        segments=tuple(_stamped(before.segment(s.number), s, wall_ms) for s in after.segments),
    )


def _closing_since_ms(before: Chain, after: Chain, wall_ms: int) -> int:
    if after.closing is None:
        return 0
    goes_on = before.closing is not None and before.next_number == after.next_number
    return before.closing_since_ms if goes_on else wall_ms


def _stamped(before: Segment | None, after: Segment, wall_ms: int) -> Segment:
    if before is None:
        return replace(after, opened_ms=after.opened_ms or wall_ms)  # a restored one has it
    if (before.end, before.end_unknown) != (after.end, after.end_unknown):
        return replace(after, ended_ms=wall_ms)
    return after
