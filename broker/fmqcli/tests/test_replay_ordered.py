"""A replay into an ordered topic: each record once and in order, wherever an earlier run died."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

import fmqclient
from fmqcli import send_waits
from fmqcli.commands.replay import _Job
from fmqcli.replay_ordered import OrderedPlan, OrderedSends, QueueEnd, digest_of
from fmqclient.producer.ordered_records import LastRecord
from fmqclient.tests.double import until
from fmqclient.tests.ordered_double import OrderedDouble, ordered_cluster
from fmqclient.tests.test_ordered_producer import unknown_topic
from fmqcore.errors import (
    FmqError,
    InvalidArgument,
    Malformed,
    OutOfSequence,
    SenderFenced,
    TooLarge,
    Unavailable,
    UnknownQueue,
    UnknownTopic,
)
from fmqcore.ids import GroupName, Offset, TopicId
from fmqcore.placement import ByChain
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqproto.v1 import client_pb2
from fmqspark.archive.replay import Place

GROUPS = (TopicGroup(GroupName("g1"), 2, 1), TopicGroup(GroupName("g2"), 2, 1))
TOPIC = TopicConfig("copy", TopicId(3), GROUPS, ordered=True)


@dataclass
class Row:
    value: bytes
    queue: int = 0
    key: bytes | None = None
    tag: bytes | None = None
    headers: dict[str, bytes] | None = None


ROWS = [Row(b"%d" % n, n % 2, headers={"n": b"%d" % n}) for n in range(8)]
QUEUES = [row.queue for row in ROWS]


def last(row: Row, sequence: int, *, readable: bool = True) -> LastRecord:
    """Return a queue's last record as a broker returns it."""
    if not readable:
        return LastRecord(sequence, Offset(7), False, b"", None, {})
    return LastRecord(sequence, Offset(7), True, row.value, row.key, row.headers or {})


def plan(state: dict[str, Any], topic: TopicConfig = TOPIC, same: bool = True) -> OrderedPlan:
    return OrderedPlan.of(json.loads(json.dumps(state)), topic, same)


def noted(ends: list[QueueEnd], same: bool = True) -> dict[str, Any]:
    return OrderedPlan(TOPIC, same, ends).state()


def test_ordered_topic_without_a_group_is_malformed() -> None:
    with pytest.raises(Malformed, match="topic copy name no group"):
        plan({}, replace(TOPIC, groups=()))


BEFORE = Row(b"before", 0)
ENDS = [QueueEnd(10, digest_of(BEFORE)), QueueEnd()]
"""Queue 0 has a record of before; queue 1 is empty. All of `ROWS` are after the noted place."""


@pytest.mark.parametrize(
    ("found", "sent"),
    [
        ({0: last(BEFORE, 10)}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({0: last(BEFORE, 10, readable=False)}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({0: last(ROWS[2], 12), 1: last(ROWS[1], 1)}, [3, 4, 5, 6, 7]),
        ({0: last(BEFORE, 10), 1: last(ROWS[7], 4)}, [0, 2, 4, 6]),
        ({0: last(ROWS[6], 14), 1: last(ROWS[7], 4)}, []),
    ],
)
def test_resumed_run_leaves_out_what_is_stored(
    found: dict[int, LastRecord], sent: list[int]
) -> None:
    assert plan(noted(ENDS)).unstored(ROWS, QUEUES, found) == sent


@pytest.mark.parametrize(
    ("found", "kind", "sentence"),
    [
        ({0: last(ROWS[0], 10)}, OutOfSequence, "queue 0 .* sequence 10 .* another sender"),
        ({0: last(ROWS[0], 12)}, OutOfSequence, "queue 0 .* sequence 12 .* another sender"),
        ({0: last(ROWS[6], 15)}, OutOfSequence, "queue 0 .* sequence 15 .* another sender"),
        ({0: last(BEFORE, 10), 1: last(BEFORE, 1)}, OutOfSequence, "queue 1 .* another sender"),
        ({0: last(BEFORE, 9)}, OutOfSequence, "ends at sequence 9, .* left it at 10: .* is lost"),
        ({}, OutOfSequence, "ends at sequence 0, .* left it at 10: .* is lost"),
        ({0: last(BEFORE, 11, readable=False)}, Unavailable, "queue 0 .*: no broker returns"),
    ],
)
def test_topic_that_holds_something_else_is_refused(
    found: dict[int, LastRecord], kind: type[FmqError], sentence: str
) -> None:
    with pytest.raises(kind, match=f"{sentence}.* another --name, into an empty topic"):
        plan(noted(ENDS)).unstored(ROWS, QUEUES, found)


def test_stored_chunk_moves_the_ends_of_its_queues() -> None:
    made = plan(noted(ENDS))
    made.advance(ROWS[:3], QUEUES[:3], {0: 12, 1: 1})
    assert made.ends == [QueueEnd(12, digest_of(ROWS[2])), QueueEnd(1, digest_of(ROWS[1]))]
    made.advance(ROWS[4:5], QUEUES[4:5], {0: 13, 1: 1})
    assert made.ends == [QueueEnd(13, digest_of(ROWS[4])), QueueEnd(1, digest_of(ROWS[1]))]
    assert plan(made.state()) == made


def test_first_run_starts_after_what_the_topic_holds() -> None:
    first = plan({})
    first.begin({0: last(BEFORE, 10)})
    assert first.ends == ENDS
    resumed = plan(noted(ENDS))
    resumed.begin({0: last(ROWS[2], 12)})
    assert resumed.ends == ENDS, "noted once, before anything was sent"


def test_record_goes_to_the_queue_of_its_key_or_its_old_one() -> None:
    row = Row(b"v", queue=1, key=b"k")
    assert plan({}, same=True).queue_of(row) == 1
    assert plan({}, same=False).queue_of(row) == ByChain(2).queue(b"k")
    assert plan({}, same=False).queue_of(Row(b"v", queue=9)) == ByChain(2).queue(b"")
    with pytest.raises(UnknownQueue, match=r"came from queue 2, .* copy has queues 0 to 1"):
        plan({}, same=True).queue_of(Row(b"v", queue=2))


def test_digest_differs_with_all_that_a_broker_returns() -> None:
    rows = [
        Row(b"ab"),
        Row(b"a", key=b"b"),
        Row(b"ab", headers={"n": b"1"}),
        Row(b"ab", headers={"n": b"2"}),
        Row(b"ab", headers={"m": b"1"}),
    ]
    assert len({digest_of(row) for row in rows}) == len(rows)
    assert digest_of(Row(b"ab", 1, b"", b"tag", {})) == digest_of(Row(b"ab"))
    both = {"n": b"1", "m": b"2"}
    assert digest_of(Row(b"", headers=both)) == digest_of(
        Row(b"", headers=dict(sorted(both.items())))
    )


@pytest.mark.parametrize(
    ("state", "topic", "same", "sentence"),
    [
        (noted(ENDS), replace(TOPIC, id=TopicId(4)), True, "copy was recreated"),
        (noted(ENDS), TOPIC, False, "the other setting of --same-queue"),
        (noted(ENDS[:1]), TOPIC, True, "had 1 queues when this replay started, and has 2"),
        ({"producer": 1}, TOPIC, True, "is ordinary, not ordered"),
        ({"kind": "ordered"}, TOPIC, True, "cannot be decoded"),
        (noted(ENDS) | {"ends": [[1, "zz"], [0, ""]]}, TOPIC, True, "cannot be decoded"),
        (noted(ENDS) | {"ends": [[-1, ""], [0, ""]]}, TOPIC, True, "cannot be decoded"),
        (noted(ENDS) | {"ends": [[1], [0]]}, TOPIC, True, "cannot be decoded"),
    ],
)
def test_ordered_note_that_no_longer_fits_is_refused(
    state: dict[str, Any], topic: TopicConfig, same: bool, sentence: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"{sentence}.*--name"):
        plan(state, topic, same)


def test_other_acks_are_refused_for_an_ordered_topic() -> None:
    with pytest.raises(InvalidArgument, match=r"--acks all: topic copy is ordered"):
        OrderedSends(None, plan({}), "x", "all")


# ---- against the chain's real decisions


class Died(Exception): ...


class Archive:
    """The archive's records and what was noted, over several runs."""

    def __init__(self, rows: list[Row], size: int) -> None:
        self._rows, self._size = rows, size
        self._noted = (0, "{}")
        self.dies_at = -1  # the note that fails
        self.new_run()

    def new_run(self) -> "Archive":
        """Read what was noted last."""
        self.place, self.state = Place(0, self._noted[0]), json.loads(self._noted[1])
        self.done_before, self.notes = self.place.rows, 0
        return self

    def chunks(self) -> Iterator[tuple[list[Row], Place]]:
        for end in range(self._size, len(self._rows) + self._size, self._size):
            if end > self.place.rows:
                rows = self._rows[max(end - self._size, self.place.rows) : end]
                yield rows, Place(0, min(end, len(self._rows)))

    def note(self, place: Place, state: dict[str, Any]) -> None:
        if self.notes == self.dies_at:
            raise Died
        self.notes += 1
        self._noted = place.rows, json.dumps(state)


MANY = [
    Row(b"%d" % n, n // 7 % 2, tag=b"t", headers={"n": b"%d" % n} if n % 3 else None)
    for n in range(600)
]


def expected(queue: int, rows: list[Row]) -> list[bytes]:
    return [row.value for row in rows if row.queue == queue]


class Hanging:
    """The fate of batches: so many are acked, and none of the rest."""

    def __init__(self, acked: int) -> None:
        self._acked = acked
        self.hangs = asyncio.Event()

    def __call__(self, _: client_pb2.ProduceBatch) -> str | None:
        self._acked -= 1
        if self._acked >= 0:
            return None
        self.hangs.set()
        return "hang"


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that gives the replay's producer other settings."""
    real = fmqclient.Client.ordered_producer

    def apply(**settings: Any) -> None:
        settings["close_timeout_s"] = 0.05
        made = lambda *args, **given: real(*args, **{**given, **settings})  # noqa: E731
        monkeypatch.setattr(fmqclient.Client, "ordered_producer", made)

    return apply


async def replay(double: OrderedDouble, archive: Archive, same: bool = True) -> int:
    """Run the replay once, and return how many records it stored."""
    records: Any = archive.new_run()
    job = _Job(records, "changes", same, "again")
    async with fmqclient.connect(double.url) as client:
        await job.send(client, "replicated")
    return job.stored


def check(double: OrderedDouble, rows: list[Row]) -> None:
    for queue in range(2):
        assert double.values_of_chain(queue) == expected(queue, rows)


@pytest.mark.parametrize("dies_at", [1, 2, 4])
async def test_run_that_died_before_its_note_resumes(dies_at: int) -> None:
    """Note 0 is before anything is sent; a later one comes behind a chunk that is stored."""
    async with ordered_cluster(queues=2) as double:
        archive = Archive(MANY, 50)
        archive.dies_at = dies_at
        for _ in range(3):
            with pytest.raises(Died):
                await replay(double, archive)
            await until(lambda: not double.line)
            assert len(double.values_of_chain(0)) > len(expected(0, MANY[: archive._noted[0]]))
        archive.dies_at = -1
        assert await replay(double, archive) == len(MANY) - archive.place.rows
        check(double, MANY)


@pytest.mark.parametrize("size", [1, 3, 10])
async def test_run_cut_off_in_a_chunk_resumes(size: int, narrow: Callable[..., None]) -> None:
    """Records are stored and their ack never comes; the next run finds a part of the chunk."""
    narrow(max_batch_records=size)
    async with ordered_cluster(queues=2) as double:
        archive, parts = Archive(MANY, 100), 0
        for acked in (0, 3, 7, 12):
            double.fate = Hanging(acked)
            running = asyncio.create_task(replay(double, archive))
            await until(double.fate.hangs.is_set)
            running.cancel()
            await asyncio.wait([running])
            await until(lambda: not double.line)
            stored = len(double.values_of_chain(0)) + len(double.values_of_chain(1))
            parts += stored > archive._noted[0]
        assert parts == 4
        double.fate = lambda batch: None
        await replay(double, archive)
        check(double, MANY)


async def test_order_is_kept_over_a_switch() -> None:
    async with ordered_cluster(queues=2) as double:
        archive = Archive(MANY, 20)
        real = archive.note

        def note(place: Place, state: dict[str, Any]) -> None:
            real(place, state)
            if place.rows in (100, 300):
                loop.call_soon_threadsafe(double.switch)

        archive.note = note  # type: ignore[method-assign]
        loop = asyncio.get_running_loop()
        assert await replay(double, archive) == len(MANY)
        assert len(double.chain.segments) == 3
        check(double, MANY)


async def test_nothing_is_sent_before_the_ends_are_noted() -> None:
    async with ordered_cluster(queues=2) as double:
        archive = Archive(MANY, 50)
        archive.dies_at = 0
        with pytest.raises(Died):
            await replay(double, archive)
        assert double.values_of_chain(0) == []


async def test_another_sender_in_between_ends_the_replay() -> None:
    async with ordered_cluster(queues=2) as double, fmqclient.connect(double.url) as client:
        archive = Archive(MANY, 50)
        archive.dies_at = 2
        with pytest.raises(Died):
            await replay(double, archive)
        async with client.ordered_producer("changes") as other:
            await other.send(b"foreign", queue=0)
        archive.dies_at = -1
        before = double.values_of_chain(1)
        with pytest.raises(OutOfSequence, match="another sender"):
            await replay(double, archive)
        assert double.values_of_chain(1) == before, "nothing was sent"


async def test_finished_replay_does_not_ask_for_the_role() -> None:
    async with ordered_cluster(queues=2) as double, fmqclient.connect(double.url) as client:
        archive = Archive(MANY, 100)
        await replay(double, archive)
        async with client.ordered_producer("changes"):
            assert await replay(double, archive) == 0


async def test_replay_reports_that_it_waits_for_the_role(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_waits, "STALLED_S", 0.01)
    async with ordered_cluster(queues=2) as double, fmqclient.connect(double.url) as client:
        async with client.ordered_producer("changes", name="other"):
            running = asyncio.create_task(replay(double, Archive(MANY, 100)))
            await until(lambda: "waiting for the role: sender other" in capsys.readouterr().err)
        assert await running == len(MANY)
        check(double, MANY)


async def test_fenced_replay_ends_and_the_next_run_goes_on() -> None:
    async with ordered_cluster(queues=2) as double:
        archive = Archive(MANY, 50)
        double.fate = lambda batch: (
            SenderFenced("a later sender") if batch.ordered_sequence > 70 else None
        )
        with pytest.raises(SenderFenced, match=r"topic changes: .*: run the replay again|goes on"):
            await replay(double, archive)
        double.fate = lambda batch: None
        await until(lambda: not double.line)
        await replay(double, archive)
        check(double, MANY)


async def test_replay_into_a_deleted_topic_names_a_way_out() -> None:
    async with ordered_cluster(queues=2) as double:
        double.fate = Hanging(2)
        running = asyncio.create_task(replay(double, Archive(MANY, 50)))
        await until(double.fate.hangs.is_set)
        del double.topics["changes"]
        unknown_topic(double)
        sentence = r"it may be stored or not: .*was deleted; send everything again .*--name"
        with pytest.raises(UnknownTopic, match=sentence):
            await running


async def test_record_that_is_too_large_ends_the_replay() -> None:
    async with ordered_cluster(queues=2) as double:
        rows = [*MANY[:30], Row(b"x" * (64 << 20))]
        with pytest.raises(TooLarge, match=r"topic changes: a record has 67,?108"):
            await replay(double, Archive(rows, 100))


async def test_chunk_larger_than_the_window_is_sent(narrow: Callable[..., None]) -> None:
    narrow(max_outstanding_records=7, max_batch_records=3)
    async with ordered_cluster(queues=2) as double:
        assert await replay(double, Archive(MANY, 100)) == len(MANY)
        check(double, MANY)
