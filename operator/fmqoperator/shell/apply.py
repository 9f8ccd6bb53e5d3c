"""Apply the actions of a plan, each by one call and each safe to take twice.

Order: as in the plan; the first that fails ends the round (`Failed` has which and why), and the
next round observes again.
"""

import time
from dataclasses import dataclass, field, replace
from typing import assert_never

import structlog

from fmqcore.errors import FmqError
from fmqoperator.api.group import BrokerGroup
from fmqoperator.api.parts import Reclaim
from fmqoperator.core.actions import (
    Action,
    ApplyChild,
    BeginAgain,
    ChangeAnnotation,
    DeleteChild,
    EmitEvent,
    GrowClaim,
    KeepVolumes,
    OwnClaim,
    PutGroupConfig,
    RemoveAnnotation,
    Requeue,
    RestartPod,
    SwitchSends,
)
from fmqoperator.core.children import names
from fmqoperator.core.children.drift import drifted
from fmqoperator.core.observation import Failure
from fmqoperator.core.write_conflicts import Contests, Key, words
from fmqoperator.shell.brokers import Brokers
from fmqoperator.shell.events import Events
from fmqoperator.shell.kube import CONFLICT, Json, Kube, KubeError, Ref
from fmqoperator.shell.zookeeper import Ensembles
from fmqproto.v1 import admin_pb2
from fmqwire.methods import ORDERED_SWITCH

_log = structlog.get_logger()


class Failed(Exception):
    """An action was not done."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Outdated(Exception):
    """An action was not taken: the object was changed since the look. Look again."""


@dataclass(frozen=True, slots=True)
class Applier:
    """Takes the actions of a plan."""

    kube: Kube
    ensembles: Ensembles
    events: Events
    brokers: Brokers
    contests: Contests = field(default_factory=Contests)

    async def do(self, group: BrokerGroup, body: Json, action: Action) -> None:
        """Take one action. Raises `Failed`, `Outdated`."""
        try:
            if isinstance(action, ApplyChild):
                if (due := await self._due(group, body, action)) is None:
                    return
                action = due
            if await self._do(group, body, action):
                self._note(group, action)
        except TimeoutError:
            raise Failed(Failure(_what(action), "NoAnswer", "no answer in time")) from None
        except KubeError as error:
            if isinstance(action, ApplyChild) and action.generation and error.reason == CONFLICT:
                raise Outdated(str(error)) from error
            raise Failed(Failure(_what(action), error.reason, str(error))) from error
        except FmqError as error:
            raise Failed(Failure(_what(action), type(error).__name__, str(error))) from error

    async def _do(self, group: BrokerGroup, body: Json, action: Action) -> bool:
        """Take the action; return whether there was something to do after all."""
        kube, namespace = self.kube, group.metadata.namespace
        match action:
            case ApplyChild():
                await kube.apply(_ref(group, action.manifest), action.manifest)
                key = _key(group, action.manifest)
                self.contests.made(key, action.manifest, time.monotonic())
            case DeleteChild():
                await kube.delete(Ref(action.kind, namespace, action.name), action.uid)
            case GrowClaim():
                size = {"spec": {"resources": {"requests": {"storage": action.size}}}}
                await kube.merge(Ref("PersistentVolumeClaim", namespace, action.claim), size)
            case OwnClaim():
                return await self._own(group, action)
            case KeepVolumes():
                meta = {"uid": action.uid}
                spec = {"persistentVolumeClaimRetentionPolicy": {"whenScaled": "Retain"}}
                ref = Ref("StatefulSet", namespace, action.name)
                await kube.merge(ref, {"metadata": meta, "spec": spec})
            case PutGroupConfig():
                ensemble = self.ensembles.of(group.spec.zookeeper.connect)
                await ensemble.put_config(group.cluster, action.config, action.version)
            case BeginAgain():
                ensemble = self.ensembles.of(group.spec.zookeeper.connect)
                await ensemble.begin_again(group.cluster, group.name, action.epoch)
            case SwitchSends():
                await self._switch(group, action)
            case RestartPod():
                await kube.delete(Ref("Pod", namespace, action.pod), action.uid)
            case RemoveAnnotation():
                await self._annotate(group, action.name, action.value, {"op": "remove"})
            case ChangeAnnotation():
                change = {"op": "replace", "value": action.to}
                await self._annotate(group, action.name, action.value, change)
            case EmitEvent():
                await self.events.emit(body, action.type, action.reason, action.message)
            case Requeue():
                pass  # the worker's
            case _:
                assert_never(action)
        return True

    async def _switch(self, group: BrokerGroup, action: SwitchSends) -> None:
        """Ask a broker of the group; any broker of the cluster could answer."""
        ensemble = self.ensembles.of(group.spec.zookeeper.connect)
        request = admin_pb2.OrderedSwitchRequest(
            topic=action.topic, chain_segment=action.segment, reason=action.cause
        )
        addresses = await ensemble.addresses(group.cluster, [group.name])
        await self.brokers.change(addresses, ORDERED_SWITCH, request)

    async def _own(self, group: BrokerGroup, action: OwnClaim) -> bool:
        """Change a claim's owners as of now: the look may be older than the wish to keep volumes.

        The claim is read before the group. A client that deletes a group and orphans what it owns
        has marked the group before its claims lose their owner: a reader that sees the loss also
        sees the mark.
        """
        ref = Ref("PersistentVolumeClaim", group.metadata.namespace, action.claim)
        there = await self.kube.get(ref)
        if there is None or there["metadata"]["uid"] != action.uid:
            return False
        has = {owner["uid"] for owner in there["metadata"].get("ownerReferences") or ()}
        owners: list[Json] = [
            {"$patch": "delete", "uid": uid} for uid in action.drops if uid in has
        ]
        own = action.goes and group.metadata.uid not in has
        if own and await self._takes_volumes(group):
            owners.append(names.owner(group))
        if owners:
            meta = {"uid": action.uid, "ownerReferences": owners}
            await self.kube.mend(ref, {"metadata": meta})
        return bool(owners)

    async def _takes_volumes(self, group: BrokerGroup) -> bool:
        """Whether the group with this uid exists, stays, and is declared to delete its volumes."""
        there = await self.kube.get(Ref("BrokerGroup", group.metadata.namespace, group.name))
        meta = {} if there is None else there["metadata"]
        if there is None or meta["uid"] != group.metadata.uid or "deletionTimestamp" in meta:
            return False
        storage = there["spec"].get("storage") or {}
        return bool(storage.get("onDelete") == Reclaim.DELETE.value)

    async def _due(self, group: BrokerGroup, body: Json, action: ApplyChild) -> ApplyChild | None:
        """Return the manifest to apply, if the child still differs and no other writer insists.

        An operator that was stopped for a while, and replaced, must not undo what the next one has
        done: what was looked at is applied only to that very version. Raises `Outdated`.
        """
        manifest = action.manifest
        there = await self.kube.get(_ref(group, manifest))
        if there is None:
            return action
        if not drifted(manifest, there):
            return None  # the look was an older one
        meta = there["metadata"]
        if action.generation not in (0, meta.get("generation", 0)):
            raise Outdated(f"{_what(action)} was changed since the look")
        if self.contests.is_lost(_key(group, manifest), manifest, time.monotonic()):
            await self.events.emit(body, "Warning", "Contested", words(manifest, there))
            return None
        if not action.generation:
            return action
        version = {"resourceVersion": meta["resourceVersion"]}
        return replace(action, manifest={**manifest, "metadata": manifest["metadata"] | version})

    def _note(self, group: BrokerGroup, action: Action) -> None:
        """Log what was done. (The worker logs what could not be done, once.)"""
        if not isinstance(action, EmitEvent | Requeue):
            resource = f"{group.metadata.namespace}/{group.metadata.name}"
            _log.info("action_taken", resource=resource, action=_what(action), reason=action.cause)

    async def _annotate(self, group: BrokerGroup, name: str, value: str, change: Json) -> None:
        """Change the annotation if it still has that value."""
        path = "/metadata/annotations/" + name.replace("~", "~0").replace("/", "~1")
        steps: list[Json] = [{"op": "test", "path": path, "value": value}, {**change, "path": path}]
        ref = Ref("BrokerGroup", group.metadata.namespace, group.metadata.name)
        try:
            await self.kube.edit(ref, steps)
        except KubeError as error:
            if error.status not in (404, 422):  # gone, or it has another value by now
                raise


def _ref(group: BrokerGroup, manifest: Json) -> Ref:
    return Ref(manifest["kind"], group.metadata.namespace, manifest["metadata"]["name"])


def _key(group: BrokerGroup, manifest: Json) -> Key:
    return (group.metadata.uid, manifest["kind"], manifest["metadata"]["name"])


def _what(action: Action) -> str:
    """Return the action in words for people, and for `Failure.what`."""
    match action:
        case ApplyChild():
            return f"{action.manifest['kind']} {action.manifest['metadata']['name']}"
        case DeleteChild():
            return f"delete {action.kind} {action.name}"
        case GrowClaim() | OwnClaim():
            return f"PersistentVolumeClaim {action.claim}"
        case KeepVolumes():
            return f"StatefulSet {action.name}"
        case PutGroupConfig():
            return "ZooKeeper config"
        case BeginAgain():
            return "ZooKeeper state"
        case SwitchSends():
            return f"switch of ordered topic {action.topic}"
        case RestartPod():
            return f"restart {action.pod}"
        case RemoveAnnotation() | ChangeAnnotation():
            return f"annotation {action.name}"
        case EmitEvent():
            return f"event {action.reason}"
        case Requeue():
            return "requeue"
        case _:
            assert_never(action)
