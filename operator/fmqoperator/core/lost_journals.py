"""A group that waits for a person because its journals are lost (ADR 0058). Pure."""

from collections.abc import Iterator

from fmqcore.failover.evidence import Remedy
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import BEGIN_AGAIN
from fmqoperator.core import facts
from fmqoperator.core.actions import Action, BeginAgain, EmitEvent, RemoveAnnotation
from fmqoperator.core.observation import Observation


def waits(seen: Observation) -> str:
    """Return why the master waits for a person, with the command; "" = it does not wait."""
    state = facts.state_of(seen)
    answer = facts.answer_of(seen, state.master)
    if answer is None or answer.remedy is not Remedy.BEGIN_AGAIN or state.mode is Mode.NEW:
        return ""
    where = f"-n {seen.group.metadata.namespace} brokergroup {seen.group.name}"
    return (
        f"{state.master} waits for a person, because journals of this group are lost or newer than "
        f"its state in ZooKeeper (perhaps that of a deleted group): start all remaining members, "
        f"then run kubectl annotate {where} {BEGIN_AGAIN}={state.epoch} to start the group again "
        "with what their journals hold"
    )


def _refusal(seen: Observation, asked: str) -> str:
    state = facts.state_of(seen)
    if asked != str(state.epoch):
        return f"the group is in epoch {state.epoch}, not {asked or '(none)'}"
    return "its master serves, and nothing is lost" if facts.master_serves(seen) else ""


def asked_for(seen: Observation) -> Iterator[Action]:
    """Act on the annotation: a person's decision, valid in the named epoch only."""
    asked = seen.group.metadata.annotations.get(BEGIN_AGAIN)
    if asked is None or seen.zookeeper is None:
        return
    if cause := _refusal(seen, asked):
        yield EmitEvent("Warning", "BeginAgainRefused", f"{BEGIN_AGAIN}={asked}: {cause}")
    else:
        cause = f"the group starts again above epoch {asked} with what its journals hold"
        yield BeginAgain(facts.state_of(seen).epoch, cause)
        yield EmitEvent("Warning", "BeginsAgain", cause)
    yield RemoveAnnotation(BEGIN_AGAIN, asked)
