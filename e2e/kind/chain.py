"""An ordered topic over broker groups of one namespace, as tests use it."""

from collections.abc import Sequence

from e2e.kind.groups import Group, Json
from e2e.kind.tools import apply, get, until

SENDERS = 2  # of a story's traffic: one is active, one waits in line


class Chain:
    """A Topic with `spec.ordered`."""

    def __init__(self, name: str, groups: Sequence[Group]) -> None:
        self.name, self.groups = name, groups
        self.namespace = groups[0].namespace

    def declare(self, *names: str) -> None:
        """Apply the resource, with the chain over these groups (default: all)."""
        chosen = names or tuple(group.name for group in self.groups)
        apply(
            {
                "apiVersion": "fmq.io/v1alpha1",
                "kind": "Topic",
                "metadata": {"name": self.name, "namespace": self.namespace},
                "spec": {
                    "zookeeper": self.groups[0].spec["zookeeper"],
                    "ordered": {"groups": [{"group": name} for name in chosen]},
                },
            }
        )

    @property
    def status(self) -> Json:
        """The status that the operator wrote."""
        found = get("topic.fmq.io", self.name, "-n", self.namespace)
        return (found or {}).get("status") or {}

    @property
    def ordered(self) -> Json:
        """The chain in the status; {} before there is one."""
        found: Json = self.status.get("ordered") or {}
        return found

    def condition(self, kind: str) -> Json:
        """Return the condition of that type; {} if the topic has none."""
        conditions = self.status.get("conditions") or []
        found: Json = next((c for c in conditions if c["type"] == kind), {})
        return found

    def is_(self, kind: str, status: str) -> bool:
        """Whether the condition has that status."""
        return bool(self.condition(kind).get("status") == status)

    def wait_ready(self) -> None:
        """Wait until it is as declared."""
        until(lambda: self.is_("Ready", "True"), f"topic {self.name} is ready", 120)

    def wait_calm(self) -> None:
        """Wait until sends flow with another sender in line, and no consumer is blocked."""
        until(self._is_calm, f"topic {self.name} sends, and no consumer is blocked", 120)

    def _is_calm(self) -> bool:
        senders, is_open = self.ordered.get("senders"), self.ordered.get("phase") == "Open"
        sends = self.is_("SendAvailable", "True") and self.is_("ConsumersBlocked", "False")
        return sends and is_open and senders == SENDERS

    def sending_group(self) -> Group:
        """Wait until a segment is open; return its group."""
        name = until(lambda: self.ordered.get("sendingGroup"), "a segment is open", 60)
        return next(group for group in self.groups if group.name == name)

    def events(self, reason: str) -> list[str]:
        """Return the messages of the topic's Events with that reason."""
        found = get("events", "-n", self.namespace)["items"]
        ours = (e for e in found if e["involvedObject"]["kind"] == "Topic")
        return [
            e["message"]
            for e in ours
            if (e["involvedObject"]["name"], e["reason"]) == (self.name, reason)
        ]
