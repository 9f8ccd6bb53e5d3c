"""ZooKeeper for the operator: a session for each ensemble, reads of a group, watches.

The operator writes groups' `config` and topics, and only reads their `state` and chains. A session
is created in the background when the first group needs it: no group waits for an ensemble that is
away.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import structlog

from fmqadapters.zookeeper.hosts import no_answer_text
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqcore.errors import FmqError, InvalidArgument, Malformed, NotFound, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName, TopicId
from fmqcore.zk import layout as paths
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, config_from_json, config_to_json
from fmqcore.zk.group_state import (
    GroupState,
    state_from_json,
)
from fmqcore.zk.live_broker import LiveBroker, live_from_json
from fmqcore.zk.topic import TopicConfig, topic_from_json, topic_to_json
from fmqoperator.core.observation import InZooKeeper
from fmqoperator.core.topics.chain_status import ChainSeen
from fmqoperator.shell.chains import ChainReader
from fmqport.coordination import BadVersion, NodeExists, NoNode, SessionState
from fmqport.group_nodes import begin_again, create_group, delete_group
from fmqport.topic_ids import forget_topic_id, next_topic_id

Stop = Callable[[], None]

_log = structlog.get_logger()
_SESSION_MS: Final = 5_000
"""Session timeout. A server that is gone is noticed after two thirds of this time.

Until then no failover is seen. The operator holds no ephemeral node: a session that ends early
costs it nothing but a new one. Not shorter: a busy operator whose loop is late must not lose its
sessions again and again.
"""
_FOR_EVER_S: Final = 1e9
_READ_TIMEOUT_S: Final = 5.0
_DIAGNOSIS_S: Final = 30.0  # interval of finding out why no server answers
_REFUSED_S: Final = 10.0  # age at which a session that never started is replaced
_UNUSED_AGE_S: Final = 300.0  # age at which an ensemble that no round uses is closed


class Ensemble:
    """One address, one session."""

    def __init__(self, address: str) -> None:
        self.asked_s = self._started_s = time.monotonic()
        self.refused_s: float | None = None  # since when it is known that this session never starts
        self._address = address
        self._session = ZooKeeperSession(address, timeout_ms=_SESSION_MS)
        self._chains = ChainReader(self._session)
        self._words = ""  # why no server answers
        self._words_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._starting = asyncio.create_task(self._start(), name=f"zookeeper {address}")

    async def _start(self) -> None:
        """Start the session, without a time limit.

        Its root may not be made yet, or the connection broke just then.
        """
        try:
            await self._session.start(_FOR_EVER_S)
        except FmqError as error:
            self._words, self.refused_s = str(error), time.monotonic()

    async def close(self) -> None:
        """End the session."""
        tasks = [self._starting, *([self._asking] if self._asking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

    def watch(self, cluster: str, group: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever the group may look different; return a function to stop it."""
        name = GroupName(group)
        nodes = (paths.config_node, paths.state_node, paths.live_node)
        stops = [self._session.watch(node(cluster, name), changed) for node in nodes]

        def stop() -> None:
            for each in stops:
                each()

        return stop

    async def read_group(self, cluster: str, group: str) -> InZooKeeper:
        """Read configuration, then state, then live nodes. Raises `Unavailable`, `Malformed`."""
        await self._connected()
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return await self._read_group(cluster, GroupName(group))

    async def put_config(self, cluster: str, config: GroupConfig, version: int) -> None:
        """Compare-and-set (-1: create). Raises `Unavailable`, also if another writer was first."""
        await self._connected()
        node, data = paths.config_node(cluster, config.group), config_to_json(config)
        try:
            if version < 0:
                await create_group(self._session, cluster, config)
            else:
                await self._session.set(node, data, version)
        except (BadVersion, NodeExists, NoNode):
            raise Unavailable(f"{node} was changed by another writer meanwhile") from None

    async def begin_again(self, cluster: str, group: str, epoch: Epoch) -> None:
        """Act as `fmq cluster begin-again` if the group is still in that epoch; idempotent.

        Raises `Unavailable`, also if the state changed meanwhile.
        """
        await self._connected()
        try:
            await begin_again(self._session, cluster, GroupName(group), epoch)
        except (InvalidArgument, NotFound) as error:
            raise Unavailable(f"the decision was about another state: {error}") from None

    async def forget(self, cluster: str, group: str) -> None:
        """Delete the nodes of a group whose volumes are deleted with it."""
        await self._connected()
        name = GroupName(group)
        config = await self._session.get(paths.config_node(cluster, name), synced=True)
        version = -1 if config is None else config.version
        await delete_group(self._session, cluster, name, version)

    # ---- topics
    async def read_topic(
        self, cluster: str, topic: str
    ) -> tuple[frozenset[str], Versioned[TopicConfig] | None]:
        """Return the cluster's groups, and the topic if it exists. Raises as `read_group`."""
        await self._connected()
        async with asyncio.timeout(_READ_TIMEOUT_S):
            await self._session.sync(paths.cluster_root(cluster))
            groups = await self._session.children(paths.groups_node(cluster))
            node = await self._session.get(paths.topic_node(cluster, topic))
        there = Versioned(topic_from_json(node.data), node.version) if node else None
        return frozenset(groups), there

    async def create_topic(self, cluster: str, topic: TopicConfig) -> None:
        """Create a topic, with its former number if ZooKeeper lost the topic, else the next number.

        `topic.id`: its former number. No number is given twice. A topic that exists by now stays.
        """
        await self._connected()
        topics = paths.topics_node(cluster)
        number = await next_topic_id(
            self._session, topics, topic.name, topic.id, ordered=topic.ordered
        )
        numbered = replace(topic, id=number)
        with suppress(NodeExists):
            node = paths.topic_node(cluster, topic.name)
            await self._session.create(node, topic_to_json(numbered))

    async def put_topic(self, cluster: str, topic: TopicConfig, version: int) -> None:
        """Compare-and-set. Raises `Unavailable`, also if another writer was first."""
        await self._connected()
        node = paths.topic_node(cluster, topic.name)
        now = await self._session.get(node, synced=True)
        if now is None or topic_from_json(now.data).id != topic.id:
            # Deleted and recreated: its versions count from 0 again.
            raise Unavailable(f"{node} was changed by another writer meanwhile")
        try:
            await self._session.set(node, topic_to_json(topic), version)
        except (BadVersion, NoNode):
            raise Unavailable(f"{node} was changed by another writer meanwhile") from None

    async def delete_topic(self, cluster: str, topic: str, number: TopicId) -> None:
        """Delete the topic, if it is still that very one."""
        _, there = await self.read_topic(cluster, topic)
        if there is not None and there.value.id == number:
            await forget_topic_id(self._session, paths.topics_node(cluster), topic, number)
            with suppress(BadVersion):
                await self._session.delete(paths.topic_node(cluster, topic), there.version)

    # ---- ordered topics
    def watch_chain(self, cluster: str, topic: str, changed: Callable[[], None]) -> Stop:
        """Call `changed` whenever the topic's chain may look different, as `watch` does."""
        return self._session.watch(paths.chain_node(cluster, topic), changed)

    async def read_chain(
        self, cluster: str, topic: str, number: TopicId, groups: Iterable[str]
    ) -> ChainSeen:
        """Return the chain of an ordered topic, and its groups. Raises as `read_group`."""
        await self._connected()
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return await self._chains.read(cluster, topic, number, map(GroupName, groups))

    async def chains_with(self, cluster: str, group: str) -> tuple[ChainSeen, ...]:
        """Return the chains whose sends the group takes, or may take. Raises as `read_group`."""
        await self._connected()
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return await self._chains.with_group(cluster, GroupName(group))

    async def addresses(self, cluster: str, groups: Iterable[str]) -> list[str]:
        """Return the addresses of live brokers of these groups. Raises as `read_group`."""
        await self._connected()
        async with asyncio.timeout(_READ_TIMEOUT_S):
            return await self._chains.addresses(cluster, map(GroupName, groups))

    # ---- within
    async def _connected(self) -> None:
        """Wait a little for a session that was only just asked for. Raises `Unavailable`."""
        left_s = self._started_s + _READ_TIMEOUT_S - time.monotonic()
        if not self._starting.done() and left_s > 0:
            await asyncio.wait((self._starting,), timeout=left_s)
        if self._session.state is not SessionState.CONNECTED:
            # Always the same message: it becomes a condition, which records since when it holds.
            raise Unavailable(await self._cause())

    async def _cause(self) -> str:
        """Return why no server answers.

        Finding that out takes seconds: all groups wait for it together, once; the reason is used
        until it is found out again.
        """
        old = time.monotonic() - self._words_s > _DIAGNOSIS_S
        if self.refused_s is None and old and self._asking is None:
            self._asking = asyncio.create_task(self._ask_why(), name=f"why not {self._address}")
        if not self._words and self._asking is not None:
            await asyncio.wait((self._asking,))
        return self._words or f"no ZooKeeper answers at {self._address}"

    async def _ask_why(self) -> None:
        try:
            self._words = await no_answer_text(self._address, _READ_TIMEOUT_S)
            self._words_s = time.monotonic()
        finally:
            self._asking = None

    async def _read_group(self, cluster: str, group: GroupName) -> InZooKeeper:
        session = self._session
        await session.sync(paths.group_node(cluster, group))
        config_node, state_node = (
            of(cluster, group) for of in (paths.config_node, paths.state_node)
        )
        config, state = await session.get(config_node), await session.get(state_node)
        live: dict[BrokerId, LiveBroker] = {}
        for name in await session.children(paths.live_node(cluster, group)):
            path = paths.live_broker_node(cluster, group, BrokerId(name))
            if (node := await session.get(path)) is not None:
                with _remedy(f"restart {name}: its start replaces {path}"):
                    live[BrokerId(name)] = live_from_json(node.data)
        known, now = None, GroupState()
        if config is not None:
            with _remedy(f"delete {config_node}: the operator writes it again"):
                known = Versioned(config_from_json(config.data), config.version)
        if state is not None:
            with _remedy(f"restore {state_node} from a backup"):
                now = state_from_json(state.data)
        has_chains = await session.get(paths.chains_node(cluster, group)) is not None
        if has_chains:
            has_chains = await self._chains.names(cluster, group)
        return InZooKeeper(known, now, live, has_chains)


@contextmanager
def _remedy(text: str) -> Iterator[None]:
    """Add what to do about a node that does not decode. (Brokers keep what they have read.)"""
    try:
        yield
    except Malformed as error:
        raise Malformed(f"{error}: {text}") from error


class Ensembles:
    """All ensembles that groups name. `of` creates a missing one; keep none of them for long."""

    def __init__(self) -> None:
        self._known: dict[str, Ensemble] = {}

    def of(self, address: str) -> Ensemble:
        """Return the ensemble at `host:port[,host:port...][/root]`. Raises `InvalidArgument`."""
        known, now_s = self._known.get(address), time.monotonic()
        if known is None:
            known = self._known[address] = Ensemble(address)
            _log.info("zookeeper_opened", address=address)
        elif known.refused_s is not None and now_s - known.refused_s > _REFUSED_S:
            known = self._known[address] = Ensemble(
                address
            )  # the refused session is closed already
        known.asked_s = now_s
        return known

    async def tidy(self) -> None:
        """Close unused ensembles now and then, for ever: a wrong address is not dialed on."""
        while True:
            await asyncio.sleep(_UNUSED_AGE_S / 5)
            await self.leave_unused()

    async def leave_unused(self) -> None:
        """Close the ensembles that no group has asked for in `_UNUSED_AGE_S`."""
        now_s = time.monotonic()
        for address, ensemble in list(self._known.items()):
            if now_s - ensemble.asked_s > _UNUSED_AGE_S:
                del self._known[address]
                _log.info("zookeeper_closed", address=address)
                await ensemble.close()

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(ensemble.close() for ensemble in self._known.values()))
        self._known.clear()
