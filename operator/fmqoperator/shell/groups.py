"""Rounds of BrokerGroups: observe → plan → apply → status."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import structlog
from pydantic import ValidationError

from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.ids import BrokerId
from fmqoperator.api.base import MAX_BROKERS
from fmqoperator.api.group import BrokerGroup, read_group
from fmqoperator.api.parts import Reclaim
from fmqoperator.core.actions import Requeue
from fmqoperator.core.children import names, ownership
from fmqoperator.core.desired_config import conflict
from fmqoperator.core.event_dedup import OLD_DEFINITION
from fmqoperator.core.facts import outdated
from fmqoperator.core.observation import Claim, Failure, Observation
from fmqoperator.core.ordered_sends import asks
from fmqoperator.core.outlook import outlook
from fmqoperator.core.plan import plan
from fmqoperator.core.restart_turns import OWN, holding, is_same_cluster, updating
from fmqoperator.core.status.group import status
from fmqoperator.shell.apply import Applier, Failed, Outdated
from fmqoperator.shell.clock import wall_ms
from fmqoperator.shell.keeper import RESYNC_S, Key, Outcome
from fmqoperator.shell.kube import Json
from fmqoperator.shell.observe import Observer
from fmqoperator.shell.unreadable import report_unreadable
from fmqoperator.shell.zookeeper import Ensemble

_log = structlog.get_logger()
_MAX_AGE_S: Final = 10.0  # an API server may be slow: what stops a broker is done by a newer look
_RETRY_S: Final = 0.1
_AGAIN_S: Final = 1.0  # the watch that reports the change wakes the worker before
_CLEANUP_POLL_S: Final = 2.0
_CLEANUP_TRIES: Final = 60  # and for as long as a broker may take to stop


class Groups:
    """The `Rounds` of BrokerGroups."""

    def __init__(self, observer: Observer, applier: Applier) -> None:
        self._observer = observer
        self._applier = applier
        self._watched: dict[Key, tuple[tuple[Ensemble, str], Callable[[], None]]] = {}
        self._turns: dict[Key, str] = {}  # of groups looked at: what they are being given
        self._seen: set[Key] = set()  # those whose state was read at the last look
        self._uids: dict[Key, str] = {}  # of the groups that have rounds
        self._ending: dict[tuple[Key, str], str] = {}  # deleted, by uid: what is there still

    async def round(
        self, key: Key, body: Json, failures: tuple[Failure, ...], wake: Callable[[], None]
    ) -> Outcome:
        """See `Rounds`."""
        try:
            group = read_group(body)
        except ValidationError as error:
            self._unwatch(key)
            self._turns[key] = ""
            self._seen.discard(key)
            return await report_unreadable(self._applier.events, body, error)
        self._uids[key] = group.metadata.uid
        self._watch(key, group, wake)
        seen = self._with_turn(key, body, await self._observe(key, group, failures))
        if not _is_idle(seen) and asks(seen):
            seen = replace(seen, chains=await self._observer.chains(group))
        pause_s, failed = await self._act(group, body, seen)
        if not failed:
            self._applier.events.round_ended(body)
        reported = (*failed, *(f for f in failures if f.reason == OLD_DEFINITION))
        return Outcome(status(replace(seen, failures=reported)), pause_s, failed)

    async def gone(self, key: Key, body: Json) -> None:
        """See `Rounds`: delete the group's state in ZooKeeper if its volumes go with it.

        Its objects go by themselves, and without its volumes the state means nothing. A group made
        again under the name waits for that. Not done if the operator was away: then nothing proves
        that the volumes were to go, and a group made again waits for a person (`lost_journals.py`).
        """
        self._unwatch(key)
        self._turns.pop(key, None)
        self._seen.discard(key)
        self._uids.pop(key, None)
        try:
            group = read_group(body)
        except ValidationError:
            return
        ending, goes = (key, group.metadata.uid), group.spec.storage.on_delete is Reclaim.DELETE
        if goes:
            self._ending[ending] = "its volumes and brokers"
        brokers = [BrokerId(f"{group.name}-{at}") for at in range(MAX_BROKERS)]
        here = {b: names.address(group, b, self._observer.defaults) for b in brokers}
        try:
            await self._observer.brokers.forget(here)
            if goes:
                await self._forget(key, group)
        finally:
            self._ending.pop(ending, None)

    async def _forget(self, key: Key, group: BrokerGroup) -> None:
        """Delete the state once the volumes are gone.

        They may never go: the objects may have been kept, or the wish come too late. Then it stays
        for a group made again under the name, which does not wait for that.
        """
        cause, uid = "", group.metadata.uid
        for _ in range(
            _CLEANUP_TRIES + int(group.spec.termination_grace_seconds / _CLEANUP_POLL_S)
        ):
            claims = self._observer.cache.claims((key.namespace, key.name))
            if (now := self._uids.get(key)) == uid or (now and claims and not _go(claims, uid)):
                return
            if claims != {}:
                cause = f"volumes are there still: {', '.join(sorted(claims or ())) or 'not known'}"
            else:
                ensemble = self._observer.ensembles.of(group.spec.zookeeper.connect)
                try:
                    if another := await self._another(ensemble, group):
                        _log.info("group_state_of_another_kept", resource=str(key), reason=another)
                        return
                    await ensemble.forget(group.cluster, key.name)
                except (Unavailable, TimeoutError) as error:  # a broker of the group is still live
                    cause = str(error) or "ZooKeeper does not answer in time"
                else:
                    _log.info("group_state_removed", resource=str(key))
                    return
            self._ending[key, uid] = cause
            await asyncio.sleep(_CLEANUP_POLL_S)
        _log.warning("group_state_not_removed", resource=str(key), reason=cause)

    async def _another(self, ensemble: Ensemble, group: BrokerGroup) -> str:
        """Return why the state is another group's (a name may be taken); "" = it is not."""
        there = await ensemble.read_group(group.cluster, group.name)
        seen = Observation(group, wall_ms(), self._observer.defaults, zookeeper=there)
        taken = conflict(seen)
        return "" if taken is None else taken.message

    async def _observe(
        self, key: Key, group: BrokerGroup, failures: tuple[Failure, ...]
    ) -> Observation:
        """Observe the group, and note whether the look before had its state too.

        If not, it is not known when something ended meanwhile.
        """
        others = ((uid, left) for (each, uid), left in self._ending.items() if each == key)
        ends = [left for uid, left in others if uid != group.metadata.uid]
        seen = await self._observer.observe(group, failures)
        watched = key in self._seen
        self._seen.discard(key)
        if seen.zookeeper is not None:
            self._seen.add(key)
        return replace(seen, watched=watched, predecessor="; ".join(ends))

    def _shares_topics(self, body: Json, other: Key) -> bool:
        there = self._observer.cache.group((other.namespace, other.name))
        return there is not None and is_same_cluster(body, there)

    def _with_turn(self, key: Key, body: Json, seen: Observation) -> Observation:
        """Add which other groups are being updated; take a turn at once, before any wait."""
        held = self._turns.get(key) or seen.group.status.memory.restart_turn
        self._turns[key] = held
        if not held and not outdated(seen):
            return seen
        if held != seen.group.status.memory.restart_turn:  # the status could not be written
            seen = holding(seen, held)
        known = {Key(key.kind, *other): now for other, now in self._observer.cache.updating()}
        turns = {k: now for k, now in (known | self._turns).items() if now and k != key}
        others = sorted(str(k) for k, now in turns.items() if now != OWN)
        rolling = sorted(str(k) for k in turns if self._shares_topics(body, k))
        seen = replace(seen, updating=tuple(others), rolling=tuple(rolling))
        self._turns[key] = updating(seen, None if _is_idle(seen) else outlook(seen).due)
        return seen

    async def _act(
        self, group: BrokerGroup, body: Json, seen: Observation
    ) -> tuple[float, tuple[Failure, ...]]:
        pause_s, looked_s = RESYNC_S, time.monotonic()
        for action in plan(seen):
            if isinstance(action, Requeue):
                pause_s = min(pause_s, action.after_ms / 1000)
                continue
            if time.monotonic() - looked_s > _MAX_AGE_S:
                return _RETRY_S, ()
            try:
                await self._applier.do(group, body, action)
            except Outdated:
                return _AGAIN_S, ()
            except Failed as failed:
                return pause_s, (failed.failure,)
        return pause_s, ()

    def _unwatch(self, key: Key) -> None:
        if known := self._watched.pop(key, None):
            known[1]()

    def _watch(self, key: Key, group: BrokerGroup, wake: Callable[[], None]) -> None:
        """Wake the group's worker on changes in ZooKeeper."""
        try:
            wanted = (self._observer.ensembles.of(group.spec.zookeeper.connect), group.cluster)
        except InvalidArgument:  # no address at all: the look says so
            self._unwatch(key)
            return
        known = self._watched.get(key)
        if known is not None:
            if known[0] == wanted:
                return
            known[1]()
        stop = wanted[0].watch(group.cluster, key.name, wake)
        self._watched[key] = (wanted, stop)


def _go(claims: Mapping[str, Claim], uid: str) -> bool:
    """Whether any of the claims is going, by itself or with the deleted group of that uid."""
    return any(c.deleting or (ownership.GROUP, uid) in c.owners for c in claims.values())


def _is_idle(seen: Observation) -> bool:
    """Whether nothing is done for the group, whatever is observed."""
    return seen.group.spec.paused or seen.group.metadata.deletion_timestamp is not None
