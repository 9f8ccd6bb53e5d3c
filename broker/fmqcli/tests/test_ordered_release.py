"""`fmq ordered release`: what it reports about a segment that has its end already."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from fmqcli import main
from fmqcli.commands import ordered
from fmqcli.tests.test_chain_picture import STATUS
from fmqclient.admin.infos import OrderedTopicStatus


class Cluster:
    """A client, its admin and its calls for ordered topics in one."""

    def __init__(self, status: OrderedTopicStatus) -> None:
        self.found = status

    def admin(self) -> "Cluster":
        return self

    @property
    def ordered(self) -> "Cluster":
        return self

    async def status(self, _: str) -> list[OrderedTopicStatus]:
        return [self.found]

    async def release(self, _: str, number: int, *, accept_loss: bool) -> OrderedTopicStatus:
        segments: Any = [
            replace(s, loss=True) if accept_loss and s.number == number else s
            for s in self.found.chain.segments
        ]
        chain = replace(self.found.chain, segments=tuple(segments))
        self.found = replace(self.found, chain=chain)
        return self.found


NOTHING = "segment 2 of changes has its end, and its members reach it: nothing to do"
COMMAND = "if sends wait for a loss to be accepted, run `fmq ordered release changes 2 "


@pytest.mark.parametrize(
    ("runs", "reported"),
    [
        ([[]], f"{NOTHING}; {COMMAND}--accept-loss`"),
        ([["--accept-loss"]], "the loss at the end of segment 2 of changes is accepted"),
        ([["--accept-loss"], ["--accept-loss"]], NOTHING),
    ],
)
def test_release_of_a_known_end_reports_what_it_did(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    runs: list[list[str]],
    reported: str,
) -> None:
    cluster = Cluster(STATUS)

    @asynccontextmanager
    async def client(_: str) -> AsyncIterator[Cluster]:
        yield cluster

    monkeypatch.setattr(ordered, "client", client)
    for options in runs:
        assert main.run(["ordered", "release", "changes", "2", "-y", *options]) == 0
    assert capfd.readouterr().err.splitlines()[-1] == f"fmq: {reported}"
