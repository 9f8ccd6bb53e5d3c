"""`fmq failover`, `fmq cluster begin-again`: what they report of a group without a master."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from fmqcli import common, main
from fmqcli.cluster_registry import Registry
from fmqcli.commands import cluster, failover
from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName
from fmqcore.zk.group_state import GroupState, Mode, begin_again_state

NEW = GroupState()
G1, FIRST, SECOND = GroupName("g1"), BrokerId("g1-0"), BrokerId("g1-1")
MASTER = GroupState(Mode.MASTER, Epoch(7), SECOND, SECOND)


class Groups:
    """A group that stays in one state."""

    def __init__(self, state: GroupState) -> None:
        self._state = state

    async def state(self, _: GroupName) -> GroupState:
        return self._state

    async def group(self, _: GroupName) -> object:
        return object()

    async def request_master(self, *_: object) -> GroupState:
        return self._state


async def move(state: GroupState, lost: str = "") -> None:
    await failover._move(cast(Registry, Groups(state)), G1, FIRST, BrokerId(lost), 0.01)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (NEW, "it was never in service"),
        (begin_again_state(MASTER), "a person let the group begin again with what its journals"),
    ],
)
async def test_group_without_a_term_is_reported_without_a_master(
    state: GroupState, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await move(state)
    message = capsys.readouterr().err
    assert message.startswith(f"fmq: group g1 has no master yet ({reason}")
    assert "g1-0 is recorded as the wanted one" in message
    assert "is master of" not in message


async def test_open_term_is_reported_with_its_epoch(capsys: pytest.CaptureFixture[str]) -> None:
    await move(replace(MASTER, master=FIRST))
    assert capsys.readouterr().err == "fmq: g1-0 is master of g1 in epoch 7\n"


async def test_lost_broker_of_a_group_without_a_master_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="g1-1 is not the master of group g1: it has none"):
        await move(NEW, lost="g1-1")


async def test_wish_is_not_withdrawn_by_wishing_it_again() -> None:
    with pytest.raises(Unavailable, match="to withdraw that, fmq failover g1 --to g1-1"):
        await move(MASTER)
    claimed = replace(MASTER, master=FIRST, required_epoch=Epoch(6))
    with pytest.raises(Unavailable, match=r"its term is not open$"):
        await move(claimed)


def test_begin_again_of_a_new_group_names_no_epoch_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @asynccontextmanager
    async def registry(*_: Any) -> AsyncIterator[Groups]:
        yield Groups(NEW)

    monkeypatch.setattr(cluster, "registry", registry)
    code = main.run(["cluster", "begin-again", "g1", "-z", "z:1", "-c", "c"])
    message = capsys.readouterr().err
    assert (code, "has no state: it is new, or not configured" in message) == (common.FAILED, True)
    assert "--epoch 0" not in message
