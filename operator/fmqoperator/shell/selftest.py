"""What `helm test` runs: does the operator answer and work, and are the groups that it sees Ready?

    python -m fmqoperator.shell.selftest http://fmq-operator.fmq-system.svc:8080

Exit status 0: all is well; 1: a sentence on standard error says what is not.
"""

import asyncio
import os
import sys
import time
from itertools import product

import aiohttp

from fmqcore.errors import FmqError, Unavailable
from fmqoperator.api.base import Json
from fmqoperator.shell.kube import Kube, Ref, collection
from fmqoperator.shell.process import Options

_TIMEOUT_S = 60.0
_GROUPS_TIMEOUT_S = 180.0
_RETRY_S = 2.0


def main(arguments: list[str]) -> int:
    """Run the self-test; see the module."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)  # noqa: T201
        return 64
    try:
        asyncio.run(_look(arguments[0].rstrip("/"), os.environ.get("FMQ_NAMESPACE", "default")))
    except (FmqError, TimeoutError) as error:
        print(f"selftest: {error or 'time is out'}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


async def _look(operator: str, namespace: str) -> None:
    options = Options.read(os.environ)
    kube = Kube.connect()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while cause := await _not_yet(kube, operator, namespace, options.lease):
                print(f"waiting: {cause}")  # noqa: T201
                await asyncio.sleep(_RETRY_S)
        # It may list where the operator works, which may not be the operator's own namespace.
        watched = options.namespaces or (namespace,)
        for kind, where in product(("BrokerGroup", "BrokerJob", "Topic"), watched):
            found = await kube.ask("GET", collection(kind, where))
            print(f"{kind}: {len(found['items'])} in {where}")  # noqa: T201
        await _until_ready(kube, watched)
    finally:
        await kube.close()


async def _until_ready(kube: Kube, watched: tuple[str, ...]) -> None:
    """Wait for every group there to be Ready; raise `Unavailable` with the reason if one is not."""
    until_s = time.monotonic() + _GROUPS_TIMEOUT_S
    while True:
        lists = [await kube.ask("GET", collection("BrokerGroup", where)) for where in watched]
        bodies = [body for found in lists for body in found["items"]]
        unready = [cause for body in bodies if (cause := unready_reason(body))]
        if not unready:
            return
        if time.monotonic() > until_s:
            raise Unavailable("; ".join(unready))
        print(f"waiting: {'; '.join(unready)}")  # noqa: T201
        await asyncio.sleep(_RETRY_S)


def unready_reason(body: Json) -> str:
    """Return why a group does not serve as declared; "" if it does, or is not meant to now."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    if spec.get("paused") or spec.get("hibernated") or meta.get("deletionTimestamp"):
        return ""
    conditions = status.get("conditions") or ()
    ready: Json = next((c for c in conditions if c["type"] == "Ready"), {})
    current = ready.get("observedGeneration", meta["generation"]) == meta["generation"]
    if ready.get("status") == "True" and current:
        print(f"BrokerGroup {meta['name']}: Ready")  # noqa: T201
        return ""
    cause = (
        status.get("message") or ready.get("message") or "the operator has not reconciled it yet"
    )
    return (
        f"BrokerGroup {meta['namespace']}/{meta['name']} is {status.get('phase', 'new')}: {cause}"
    )


async def _not_yet(kube: Kube, operator: str, namespace: str, name: str) -> str:
    """Return why the operator is not well; "" if it is. `name`: its Lease."""
    try:
        async with aiohttp.ClientSession() as http:
            for page in ("healthz", "readyz", "metrics"):
                async with http.get(f"{operator}/{page}") as reply:
                    if reply.status != 200:
                        return f"/{page} returns {reply.status}: {await reply.text()}"
    except (aiohttp.ClientError, OSError) as error:
        return f"the operator does not answer at {operator}: {error}"
    try:
        lease = await kube.get(Ref("Lease", namespace, name))
    except Unavailable as error:
        return str(error)
    if lease is None or not lease["spec"].get("holderIdentity"):
        return "no replica holds the Lease"
    print(f"the operator's answers are fine; {lease['spec']['holderIdentity']} works")  # noqa: T201
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
