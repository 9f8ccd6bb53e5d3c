"""The only access to Kubernetes' API: a few calls on JSON objects (kopf watches by itself).

Everything that the operator owns is written by server-side apply; every other write has a
precondition. Errors carry the API server's own words. Leaves nothing behind.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import kopf

from fmqcore.errors import Unavailable
from fmqoperator.core.children import names

Json = dict[str, Any]

FIELD_MANAGER: Final = "fmq-operator"
NAMESPACE_ENDS: Final = "NamespaceTerminating"
"""Reason of a refusal: nothing can be created in a namespace that is being deleted."""
CONFLICT: Final = "Conflict"
"""Reason of a refusal: the object has another version than the one in the request."""
NOT_OURS: Final = "NotOurs"
_MARKS: Final = ("app.kubernetes.io/managed-by", names.GROUP_LABEL, names.JOB_LABEL)
_TIMEOUT_S: Final = 20.0
_TOKEN_S: Final = 60.0  # interval of reading the service account's token, which is rotated

PLURALS: Final[Mapping[str, tuple[str, str]]] = {
    "BrokerGroup": ("fmq.io/v1alpha1", "brokergroups"),
    "BrokerJob": ("fmq.io/v1alpha1", "brokerjobs"),
    "ConfigMap": ("v1", "configmaps"),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions"),
    "Event": ("v1", "events"),
    "Job": ("batch/v1", "jobs"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "Node": ("v1", "nodes"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "Pod": ("v1", "pods"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "Service": ("v1", "services"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "SparkApplication": ("sparkoperator.k8s.io/v1beta2", "sparkapplications"),
    "StorageClass": ("storage.k8s.io/v1", "storageclasses"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "Topic": ("fmq.io/v1alpha1", "topics"),
}
"""The kinds that the operator reads or writes: kind → API version and the name in paths."""


class KubeError(Unavailable):
    """The API server refused, or did not answer (`status` 0)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Ref:
    """The reference of one object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """The object's path in the API."""
        return f"{collection(self.kind, self.namespace)}/{self.name}"


def collection(kind: str, namespace: str = "") -> str:
    """Return the path of a kind's objects in a namespace; "" = in all, or of none."""
    version, plural = PLURALS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{namespace}/{plural}" if namespace else f"{root}/{plural}"


class Kube:
    """A client. Create it inside the running loop; `close` it."""

    def __init__(self, credentials: kopf.ConnectionInfo) -> None:
        self.writes = 0  # number of requests that may change something
        self._credentials = credentials
        self._read_at = time.monotonic()
        connector = aiohttp.TCPConnector(ssl=credentials.as_ssl_context(), limit=16)
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)

    @classmethod
    def connect(cls) -> "Kube":
        """Connect with this pod's service account, else a KUBECONFIG. Raises `KubeError`."""
        found = credentials()
        if found is None:
            raise KubeError(
                0, "NoCredentials", "no way to Kubernetes: neither in a pod, nor a KUBECONFIG"
            )
        return cls(found)

    async def close(self) -> None:
        """Close the client's connections."""
        await self._session.close()

    async def get(self, ref: Ref) -> Json | None:
        """Return the object; None: there is none."""
        try:
            return await self.ask("GET", ref.path)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def labelled(self, kind: str, namespace: str, label: str, value: str) -> list[Json]:
        """Return all objects of a kind with that label."""
        query = {"labelSelector": f"{label}={value}"}
        found = await self.ask("GET", collection(kind, namespace), query=query)
        items: list[Json] = found["items"]
        return items

    async def events_of(self, namespace: str, uid: str) -> list[Json]:
        """Return the Events about an object of that namespace."""
        query = {"fieldSelector": f"involvedObject.uid={uid}"}
        found = await self.ask("GET", collection("Event", namespace), query=query)
        items: list[Json] = found["items"]
        return items

    async def create(self, kind: str, namespace: str, body: Json) -> Json:
        """Create an object; `KubeError` 409 if it exists."""
        return await self.ask("POST", collection(kind, namespace), body)

    async def replace(self, ref: Ref, body: Json) -> Json:
        """Replace the object if `body` has its newest `resourceVersion` (else 409)."""
        return await self.ask("PUT", ref.path, body)

    async def apply(self, ref: Ref, body: Json) -> Json:
        """Server-side apply: the operator's fields are as in `body`, others' stay.

        With a `resourceVersion` in `body`, only to that version (else 409, `CONFLICT`).

        Raises `KubeError` if an object of that name does not belong to the owner of `body`: it
        would be changed by force, and go with an owner that it never had.
        """
        there = await self.get(ref)
        if there is not None and not is_ours(there, body):
            owner = body["metadata"]["ownerReferences"][0]
            message = f"{ref} exists, and {owner['kind']} {owner['name']} does not own it"
            raise KubeError(409, NOT_OURS, f"{message}: rename it, or that {owner['kind']}")
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self.ask("PATCH", ref.path, body, "application/apply-patch+yaml", query)

    async def merge(self, ref: Ref, body: Json, part: str = "") -> Json:
        """Merge patch; of the subresource `part` if named."""
        path = f"{ref.path}/{part}" if part else ref.path
        query = {"fieldManager": FIELD_MANAGER}
        return await self.ask("PATCH", path, body, "application/merge-patch+json", query)

    async def mend(self, ref: Ref, body: Json) -> Json:
        """Strategic merge patch: in lists whose items have a key it changes only those in `body`.

        (Owner references: the key is their uid.) Not for custom resources.
        """
        kind = "application/strategic-merge-patch+json"
        return await self.ask("PATCH", ref.path, body, kind, {"fieldManager": FIELD_MANAGER})

    async def edit(self, ref: Ref, steps: list[Json]) -> Json:
        """JSON patch: all steps or none, `test` among them."""
        return await self.ask("PATCH", ref.path, steps, "application/json-patch+json")

    async def delete(self, ref: Ref, uid: str = "") -> None:
        """Delete the object (that very one, with `uid`); one that is gone is no error."""
        body: Json = {"propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        try:
            await self.ask("DELETE", ref.path, body)
        except KubeError as error:
            if error.status not in (404, 409):
                raise

    async def ask(
        self,
        verb: str,
        path: str,
        body: Json | list[Json] | None = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Json:
        """Send one request. Raises `KubeError`."""
        self.writes += verb != "GET"
        headers = {**self._headers(), "Content-Type": content_type, "Accept": "application/json"}
        data = None if body is None else json.dumps(body)
        url = self._credentials.server.rstrip("/") + path
        try:
            async with self._session.request(
                verb, url, data=data, headers=headers, params=query
            ) as reply:
                text = await reply.text()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            cause = str(error) or type(error).__name__
            raise KubeError(0, "NoAnswer", f"the API server does not answer: {cause}") from error
        if reply.status >= 400:
            raise _refusal(reply.status, text)
        answer: Json = json.loads(text)
        return answer

    def _headers(self) -> dict[str, str]:
        if time.monotonic() - self._read_at > _TOKEN_S:
            self._credentials = credentials() or self._credentials
            self._read_at = time.monotonic()
        return self._credentials.as_http_headers()


def is_ours(there: Json, wanted: Json) -> bool:
    """Whether an object has the wanted owner, or by its labels an earlier owner of that name."""
    meta, asked = there["metadata"], wanted["metadata"]
    owners = {owner["uid"] for owner in asked["ownerReferences"]}
    if any(owner.get("uid") in owners for owner in meta.get("ownerReferences") or ()):
        return True
    has, labels = meta.get("labels") or {}, asked["labels"]
    return all(has.get(name) == labels[name] for name in _MARKS if name in labels)


def credentials() -> kopf.ConnectionInfo | None:
    """Return this pod's service account, else the current context of a KUBECONFIG."""
    settings = kopf.OperatorSettings()
    return kopf.login_with_service_account(settings=settings) or kopf.login_with_kubeconfig(
        settings=settings
    )


def _refusal(status: int, text: str) -> KubeError:
    try:
        body = json.loads(text)
        causes = [c.get("reason") for c in (body.get("details") or {}).get("causes") or ()]
        reason = NAMESPACE_ENDS if NAMESPACE_ENDS in causes else body.get("reason")
        return KubeError(status, reason or str(status), body.get("message") or text)
    except (ValueError, AttributeError):
        return KubeError(status, str(status), text[:500] or f"HTTP status {status}")
