"""Check I10: a broker that starts again has all that was durable when it ended.

And it starts at all. Damage to a disk that a fault hurt is no finding: there the broker may refuse,
and report why.
"""

from collections.abc import Iterator

from e2e.checks.facts import Facts
from e2e.checks.findings import Check, Finding
from e2e.checks.promises import Copy
from e2e.history.cluster_events import Down, Ending, Up


def recovery(facts: Facts) -> Iterator[Finding]:
    """I10: a broker starts again, with all that was durable when it ended."""
    for broker, life in sorted(facts.lives.items()):
        up: Up | None = None
        down: Down | None = None
        for event in life:
            if isinstance(event, Down):
                if event.durable_end >= 0 or down is None:  # of a start that broke off: not known
                    down = event
                continue
            if up is not None:
                yield from _came_back(facts, broker, up, down, event)
            up, down = event, None
    yield from _refused(facts)
    yield from _ended_itself(facts)


def _came_back(
    facts: Facts, broker: str, before: Up, down: Down | None, up: Up
) -> Iterator[Finding]:
    hurt = any(
        loss.broker == broker
        and loss.takes is Copy.DISK
        and before.at_ms <= loss.from_ms <= up.at_ms
        for loss in facts.losses.all
    )
    if hurt:
        return
    durable, source = _durable(facts, broker, before, down, up)
    if up.end < durable:
        text = f"{broker} came back with its journal to {up.end}; {durable} was durable ({source})"
        yield Finding(Check.I10, up.at_ms, text, (broker, up.group))
    if up.journal_start > durable:
        text = (
            f"{broker} came back with its journal from {up.journal_start}, it had ended at "
            f"{durable}"
        )
        yield Finding(Check.I10, up.at_ms, text, (broker, up.group))


def _durable(facts: Facts, broker: str, before: Up, down: Down | None, up: Up) -> tuple[int, str]:
    """Return what the broker must have, and the source.

    That is what it reported at its end, else what was both durable and committed.
    """
    if down is not None and down.durable_end >= 0:
        return down.durable_end, "when it ended"
    seen = [e for e in facts.ends.get(broker, ()) if before.at_ms <= e.asked_ms <= up.at_ms]
    if not seen:
        return min(before.durable_end, before.end), "at its start before"
    last = seen[-1]
    return min(last.durable_end, last.commit_end), f"seen at {last.at_ms:.0f} ms"


def _refused(facts: Facts) -> Iterator[Finding]:
    """Check that a broker waits for a person only if its disk is damaged or fails now."""
    for refusal in facts.refusals:
        group = next((e.group for e in facts.lives.get(refusal.broker, ())), "")
        failing = any(
            broker == refusal.broker and from_ms <= refusal.at_ms <= to_ms
            for broker, from_ms, to_ms in facts.losses.failing
        )
        if not failing and not facts.losses.hurt(refusal.broker, refusal.at_ms):
            text = f"{refusal.broker} refuses, and its disk was not hurt: {refusal.reason}"
            yield Finding(Check.I10, refusal.at_ms, text, (refusal.broker, group))


def _ended_itself(facts: Facts) -> Iterator[Finding]:
    """Check that a broker ends itself only if its disk failed in this incarnation."""
    for broker, life in sorted(facts.lives.items()):
        up_ms = 0.0
        for event in life:
            if isinstance(event, Up):
                up_ms = event.at_ms
            elif event.how is Ending.FATAL:
                failed = any(
                    on == broker and from_ms <= event.at_ms and to_ms >= up_ms
                    for on, from_ms, to_ms in facts.losses.failing
                )
                if not failed and not facts.losses.hurt(broker, event.at_ms):
                    text = f"{broker} ended itself, and no disk had failed: {event.reason}"
                    yield Finding(Check.I10, event.at_ms, text, (broker, event.group))
