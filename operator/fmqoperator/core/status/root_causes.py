"""The faults that cause a group's other troubles: status messages name them first. Pure.

A rollout that waits for a slave, or a group without a master, is a consequence. The cause is an
image that cannot be pulled, a memory limit, a full disk, a node that is down: waiting does not end
it, and a person can mend it.
"""

from collections.abc import Iterable

from fmqoperator.core import broker_trouble as trouble
from fmqoperator.core import facts
from fmqoperator.core import pending_brokers as awaited
from fmqoperator.core.children import volumes
from fmqoperator.core.event_dedup import lasting
from fmqoperator.core.observation import Observation, PodPhase
from fmqoperator.core.plan_types import Verdict

BROKERS_CUT = "BrokersCut"
"""Reason of ZooKeeperConnected: brokers cannot reach an ensemble that the operator reaches."""


def root_causes(seen: Observation, found: Iterable[Verdict]) -> list[str]:
    """Return one sentence each, the worst first; `found`: conditions of the same observation."""
    pods = [cause for broker in seen.group.brokers if (cause := of_broker(seen, broker))]
    out = [*pods, *trouble.of_disks(seen)]
    failed = (v for v in found if v.status == "False")
    out += [v.message for v in failed if _is_cause(v, bool(pods))]
    out += [event.message for event in lasting(seen.failures)]
    return list(dict.fromkeys(out))


def first(causes: list[str], sentences: Iterable[str]) -> list[str]:
    """Return the sentences with their causes before them, each once."""
    return list(dict.fromkeys([*causes, *filter(None, sentences)]))


def of_broker(seen: Observation, broker: str) -> str:
    """Return what keeps this broker from work and does not pass by itself; "" = none known."""
    if seen.pods is None or seen.group.spec.hibernated or awaited.goes_well(seen, broker):
        return ""
    pod = facts.pod_of(seen, broker)
    if pod is None:
        return trouble.without_pod(seen, broker)
    node, answer = facts.node_of(seen, broker), facts.answer_of(seen, broker)
    runs = pod.phase is PodPhase.RUNNING and not pod.exit_code and not pod.waiting
    if runs and answer is not None and answer.cause and (node is None or node.ready is not False):
        return f"{broker}: {answer.cause}"
    return f"{broker}: {trouble.of_pod(pod, node)}"


def _is_cause(verdict: Verdict, pods_fail: bool) -> bool:
    """Whether a verdict is a cause; a volume not bound yet is one only while a pod waits for it."""
    if verdict.type == volumes.KIND:
        unbound = verdict.reason == volumes.NOT_BOUND and pods_fail
        return verdict.reason in volumes.REPORTED or unbound
    return verdict.reason == BROKERS_CUT
