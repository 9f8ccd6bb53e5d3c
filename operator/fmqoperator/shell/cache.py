"""What kopf's watches know of the cluster, by group: live views, read and never written.

kopf fills its indices before it calls any handler, so an object that is in no view, once there are
views, is not in the cluster either, as of the newest event. Until then nothing is known.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from fmqoperator.core.children import names
from fmqoperator.core.observation import Claim, Node, Pod
from fmqoperator.shell.decoding import claim_of, class_of, pod_of

Key = tuple[str, str]
"""Namespace and name of a BrokerGroup."""
Json = dict[str, Any]

SPARK: Final = "sparkapplications.sparkoperator.k8s.io"

CHILDREN: Final = (
    ("apps", "v1", "statefulsets", "StatefulSet"),
    ("", "v1", "services", "Service"),
    ("", "v1", "configmaps", "ConfigMap"),
    ("", "v1", "serviceaccounts", "ServiceAccount"),
    ("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    ("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
)
"""API group, version, plural and kind of a group's objects."""


class Cache:
    """Views of the cluster. `views`: kopf's indices by name, once there are some."""

    def __init__(self) -> None:
        self.views: Mapping[str, Any] = {}

    def children(self, key: Key) -> Mapping[tuple[str, str], Json] | None:
        """Return a group's objects by kind and name; None: not known."""
        if not self.views:
            return None
        return {
            (kind, body["metadata"]["name"]): body
            for _, _, plural, kind in CHILDREN
            for body in self._of(plural, key)
        }

    def stateful_set(self, key: Key) -> Json | None:
        """Return a group's StatefulSet; None: there is none, or it is not known."""
        return (self.children(key) or {}).get(("StatefulSet", key[1]))

    def pods(self, key: Key) -> Mapping[str, Pod] | None:
        """Return a group's pods by name. A pod that only has the label is no broker's."""
        if not self.views:
            return None
        found = {}
        for body in self._of("pods", key):
            if not names.is_broker(key[1], body["metadata"]["name"]):
                continue
            node = self._node((body.get("spec") or {}).get("nodeName") or "")
            pod = pod_of(body, node.zone if node is not None else "")
            found[pod.name] = pod
        return found

    def claims(self, key: Key) -> Mapping[str, Claim] | None:
        """Return a group's claims by name; None: not known."""
        if not self.views:
            return None
        found = [claim_of(b, self._expandable(class_of(b))) for b in self._of("claims", key)]
        return {claim.name: claim for claim in found}

    def nodes(self, names: Iterable[str]) -> Mapping[str, Node]:
        """Return the named nodes, as far as they are known."""
        found = {name: self._node(name) for name in sorted(set(names))}
        return {name: node for name, node in found.items() if node is not None}

    def group(self, key: Key) -> Json | None:
        """Return a BrokerGroup; None: it is not there, or not known."""
        found = self._of("groups", key)
        return found[0] if found else None

    def updating(self) -> Iterator[tuple[Key, str]]:
        """Yield every BrokerGroup, and the update that its status reports."""
        for key in self.views.get("groups") or ():
            body = self.group(key) or {}
            yield key, ((body.get("status") or {}).get("memory") or {}).get("restartTurn") or ""

    def topics(self, cluster: str, name: str) -> list[Json]:
        """Return the Topics that declare a topic of that name in that cluster."""
        return self._of("topics", (cluster, name))

    def jobs_of(self, key: Key) -> list[Json]:
        """Return the BrokerJobs that name that group."""
        return self._of("jobs_of_groups", key)

    def job_pods(self, key: Key) -> list[Json] | None:
        """Return the pods of a BrokerJob; None: not known."""
        return self._of("job_pods", key) if self.views else None

    def jobs(self, key: Key) -> list[Json] | None:
        """Return the Jobs of a BrokerJob; None: not known."""
        return self._of("jobs", key) if self.views else None

    @property
    def knows_spark(self) -> bool:
        """Whether the cluster knows SparkApplications."""
        return bool((self.views.get("definitions") or {}).get(SPARK, ()))

    def groups_on(self, node: str) -> list[Key]:
        """Return the groups that have a pod on that node."""
        pods = self.views.get("pods") or {}
        return [
            key for key in pods if any(_node_name(body) == node for body in self._of("pods", key))
        ]

    def _of(self, view: str, key: Key) -> list[Json]:
        found = self.views.get(view)
        return [dict(body) for body in (found.get(key, ()) if found is not None else ())]

    def _node(self, name: str) -> Node | None:
        view = self.views.get("nodes")
        found: list[Node] = list(view.get(name, ())) if view is not None else []
        return found[0] if found else None

    def _expandable(self, storage_class: str) -> bool | None:
        view = self.views.get("classes")
        found = list(view.get(storage_class, ())) if view is not None else []
        return bool(found[0]) if found else None


def _node_name(body: Json) -> str:
    return (body.get("spec") or {}).get("nodeName") or ""
