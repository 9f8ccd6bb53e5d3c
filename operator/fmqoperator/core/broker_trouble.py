"""Describe what keeps a broker from its work so that a person can act on it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fmqoperator.core import facts, lost_journals
from fmqoperator.core.actions import EmitEvent
from fmqoperator.core.observation import Node, Observation, Pod, PodPhase

EXITS: Final = {
    64: "it refused its settings: check spec.settings",
    65: "its journal is corrupt: run a BrokerJob of type check; the pod's log names the position",
    69: "its listen address is in use",
    74: "its disk failed or is full: check the volume, or raise storage.size",
    75: "another broker uses its volume, or is live under its name",
    78: "the group's configuration is not in ZooKeeper, or does not list this broker",
    137: "it was killed, but not for its memory limit: it did not answer /livez, did not stop in "
    "time, or its node ran out of memory: kubectl describe pod shows which",
    255: "its node, or the node's container runtime, stopped",
}
"""Meaning of a broker's exit status (`fmqbroker/app/main.py`)."""
_ENDS: Final = {
    "OOMKilled": "Kubernetes reports OOMKilled: it needs more memory than its container may use: "
    "raise spec.resources.limits.memory",
    "ContainerStatusUnknown": "its node did not record how: the node restarted or stopped",
}
"""Meaning of Kubernetes' own reason for a container's end; it is more exact than the status."""

_NO_IMAGE: Final = ("ErrImageNeverPull", "ErrImagePull", "ImagePullBackOff", "InvalidImageName")
_NO_CONTAINER: Final = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_NOT_MADE: Final = (*_NO_IMAGE, *_NO_CONTAINER)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One broker's trouble: a word and a sentence; `known_by`: starts of the `of_pods` sentence."""

    reason: str
    message: str
    known_by: tuple[str, ...]


def of_pods(seen: Observation) -> list[str]:
    """Return what keeps brokers from being ready, one sentence each."""
    if seen.pods is None:
        return ["the group's pods cannot be listed"]
    if seen.group.spec.hibernated:
        return []
    out = []
    for broker in seen.group.brokers:
        pod = seen.pods.get(broker)
        if pod is None:
            out.append(without_pod(seen, broker))
        elif cause := of_pod(pod, facts.node_of(seen, broker)):
            out.append(f"{broker}: {cause}")
    return out


def without_pod(seen: Observation, broker: str) -> str:
    """Return that the broker has no pod, and why if the StatefulSet's controller reports it."""
    cause = seen.not_made.get(broker)
    return f"{broker} has no pod" + (f": {cause}" if cause else "")


def _no_image(pod: Pod) -> str:
    return f"image {pod.image} cannot be pulled: check spec.image and spec.imagePullSecrets"


def end_of(pod: Pod) -> str:
    """Return what the last end of the pod's container means."""
    return _ENDS.get(pod.end_reason) or EXITS.get(pod.exit_code or 0, "see its log")


def of_pod(pod: Pod, node: Node | None) -> str:
    """Return why the pod is not ready; "" = it is.

    No component reports on a node that is down any more, and the last report is not the reason.
    """
    if node is not None and node.ready is False and not pod.ready:
        return f"its node {node.name} is not ready (kubectl describe node {node.name})"
    if pod.deleting:
        return "is being stopped"
    if pod.phase is PodPhase.RUNNING and pod.ready:
        return ""
    text = f"{pod.waiting}{f' ({pod.message})' if pod.message else ''}" if pod.waiting else ""
    if pod.waiting == facts.CRASHED and pod.exit_code:
        text = pod.waiting  # its message names a pause that grows
    if pod.waiting in _NO_IMAGE:
        text = f"{_no_image(pod)}; {text}"
    ended = f"it ended with status {pod.exit_code}: {end_of(pod)}" if pod.exit_code else ""
    if text or ended:
        parts = (text, ended) if pod.waiting in _NOT_MADE else (ended, text)
        return "; ".join(part for part in parts if part)
    if pod.phase is PodPhase.RUNNING:
        return "is not ready: it is starting, or waiting for its role"
    return f"pod is {pod.phase.value}"


def refuses(seen: Observation, broker: str) -> str:
    """Return that the broker refuses messages; "" = it does not. Without figures: they change."""
    answer = facts.answer_of(seen, broker)
    if answer is None or not answer.refuses:
        return ""
    remedy = "lower settings.retentionBytes or retentionMs, or raise storage.size"
    return f"{broker} refuses messages: its disk is full: {remedy}"


def refusal(seen: Observation, broker: str) -> tuple[str, str] | None:
    """Return reason and message why a master that serves writes acknowledges no send, or None."""
    if cause := refuses(seen, broker):
        return "DiskFull", cause
    cause = _unacknowledged(seen)
    return ("NotAcknowledged", cause) if cause else None


def _unacknowledged(seen: Observation) -> str:
    """Return the server's own report; "" = it acknowledges, or is an older version."""
    periods = facts.periods_of(seen, facts.server_of(facts.state_of(seen)))
    return periods.unanswered if periods is not None and periods.writes_since_ms is None else ""


def of_disks(seen: Observation) -> list[str]:
    """Return what is wrong with journals of brokers that answer, one sentence each."""
    return [sentence for _, sentence in _on_disks(seen)]


def _on_disks(seen: Observation) -> Iterator[tuple[str, str]]:
    """Yield the reason for the Event, and the sentence."""
    for broker in seen.group.brokers:
        if cause := refuses(seen, broker):
            yield "DiskFull", cause
    for broker in seen.group.brokers:
        answer = facts.answer_of(seen, broker)
        if answer is not None and answer.damage:
            yield "JournalDamaged", f"the journal of {broker} is damaged: {answer.damage}"
    if cause := lost_journals.waits(seen):
        yield "JournalsLost", cause


def events(seen: Observation) -> Iterator[EmitEvent]:
    """Yield Events for troubles that the status does not report yet."""
    known = [c.message for c in seen.group.status.conditions]
    for found in () if seen.group.spec.hibernated else _in_pods(seen):
        if not any(mark in message for mark in found.known_by for message in known):
            yield EmitEvent("Warning", found.reason, found.message)
    for reason, sentence in _on_disks(seen):
        if not any(sentence in message for message in known):
            yield EmitEvent("Warning", reason, sentence)


def _in_pods(seen: Observation) -> Iterator[Trouble]:
    """Yield troubles that do not pass by themselves.

    Kubernetes' words alternate; these do not.
    """
    for broker in seen.group.brokers:
        pod = facts.pod_of(seen, broker)
        if pod is None and (cause := seen.not_made.get(broker)):
            text = f"{broker} has no pod: "
            yield Trouble("PodNotMade", f"{text}{cause}", (text,))
        if pod is None or pod.deleting or pod.ready:
            continue
        if pod.waiting in _NO_IMAGE:
            text = f"{broker}: {_no_image(pod)}"
            yield Trouble("ImageUnavailable", text, (text,))
        elif pod.waiting in _NO_CONTAINER:
            text = f"{broker}: {pod.waiting}: {pod.message}"
            yield Trouble("ContainerNotMade", text, (f"{broker}: {pod.waiting}",))
        elif pod.exit_code:
            ended = f"ended with status {pod.exit_code}: "
            text = f"{broker} {ended}{end_of(pod)}"
            yield Trouble("BrokerEnded", text, (f"{broker}: it {ended}",))
