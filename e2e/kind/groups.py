"""A BrokerGroup on the cluster, and traffic against it, as tests use them."""

import json
import time
from typing import Any

from e2e.kind.tools import ROOT, Failed, apply, get, kubectl, until

Json = dict[str, Any]
SECURITY: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Group:
    """One broker group."""

    def __init__(self, name: str, namespace: str, zookeeper: str, image: str) -> None:
        self.name, self.namespace = name, namespace
        self.image = image  # of pods with traffic
        self.spec: Json = {
            "replicas": 2,
            "zookeeper": {"connect": zookeeper},
            "storage": {"size": "1Gi"},
        }

    def make(self) -> None:
        """Apply namespace and resource. The namespace allows restricted pods alone."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        apply(
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": self.namespace, "labels": labels},
            }
        )
        self.apply()

    def apply(self, **annotations: str) -> None:
        """Apply the resource with the current `spec`."""
        apply(
            {
                "apiVersion": "fmq.io/v1alpha1",
                "kind": "BrokerGroup",
                "metadata": {
                    "name": self.name,
                    "namespace": self.namespace,
                    "annotations": annotations,
                },
                "spec": self.spec,
            }
        )

    @property
    def brokers(self) -> list[str]:
        """The names of the declared brokers."""
        return [f"{self.name}-{number}" for number in range(self.spec["replicas"])]

    @property
    def status(self) -> Json:
        """The status that the operator wrote."""
        found = get("brokergroup", self.name, "-n", self.namespace)
        return (found or {}).get("status") or {}

    def condition(self, kind: str) -> Json:
        """Return the condition of that type; {} if the group has none."""
        conditions = self.status.get("conditions") or []
        found: Json = next((c for c in conditions if c["type"] == kind), {})
        return found

    def wait_ready(self, patience_s: float = 180) -> float:
        """Wait until the group serves as declared; return the seconds that took."""
        start_s = time.monotonic()

        def ready() -> bool:
            found = get("brokergroup", self.name, "-n", self.namespace) or {}
            conditions = (found.get("status") or {}).get("conditions") or ()
            condition: Json = next((c for c in conditions if c["type"] == "Ready"), {})
            current = condition.get("observedGeneration") == found["metadata"]["generation"]
            return condition.get("status") == "True" and current

        try:
            until(ready, f"{self.name} is Ready", patience_s)
        except Failed as error:
            reasons = [f"{self.row()}: {self.status.get('message')}", *self._waiting()]
            raise Failed(f"{error}; its status: {'; '.join(reasons)}") from None
        return time.monotonic() - start_s

    def _waiting(self) -> list[str]:
        """Return why the group's pods are not scheduled."""
        conditions = [c for pod in self.pods() for c in pod["status"].get("conditions") or ()]
        return [c["message"] for c in conditions if c["status"] == "False" and c.get("message")]

    def events(self) -> list[str]:
        """Return the reasons of the group's Events."""
        return [e["reason"] for e in self._events()]

    def messages(self, reason: str) -> list[str]:
        """Return the messages of the group's Events with that reason, in order."""
        events = [e for e in self._events() if e["reason"] == reason]
        events.sort(key=lambda e: e.get("eventTime") or e.get("lastTimestamp") or "")
        return [e["message"] for e in events]

    def _events(self) -> list[Json]:
        """Return the group's Events."""
        found = get("events", "-n", self.namespace)["items"]
        return [e for e in found if e["involvedObject"]["name"] == self.name]

    def pods(self) -> list[Json]:
        """Return the group's pods."""
        found = get("pods", "-n", self.namespace, "-l", f"fmq.io/group={self.name}")
        items: list[Json] = found["items"]
        return items

    def row(self) -> str:
        """Return the group's row of `kubectl get bg`."""
        shown = kubectl("get", "bg", self.name, "-n", self.namespace, "--no-headers")
        return " ".join(shown.split())

    def in_pod(self, script: str, name: str = "try") -> str:
        """Run a shell script in a pod with the broker's image; return its output."""
        self._start(name, ["sh", "-ec", script])
        return self.finished(name)

    def start_traffic(self, seconds: int, every_ms: int = 20, name: str = "traffic") -> None:
        """Start a pod that sends and receives messages; return when they flow."""
        text = (ROOT / "e2e" / "kind" / "traffic.py").read_text()
        brokers = f"fmq://{self.name}-rw:9876,{self.name}-ro:9876"
        command = ["python", "-c", text, brokers, name, str(seconds), str(every_ms)]
        self._start(name, command)
        until(lambda: "started" in self._logs(name), "traffic flows")

    def verdict(self, name: str = "traffic", patience_s: float = 240) -> Json:
        """Return the verdict of the traffic."""
        output = self.finished(name, patience_s, may_fail=True)
        lines = [line for line in output.splitlines() if line.startswith("verdict ")]
        assert lines, f"traffic ended without a verdict:\n{output}"
        found: Json = json.loads(lines[-1].removeprefix("verdict "))
        return found

    def finished(self, name: str, patience_s: float = 120, *, may_fail: bool = False) -> str:
        """Wait for the end of such a pod, delete it and return its output."""

        def phase() -> str:
            found = get("pod", name, "-n", self.namespace)["status"].get("phase", "")
            return found if found in ("Succeeded", "Failed") else ""

        ended = until(phase, f"pod {name} ends", patience_s)
        output = self._logs(name)
        kubectl("delete", "pod", name, "-n", self.namespace, "--wait=false")
        assert may_fail or ended == "Succeeded", output
        return output

    def _logs(self, name: str) -> str:
        pod = get("pod", name, "-n", self.namespace)
        if not pod or pod["status"].get("phase") in ("Pending", None):
            return ""
        return kubectl("logs", name, "-n", self.namespace)

    def _start(self, name: str, command: list[str]) -> None:
        container = {
            "name": "main",
            "image": self.image,
            "command": command,
            "securityContext": SECURITY,
            "env": [{"name": "FMQ_BROKERS", "value": f"fmq://{self.name}-rw:9876"}],
        }
        kubectl("delete", "pod", name, "-n", self.namespace, "--ignore-not-found")
        apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            }
        )
