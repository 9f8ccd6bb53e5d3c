"""Queries and faults that tests of plans share."""

from dataclasses import replace

from fmqoperator.core.actions import Action, EmitEvent, PutGroupConfig, Requeue, RestartPod
from fmqoperator.core.observation import PodPhase
from fmqoperator.tests.world import World


def kinds(actions: list[Action]) -> list[str]:
    return [type(a).__name__ for a in actions if not isinstance(a, EmitEvent | Requeue)]


def restarts(made: World) -> list[str]:
    return [a.pod for a in made.done if isinstance(a, RestartPod)]


def masters(made: World) -> list[str]:
    return [a.config.master for a in made.done if isinstance(a, PutGroupConfig)]


def event_reasons(made: World) -> list[str]:
    return [e.reason for e in made.events]


def budget(made: World) -> int:
    found: int = made.children["PodDisruptionBudget", "g1-master"]["spec"]["minAvailable"]
    return found


def replicas(made: World) -> int:
    found: int = made.children["StatefulSet", "g1"]["spec"]["replicas"]
    return found


def members(made: World) -> list[str]:
    assert made.config is not None
    return [str(m.id) for m in made.config.value.members]


def lose_master(made: World) -> None:
    """The master's pod is gone with its volume and does not come back."""
    made.broken.add("g1-0")
    made.pods["g1-0"] = replace(
        made.pods["g1-0"], ready=False, phase=PodPhase.PENDING, waiting="Unschedulable", node=""
    )
    made.nodes.pop("n0", None)
