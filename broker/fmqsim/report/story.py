"""The shortest story of a failed run: which events led to the broken invariant.

It shows only the part of the history that the first finding is about: the groups and brokers it
names, its record's life, and the faults done to them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from e2e.checks.findings import Finding
from e2e.checks.verdict import Verdict
from e2e.history.client_events import Acked, Delivered, Failed, Nacked, Sent, Stored, Unsure
from e2e.history.cluster_events import Down, Fault, Phase, Refusal, Serves, Setup, State, Step, Up

if TYPE_CHECKING:
    from fmqsim.scenario.world import World

_LINES: Final = 60


def describe(world: "World", verdict: Verdict, bugs: list[str]) -> str:
    """Return the story of the first finding, and the command to see it again."""
    seed = world.scene.seed
    lines = [f"seed {seed}:"]
    lines += [f"  {finding.at_ms:9.1f} ms  {finding}" for finding in verdict.findings[:5]]
    if len(verdict.findings) > 5:
        lines.append(f"  and {len(verdict.findings) - 5} more findings")
    lines += [f"  bug: {bug}" for bug in bugs[:5]]
    first = verdict.findings[0] if verdict.findings else None
    lines += _cluster(world)
    events = list(_events(world, first))
    if len(events) > _LINES:
        events = ["  ...", *events[-_LINES:]]
    lines += ["what happened:", *events]
    asked = " --moves" * world.scene.moves + " --topics" * world.scene.changing
    lines.append(f"again: python -m fmqsim --seed {seed}{asked} --trace seed-{seed}.txt")
    return "\n".join(lines)


def _cluster(world: "World") -> list[str]:
    lines = ["the cluster:"]
    for group in world.scene.groups:
        policy = group.policy
        members = ", ".join(f"{m.id}{f' in {m.zone}' if m.zone else ''}" for m in group.members)
        strict = ", strict" if policy.strict else ""
        lines.append(
            f"  {group.group}: {members}; policy: {policy.how_many.value} {policy.counts.value}, "
            f"flush {policy.flush.value}{strict}"
        )
    return lines


def _events(world: "World", finding: Finding | None) -> Iterator[str]:
    about = set(finding.about) if finding is not None else set()
    place = None if finding is None else finding.place
    groups = {name for name in about if name in world.configs}
    groups |= {host.group for host in world.brokers.values() if host.name in about}
    if place is not None:
        groups.add(place.group)
    groups = groups or set(world.configs)
    until = float("inf") if finding is None else finding.at_ms + 1
    for event in world.history.events:
        if event.at_ms > until:
            break
        text = _text(event, groups, finding)
        if text:
            yield f"  {event.at_ms:9.1f} ms  {text}"


def _text(event: Any, groups: set[str], finding: Finding | None) -> str:
    match event:
        case Phase():
            return f"---- {event.name.value}"
        case Fault(step=Step.FIRED | Step.HEALED):
            over = "over: " if event.step is Step.HEALED else ""
            return f"** {over}{event.detail} on {event.on or 'the cluster'}"
        case Setup():
            return "the groups are configured"
        case State() if event.group in groups:
            isr = ", ".join(event.isr) or "none"
            return (
                f"{event.group} {event.mode.value}({event.epoch}) master {event.master}, reader "
                f"{event.reader}, in sync: {isr} | {event.reason}"
            )
        case Serves() if event.group in groups:
            return f"{event.broker} serves {event.permission.name} in epoch {event.epoch}"
        case Up() if event.group in groups:
            return f"{event.broker} starts: journal {event.journal_start}..{event.end}"
        case Down() if event.group in groups:
            return f"{event.broker} {event.how.value}: {event.reason} (durable {event.durable_end})"
        case Refusal():
            return f"{event.broker} refuses: {event.reason}"
        case _:
            return "" if finding is None else _of_record(event, finding)


def _of_record(event: Any, finding: Finding) -> str:
    place, offset, record = finding.place, finding.offset, finding.record
    here = getattr(event, "place", None) == place and place is not None
    about_record = getattr(event, "record", -2) == record and record >= 0
    at = here and getattr(event, "offset", -2) == offset
    match event:
        case Sent() if about_record:
            return f"{event.who} sends record {record} to {event.topic}, acks={event.level}"
        case Stored() if about_record or at:
            return f"{event.who} gets OK: record {event.record} at {event.place} {event.offset}"
        case Failed() | Unsure() if about_record:
            return (
                f"{event.who} gets an error: record {record} {type(event).__name__}: {event.reason}"
            )
        case Delivered() if about_record or at:
            return f"{event.who} ({event.readers}) gets record {event.record} at {event.offset}"
        case Acked() if at:
            return f"{event.who} ({event.readers}) acks {event.offset}"
        case Nacked() if at:
            return f"{event.who} ({event.readers}) gives {event.offset} back"
        case _:
            return ""
