"""`fmq ordered switch`: what it reports when the next segment is open before it looks again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fmqcli import main
from fmqcli.commands import ordered
from fmqcli.tests.test_chain_picture import CHAIN, G1, G2
from fmqclient.admin.ordered import OrderedAdmin
from fmqcore.ids import GroupName
from fmqcore.zk.chain import Chain, Segment
from fmqcore.zk.chain_json import chain_to_json
from fmqproto.v1 import admin_pb2
from fmqwire.methods import ORDERED_SWITCH

OPEN = replace(CHAIN, segments=(Segment(1, G1, 1, (1,), (0,)),))
CLOSING = replace(OPEN, closing="its sender left")
ENDED = replace(CLOSING, segments=(Segment(1, G1, 1, (1,), (0,), (40,)),))


class Cluster:
    """Brokers whose sender opens the next segment, in `following`, as soon as one is closed."""

    def __init__(self, chain: Chain, following: GroupName) -> None:
        self.chain = chain
        self.closed: list[int] = []
        self._following = following

    def admin(self) -> "Cluster":
        return self

    @property
    def ordered(self) -> OrderedAdmin:
        return OrderedAdmin(cast(Any, SimpleNamespace(ask_any=self._ask)), cast(Any, None))

    async def _ask(self, method: Any, request: Any) -> Any:
        if method is ORDERED_SWITCH:
            self.closed.append(request.chain_segment)
            ended = replace(self.chain.segments[0], end=(40,))
            opened = Segment(2, self._following, 1, (41,), (0,))
            self.chain = replace(self.chain, segments=(ended, opened))
            return admin_pb2.OrderedSwitchReply()
        row = admin_pb2.OrderedTopicStatus(topic="changes", chain=chain_to_json(self.chain))
        return admin_pb2.OrderedStatusReply(topics=[row])


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Run the command beside a cluster; return its exit code, the closed segments, its messages."""

    def run(cluster: Cluster, *options: str) -> tuple[int, list[int], str]:
        @asynccontextmanager
        async def client(_: str) -> AsyncIterator[Cluster]:
            yield cluster

        monkeypatch.setattr(ordered, "client", client)
        code = main.run(["ordered", "switch", "changes", *options])
        return code, cluster.closed, capfd.readouterr().err

    return run


@pytest.mark.parametrize("following", [G1, G2])
@pytest.mark.parametrize("options", [[], ["--off", "g1"]])
def test_switch_after_the_next_opening_reports_no_refusal(
    switch: Any, following: GroupName, options: list[str]
) -> None:
    assert switch(Cluster(OPEN, following), *options) == (0, [1], "")


def test_switch_off_another_group_reports_that_nothing_was_done(switch: Any) -> None:
    sentence = "fmq: the sends of changes go to g1, not to g2: nothing was done\n"
    assert switch(Cluster(OPEN, G2), "--off", "g2") == (0, [], sentence)


def test_switch_without_a_segment_reports_that_nothing_was_done(switch: Any) -> None:
    sentence = "fmq: changes has no segment yet: nothing was done\n"
    assert switch(Cluster(replace(OPEN, segments=(), heads=()), G2)) == (0, [], sentence)


@pytest.mark.parametrize(
    ("chain", "options", "sentence"),
    [
        (OPEN, ["--off", "g9"], "group g9 is none of the groups of changes (g1, g2)"),
        (ENDED, ["--off", "g2"], "the last segment of changes was in g1, not in g2, and has ended"),
        (ENDED, [], "segment 1 of changes has ended already (its sender left)"),
        (CLOSING, [], "segment 1 of changes is being closed already (its sender left)"),
    ],
)
def test_switch_that_closes_nothing_says_why(
    switch: Any, chain: Chain, options: list[str], sentence: str
) -> None:
    code, _, printed = switch(Cluster(chain, G2), *options)
    assert (code, printed) == (0, f"fmq: {sentence}: nothing was done\n")
