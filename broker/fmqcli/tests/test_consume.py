"""`fmq consume`: its acks, and its end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from fmqcli import common, main
from fmqcli.commands import consume
from fmqcli.tests.test_chain_picture import CHAIN, NOW, STATUS
from fmqclient.admin.infos import OrderedTopicStatus, QueueOffsets
from fmqcore.errors import Unavailable


class Sub:
    """A client, its consumer and its one message in one."""

    value = b"v"
    connected: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self.acks = 0

    def consumer(self, *_: object, **__: object) -> "Sub":
        return self

    def admin(self) -> "Sub":
        return self

    async def __aenter__(self) -> "Sub":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def fetch(self, *_: object) -> list[Any]:
        return [self]

    def ack_now(self) -> None:
        self.acks += 1

    async def commit(self, *_: object) -> None: ...

    async def delete_group(self, _: str) -> None: ...


def use(sub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `fmq consume` connect to this client."""

    @asynccontextmanager
    async def client(_: str) -> AsyncIterator[Any]:
        yield sub

    monkeypatch.setattr(consume, "client", client)


@pytest.mark.parametrize(
    ("options", "acks"),
    [(["-g", "g"], 1), (["-g", "g", "--no-ack"], 0), ([], 1)],
)
def test_no_ack_is_allowed_only_for_a_named_group(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    acks: int,
) -> None:
    """Unacked messages are redelivered for ever and block those behind them."""
    sub = Sub()

    @asynccontextmanager
    async def client(_: str) -> AsyncIterator[Sub]:
        yield sub

    monkeypatch.setattr(consume, "client", client)
    assert main.run(["consume", "t", "-n", "1", *options]) == 0
    assert (capfd.readouterr().out, sub.acks) == ("v\n", acks)


class Dropped(Sub):
    """All records of this ordered topic lie in a segment that other groups have left."""

    async def fetch(self, *_: object) -> list[Any]:
        return []

    async def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        return [QueueOffsets(group, topic, "g1", 0, committed=0, begin=0, end=5, acked=5)]


def test_records_that_never_come_do_not_keep_it_from_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @asynccontextmanager
    async def client(_: str) -> AsyncIterator[Sub]:
        yield Dropped()

    monkeypatch.setattr(consume, "client", client)
    assert main.run(["consume", "t", "-g", "g", "-e"]) == 0


class Failing(Sub):
    """Its reader is lost: progress is unavailable `silent` times, at the start or once printed."""

    group, queue, offset = "g1", 0, 0

    def __init__(self, silent: int, start: bool) -> None:
        super().__init__()
        self.silent, self.start = silent, start

    async def fetch(self, *_: object) -> list[Any]:
        return []

    async def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        if self.silent and (group or self.start):
            self.silent -= 1
            raise Unavailable("no broker serves the reads of group g1")
        return [QueueOffsets(group, topic, "g1", 0, committed=1, begin=0, end=1)]


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize(("timeout_s", "code"), [(30.0, 0), (-1.0, common.UNAVAILABLE)])
def test_failover_does_not_end_consuming_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    timeout_s: float,
    code: int,
    start: bool,
) -> None:
    sub = Failing(3, start)
    use(sub, monkeypatch)
    monkeypatch.setattr(consume, "_UNKNOWN_TIMEOUT_S", timeout_s)
    assert main.run(["consume", "t", "-g", "g", "-e"]) == code
    assert sub.silent == (0 if code == 0 else 2)
    if code:
        assert capfd.readouterr().err == (
            "fmq: the end is not known: no broker serves the reads of group g1; `fmq status` shows "
            "who serves and who is away: start those, and run this again\n"
        )


class Withheld(Sub):
    """Its topic holds a message that may be read after `polls` looks at the progress."""

    group, queue, offset = "g1", 0, 0

    def __init__(self, polls: int, reason: str) -> None:
        super().__init__()
        self.polls, self.reason = polls, reason

    async def fetch(self, *_: object) -> list[Any]:
        if self.polls or self.acks:
            return []
        return [self]

    async def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        self.polls -= bool(group and self.polls)
        end = int(not self.polls)
        row = QueueOffsets(group, topic, "g1", 0, committed=self.acks, begin=0, end=end)
        return [replace(row, stored_end=1, withheld_reason="" if end else self.reason)]


@pytest.mark.parametrize(
    ("reason", "timeout_s", "code", "printed", "reported"),
    [
        ("", 30.0, 0, "v\n", "fmq: 1 message\n"),  # a healthy group: its acks are on their way
        ("they wait for slave g1-1", 30.0, 0, "v\n", "read yet: they wait for slave g1-1\n"),
        ("they wait for slave g1-1", -1.0, 69, "", "the end is not reached: group g1: 1 message "),
    ],
)
def test_withheld_messages_belong_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    reason: str,
    timeout_s: float,
    code: int,
    printed: str,
    reported: str,
) -> None:
    sub = Withheld(3, reason)

    @asynccontextmanager
    async def client(_: str) -> AsyncIterator[Sub]:
        yield sub

    monkeypatch.setattr(consume, "client", client)
    monkeypatch.setattr(consume, "_UNKNOWN_TIMEOUT_S", timeout_s)
    assert main.run(["consume", "t", "-g", "g", "-e"]) == code
    out, err = capfd.readouterr()
    assert out == printed
    assert reported in err
    assert reason or err == reported, "no message about what lasts a moment"


class Waiting(Sub):
    """Its consumer group waits for the end of a segment of an ordered topic."""

    async def fetch(self, *_: object) -> list[Any]:
        await asyncio.sleep(0)
        return []

    async def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        return [QueueOffsets(group, topic, "g1", 0, committed=0, begin=0, end=5, stored_end=5)]

    async def topic(self, _: str) -> Any:
        return SimpleNamespace(ordered=True)


UNKNOWN = "ordered topic changes: billing waits for 8 s for the end of segment 1: start g1-0\n"


@pytest.mark.parametrize(
    ("options", "code", "last"),
    [
        (["--timeout", "4"], 0, ""),
        (["--timeout", "4", "-e"], 69, "the end is not reached: nothing came for 4 s (--timeout)"),
        (["-e"], 69, f"the end is not reached: {UNKNOWN}"),
    ],
)
def test_unknown_end_is_reported_where_nothing_comes(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    options: list[str],
    code: int,
    last: str,
) -> None:
    first = replace(CHAIN.segments[0], end=None, end_unknown=True, ended_ms=NOW - 8_000)
    chain = replace(CHAIN, segments=(first, *CHAIN.segments[1:]))
    status = replace(STATUS, chain=chain, stuck={1: "start g1-0"})

    class Ordered:
        async def status(self, _: str) -> list[OrderedTopicStatus]:
            return [status]

    sub: Any = Waiting()
    sub.ordered = Ordered()
    use(sub, monkeypatch)
    if "--timeout" not in options:
        monkeypatch.setattr(consume, "_UNKNOWN_TIMEOUT_S", 0.01)
    assert main.run(["consume", "changes", "-g", "billing", *options]) == code
    expected = (f"fmq: {UNKNOWN}", "fmq: 0 messages\n" if not last else f"fmq: {last}")
    err = capfd.readouterr().err
    assert err.startswith("".join(expected)), err


class Silent(Waiting):
    """A master that accepts calls and answers none; its consumer still gets messages."""

    group, queue, offset = "g1", 0, 0

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.cancelled = False

    async def fetch(self, *_: object) -> list[Any]:
        await asyncio.sleep(0)
        return [self] if self.asked else []

    async def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        self.asked = True
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled = True
        return []


def test_messages_are_printed_while_a_report_is_awaited(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sub = Silent()
    use(sub, monkeypatch)
    assert main.run(["consume", "t", "-g", "g", "-n", "1"]) == 0
    assert (capfd.readouterr().out, sub.cancelled) == ("v\n", True)


class Unstored(Withheld):
    """A slave is away: one message may be read, one may not, and no ack is stored."""

    async def fetch(self, *_: object) -> list[Any]:
        await asyncio.sleep(0)
        return [] if self.acks else [self]

    async def commit(self, *_: object) -> None:
        raise Unavailable("acks not stored within 30 s")

    async def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        row = QueueOffsets(group, topic, "g1", 0, committed=0, begin=0, end=1, stored_end=2)
        return [replace(row, withheld_reason=self.reason)]


@pytest.mark.parametrize("options", [[], ["-g", "g"]])
@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("they wait for slave g1-1", "if brokers are away (`fmq status`), start them, and run"),
        ("", "see `fmq status`, and run"),
    ],
)
def test_withheld_messages_are_named_where_no_ack_is_stored(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    options: list[str],
    reason: str,
    step: str,
) -> None:
    use(Unstored(0, reason), monkeypatch)
    monkeypatch.setattr(consume, "_UNKNOWN_TIMEOUT_S", 0.01)
    assert main.run(["consume", "t", "-e", *options]) == common.UNAVAILABLE
    out, err = capfd.readouterr()
    assert out == "v\n"
    assert err.splitlines()[-1] == (
        "fmq: the end is not reached: group g1: 1 message of topic t may not be read yet: "
        f"{reason or 'they wait for acks'}. Which of them are acknowledged is not known yet: "
        f"{step} this again"
    )


class Recreated(Waiting):
    """Its topic is deleted and created again after the start, with other queues or without any."""

    def __init__(self, queue: int) -> None:
        super().__init__()
        self.queue, self.asked = queue, False

    async def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        if not self.asked:
            self.asked = True
            return [QueueOffsets(group, topic, "g1", 0, committed=0, begin=0, end=5)]
        return [QueueOffsets(group, topic, "g1", self.queue, committed=0, begin=0, end=0)]

    async def topic(self, _: str) -> Any:
        return SimpleNamespace(ordered=False)


@pytest.mark.parametrize("queue", [0, 1])
def test_read_ends_where_its_messages_are_gone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], queue: int
) -> None:
    """It waited for the end of before without a word, for ever."""
    use(Recreated(queue), monkeypatch)
    monkeypatch.setattr(consume, "_UNKNOWN_TIMEOUT_S", 0.01)
    assert main.run(["consume", "t", "-g", "g", "-e"]) == common.UNAVAILABLE
    assert capfd.readouterr().err == (
        "fmq: the end is not reached: messages of topic t that were there at the start are gone in "
        "g1/0: the topic was recreated, or a failover lost them; to read what is there now, run "
        "this again\n"
    )


class Away(Sub):
    """A slave is away: no ack can be stored, and no group can be deleted."""

    group, queue, offset = "g1", 0, 0

    async def commit(self, *_: object) -> None:
        raise Unavailable("acks not stored within 30 s")

    async def delete_group(self, _: str) -> None:
        await asyncio.Event().wait()

    async def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        never = 2 if group else 0  # the records of queue 1
        return [
            QueueOffsets(group, topic, "g1", 0, committed=0, begin=0, end=1),
            QueueOffsets(group, topic, "g1", 1, committed=0, begin=0, end=2, acked=never),
        ]


@pytest.mark.parametrize("until", [["-n", "1"], ["-e"]])
@pytest.mark.parametrize(("options", "code"), [([], 0), (["-g", "g"], common.UNAVAILABLE)])
def test_group_without_a_name_waits_for_no_ack(
    monkeypatch: pytest.MonkeyPatch, options: list[str], code: int, until: list[str]
) -> None:
    @asynccontextmanager
    async def client(_: str) -> AsyncIterator[Sub]:
        yield Away()

    monkeypatch.setattr(consume, "client", client)
    for name in ("_DELETE_S", "_END_POLL_S", "_UNKNOWN_TIMEOUT_S"):
        monkeypatch.setattr(consume, name, 0.01)
    assert main.run(["consume", "t", *until, *options]) == code


class Unopened(Away):
    """A start that is not the earliest message cannot be stored: the session does not open."""

    connected: ClassVar[dict[str, str]] = {"g1": "g1-0: no answer in 2.0 s"}

    async def fetch(self, *_: object) -> list[Any]:
        await asyncio.sleep(0)
        return []

    async def offsets(self, group: str = "", topic: str = "") -> list[QueueOffsets]:
        return [QueueOffsets(group, topic, "g1", 0, committed=0, begin=0, end=1)]


def test_session_that_does_not_open_ends_a_read_to_the_end(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    @asynccontextmanager
    async def client(_: str) -> AsyncIterator[Sub]:
        yield Unopened()

    monkeypatch.setattr(consume, "client", client)
    for name in ("_DELETE_S", "_UNKNOWN_TIMEOUT_S"):
        monkeypatch.setattr(consume, name, 0.01)
    command = ["consume", "t", "-e", "--from", "2025-01-01T00:00"]
    assert main.run(command) == common.UNAVAILABLE
    assert capfd.readouterr().err.splitlines()[-1] == (
        "fmq: the end is not reached: no session with group g1: g1-0: no answer in 2.0 s; `fmq "
        "status` shows who is away: start those, and run this again"
    )


class Endless:
    """A subscription that always has a message and never commits any."""

    def __init__(self, gap: bool) -> None:
        self.gap, self.at, self.acked = gap, 0, 0

    async def fetch(self, most: int, wait_s: float) -> list[Any]:
        await asyncio.sleep(0)
        if self.gap and self.at >= 10:
            return []
        self.at += 1
        at = self.at - 1
        return [SimpleNamespace(ack_now=self._ack, value=b"v", group="g1", queue=0, offset=at)]

    def _ack(self) -> None:
        self.acked += 1

    async def commit(self, timeout_s: float = 30) -> None:
        await asyncio.sleep(0)

    connected: ClassVar[dict[str, str]] = {}

    def admin(self) -> "Endless":
        return self

    async def offsets(self, group: str = "", topic: str = "") -> list[Any]:
        return [QueueOffsets(group, topic, "g1", 0, self.acked, begin=0, end=10)]


@pytest.mark.parametrize("ack", [True, False])
@pytest.mark.parametrize("gap", [True, False])
async def test_consume_to_the_end_ends(ack: bool, gap: bool) -> None:
    sub = Endless(gap)
    printer = consume._Printer(
        lambda m: m.value, count=0, timeout_s=0, at_end=True, ack=ack, named=True
    )

    async def write(data: bytes) -> None:
        pass

    async with asyncio.timeout(20):
        await printer.run(cast(Any, SimpleNamespace(write=write)), sub, sub, "b", "orders")
