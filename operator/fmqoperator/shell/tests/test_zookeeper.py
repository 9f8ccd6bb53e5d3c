"""Ensembles that do not answer, that refuse the operator, or that no group names any more."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, ClassVar, cast

import pytest

from fmqcore.errors import InvalidArgument, Malformed, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName, TopicId
from fmqcore.zk import layout as paths
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode, begin_again_state, state_to_json
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqoperator.shell import zookeeper
from fmqoperator.shell.zookeeper import Ensemble, Ensembles
from fmqport.coordination import Node, SessionState

A, B = "a:2181", "b:2181"
_LONG_S = 30.0


class Session:
    """A session that never connects; `refuses` ends its start at once."""

    refuses: ClassVar[str] = ""
    open: ClassVar[list[str]] = []

    def __init__(self, address: str, *, timeout_ms: int) -> None:
        if address == "wrong":
            raise InvalidArgument("'wrong' is not host:port")
        self.address, self.state = address, SessionState.LOST
        Session.open.append(address)

    async def start(self, _timeout_s: float) -> None:
        if Session.refuses:
            await self.close()
            raise Unavailable(Session.refuses)
        await asyncio.Event().wait()

    async def close(self) -> None:
        if self.address in Session.open:
            Session.open.remove(self.address)

    def watch(self, *_: Any) -> Callable[[], None]:
        return lambda: None


class Questions:
    """Questions why an ensemble does not answer; the test answers each."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = asyncio.Event()

    async def __call__(self, address: str, _timeout_s: float) -> str:
        self.asked.append(address)
        await self.answer.wait()
        return f"no server at {address}"


@pytest.fixture
async def questions(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Questions]:
    asked = Questions()
    monkeypatch.setattr(zookeeper, "ZooKeeperSession", Session)
    monkeypatch.setattr(zookeeper, "no_answer_text", asked)
    monkeypatch.setattr(zookeeper, "_READ_TIMEOUT_S", 0.0)
    monkeypatch.setattr(Session, "refuses", "")
    monkeypatch.setattr(Session, "open", [])
    yield asked
    assert Session.open == [], "every session is closed"


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(_LONG_S):
        while not holds():
            await asyncio.sleep(0.01)


async def cause(known: Ensembles, address: str = A) -> str:
    try:
        async with asyncio.timeout(_LONG_S):
            await known.of(address).read_group("c", "g1")
    except Unavailable as error:
        return str(error)
    raise AssertionError("it answered")


async def test_groups_of_an_absent_ensemble_share_one_question(
    questions: Questions,
) -> None:
    known = Ensembles()
    looks = [asyncio.create_task(cause(known)) for _ in range(50)]
    await until(lambda: bool(questions.asked))
    questions.answer.set()
    assert set(await asyncio.gather(*looks)) == {f"no server at {A}"}
    assert questions.asked == [A]
    questions.answer.clear()  # a new question would wait for ever
    assert await cause(known) == f"no server at {A}"
    assert questions.asked == [A]
    await known.close()


async def test_reason_is_refreshed_while_the_old_one_is_reported(
    questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Ensembles()
    questions.answer.set()
    await cause(known)
    monkeypatch.setattr(zookeeper, "_DIAGNOSIS_S", -1.0)
    questions.answer.clear()
    for _ in range(5):
        assert await cause(known) == f"no server at {A}"
        await asyncio.sleep(0)
    assert questions.asked == [A, A], "one question at a time"
    await known.close()


async def test_refused_session_is_started_again_later(
    questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a root: a foreign access list, or a connection that broke at that moment."""
    known = Ensembles()
    monkeypatch.setattr(Session, "refuses", "it refuses the credentials of this process")
    first = known.of(A)
    await until(lambda: first.refused_s is not None)
    assert await cause(known) == "it refuses the credentials of this process"
    assert questions.asked == []
    assert known.of(A) is first, "not at every round"
    monkeypatch.setattr(Session, "refuses", "")
    monkeypatch.setattr(zookeeper, "_REFUSED_S", -1.0)
    assert known.of(A) is not first
    await known.close()


async def test_ensemble_no_group_names_is_disconnected(
    questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Ensembles()
    left, stays = known.of(A), known.of(B)
    left.asked_s -= 1000.0
    await known.leave_unused()
    assert Session.open == [B]
    assert known.of(B) is stays
    assert known.of(A) is not left
    await known.close()


async def test_invalid_address_is_no_ensemble(questions: Questions) -> None:
    known = Ensembles()
    with pytest.raises(InvalidArgument):
        known.of("wrong")
    assert not known._known
    assert questions.asked == []


@pytest.mark.processes
async def test_recreated_topic_keeps_its_number(zookeeper: str) -> None:
    """Its versions count from 0 again, as those of the observed topic did."""
    ensemble = Ensemble(zookeeper)
    group = TopicGroup(GroupName("g1"), 4)
    try:
        await ensemble.create_topic("c", TopicConfig("orders", TopicId(0), (group,)))
        _, there = await ensemble.read_topic("c", "orders")
        assert there is not None
        await ensemble.delete_topic("c", "orders", there.value.id)
        await ensemble.create_topic("c", there.value)
        _, recreated = await ensemble.read_topic("c", "orders")
        assert recreated is not None
        assert (recreated.version, recreated.value.id) == (there.version, there.value.id + 1)
        grown = replace(there.value, groups=(replace(group, queues=8),))
        with pytest.raises(Unavailable, match="another writer"):
            await ensemble.put_topic("c", grown, there.version)
        await ensemble.put_topic("c", replace(grown, id=recreated.value.id), recreated.version)
    finally:
        await ensemble.close()


@pytest.mark.processes
async def test_config_written_by_another_is_not_overwritten(zookeeper: str) -> None:
    """An operator that hung writes by an old observation; a person or a newer one was quicker."""
    ensemble = Ensemble(zookeeper)
    members = tuple(Member(BrokerId(name), "") for name in ("g1-0", "g1-1"))
    ours = GroupConfig(GroupName("g1"), BrokerId("g1-0"), members)
    theirs = replace(ours, master=BrokerId("g1-1"))

    async def stands() -> tuple[int, GroupConfig]:
        config = (await ensemble.read_group("c", "g1")).config
        assert config is not None
        return config.version, config.value

    try:
        async with asyncio.timeout(_LONG_S):
            await ensemble.put_config("c", ours, -1)
            version, _ = await stands()
            await ensemble.put_config("c", theirs, version)
            newer = await stands()
            assert newer[1] == theirs
            for looked_at in (version, -1):
                with pytest.raises(Unavailable, match="another writer"):
                    await ensemble.put_config("c", ours, looked_at)
                assert await stands() == newer
    finally:
        await ensemble.close()


@pytest.mark.processes
async def test_a_group_begins_again_only_in_the_named_epoch(zookeeper: str) -> None:
    """A person decides about the state that the person has seen, and only once."""
    ensemble = Ensemble(zookeeper)
    lost = GroupState(
        Mode.MASTER, Epoch(7), BrokerId("g1-0"), BrokerId("g1-0"), last_opened_epoch=Epoch(7)
    )
    node = paths.state_node("c", GroupName("g1"))

    async def stored() -> GroupState:
        return (await ensemble.read_group("c", "g1")).state

    try:
        async with asyncio.timeout(_LONG_S):
            with pytest.raises(Unavailable, match="has no state"):
                await ensemble.begin_again("c", "g1", Epoch(7))
            await ensemble._session.create(node, state_to_json(lost), make_parents=True)
            for other in (6, 8):
                with pytest.raises(Unavailable, match=f"in epoch 7, not {other}"):
                    await ensemble.begin_again("c", "g1", Epoch(other))
            assert await stored() == lost
            for _ in range(2):  # an operator that dies before it removes the annotation asks again
                await ensemble.begin_again("c", "g1", Epoch(7))
                assert await stored() == begin_again_state(lost)
    finally:
        await ensemble.close()


class Holds:
    """A session of an ensemble that holds these nodes."""

    def __init__(self, nodes: dict[str, bytes]) -> None:
        self.nodes, self.state = nodes, SessionState.CONNECTED

    async def sync(self, _path: str) -> None: ...

    async def get(self, path: str) -> Node | None:
        return Node(self.nodes[path], 0, 0) if path in self.nodes else None

    async def children(self, path: str) -> list[str]:
        return [name.rpartition("/")[2] for name in self.nodes if name.startswith(f"{path}/")]


@pytest.mark.parametrize(
    ("node", "error"),
    [
        ("config", "delete /fmq/shop/groups/g1/config: the operator writes it again"),
        ("state", "restore /fmq/shop/groups/g1/state from a backup"),
        ("live/g1-0", "restart g1-0: its start replaces /fmq/shop/groups/g1/live/g1-0"),
    ],
)
async def test_undecodable_node_then_the_error_names_the_remedy(node: str, error: str) -> None:
    ensemble = Ensemble.__new__(Ensemble)
    ensemble._session = cast(Any, Holds({f"/fmq/shop/groups/g1/{node}": b"{"}))
    with pytest.raises(Malformed, match="does not decode") as found:
        await ensemble._read_group("shop", GroupName("g1"))
    assert str(found.value).endswith(error)
