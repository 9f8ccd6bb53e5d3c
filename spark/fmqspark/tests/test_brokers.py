"""Live brokers instead of directories: the same records, from slaves first, whichever goes away."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fmqclient import connect
from fmqcore.errors import (
    CorruptJournal,
    InvalidArgument,
    NotFound,
    Overloaded,
    Unavailable,
)
from fmqcore.ids import Position
from fmqcore.journal.checkpoint import decode_checkpoint, encode_checkpoint
from fmqcore.journal.segments import CHECKPOINT, index_name, segment_base, segment_name
from fmqcore.scan import payloads
from fmqcore.scan.selection import Range, Wanted
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions
from fmqproto.v1.client_pb2 import BrokerRoute, GroupRoute, RouteReply, TopicGroup, TopicRoute
from fmqproto.v1.segments_pb2 import SegmentRead, SegmentsReply, StoredSegment
from fmqspark.source import brokers
from fmqspark.source.brokers import BrokerGone, Members, brokers_of, listing
from fmqspark.source.files import Throttle
from fmqspark.source.options import understand
from fmqspark.source.planning import plan
from fmqspark.source.splits import SplitReader, Tally
from fmqspark.source.survey import survey
from fmqspark.tests.kit import data_batch, flip, journal, write
from fmqspark.tests.test_source import ALL, WHOLE, Row, read, rows_of, truth
from fmqwire.methods import ROUTES

SLAVE, MASTER = "fmq://slave:1", "fmq://master:1"


class Played:
    """Brokers simulated by directories. `asked`: (address, segment, index?) of each range."""

    def __init__(self, folder: Path) -> None:
        self.folders = {name: write(folder / name) for name in ("slave", "master")}
        self.asked: list[tuple[str, int, bool]] = []
        self.bytes = 0
        self.before: Callable[[str, SegmentRead], None] = lambda *_: None
        self.down: set[str] = set()
        self.journal = "c/g1"
        self.slept: list[float] = []
        self.withheld: dict[str, int] = {}  # bytes that may not be read yet, by address

    def lines(self) -> "PlayedLines":
        return PlayedLines(self)

    def folder(self, address: str) -> Path:
        name = address.partition(":")[0]
        if name in self.down:
            raise BrokerGone(f"{address}: refused")
        return self.folders[name]

    def end(self, address: str) -> int:
        return decode_checkpoint((self.folder(address) / CHECKPOINT).read_bytes()).commit_end


class PlayedLines:
    """`brokers.Lines` without a network."""

    def __init__(self, played: Played) -> None:
        self.users = 0
        self._played = played

    def call(self, address: str, method: Any, _: Any) -> Any:
        folder = self._played.folder(address)
        if method is ROUTES:
            return routes()
        checkpoint = decode_checkpoint((folder / CHECKPOINT).read_bytes())
        cluster, _, group = self._played.journal.partition("/")
        bases = sorted(b for p in folder.iterdir() if (b := segment_base(p.name)) is not None)
        end = self._played.end(address)
        return SegmentsReply(
            cluster=cluster,
            group=group if address.startswith("slave") else "g1",
            journal_start=checkpoint.journal_start,
            end=end,
            stored_end=end + self._played.withheld.get(address, 0),
            withheld_reason="they wait for slave g1-1" if address in self._played.withheld else "",
            segments=[StoredSegment(base=base) for base in bases if base < end],
        )

    def fetch(self, address: str, request: SegmentRead) -> bytes:
        folder = self._played.folder(address)
        self._played.before(address.partition(":")[0], request)
        folder = self._played.folder(address)
        self._played.asked.append((address, request.base, request.index))
        name = index_name if request.index else segment_name
        try:
            data = (folder / name(Position(request.base))).read_bytes()
        except FileNotFoundError:
            raise NotFound(f"{address}: segment {request.base} is not there") from None
        if not request.index:
            assert 0 < request.length <= self._played.end(address) - request.base - request.at
            data = data[request.at : request.at + request.length]
        self._played.bytes += len(data)
        return data

    def close(self) -> None: ...


def routes(*groups: str) -> RouteReply:
    rows = [
        BrokerRoute(id="g1-0", address="master:1", role="master", live=True),
        BrokerRoute(id="g1-1", address="slave:1", role="slave", live=True),
    ]
    return RouteReply(
        groups=[GroupRoute(group=g, brokers=rows) for g in groups or ("g1",)],
        topics=[TopicRoute(name="orders", groups=[TopicGroup(group="g1")])],
    )


def only_here(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], object]) -> None:
    """Count no waiting of other threads of this process (Spark's, from an earlier test)."""
    monkeypatch.setattr(brokers, "time", SimpleNamespace(sleep=sleep))


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    found = Played(tmp_path)
    monkeypatch.setattr(brokers, "Lines", found.lines)
    only_here(monkeypatch, found.slept.append)
    return found


def from_brokers(wanted: Wanted = WHOLE, tally: Tally | None = None) -> list[Row]:
    return read([SLAVE, MASTER], wanted, tally=tally)  # type: ignore[list-item]


@pytest.mark.parametrize(
    "wanted",
    [
        WHOLE,
        Wanted(queues=frozenset({2})),
        Wanted(offsets=Range(10, 20)),
        Wanted(positions=Range(100_000, 300_000)),
    ],
)
def test_the_records_are_those_of_the_directories(played: Played, wanted: Wanted) -> None:
    tally = Tally()
    assert from_brokers(wanted, tally) == read(list(played.folders.values()), wanted)
    assert {address for address, _, _ in played.asked} == {"slave:1", "master:1"}
    surveyed = len(survey([SLAVE, MASTER]).segments)
    asked_starts = [a for a in played.asked if a[0] == "master:1"]
    assert len(asked_starts) <= 2 * surveyed, (
        "a master is asked for the beginnings of segments alone"
    )
    assert tally.bytes_read > 0


def test_ranges_that_cannot_match_are_not_fetched(played: Played) -> None:
    from_brokers()
    everything, played.bytes = played.bytes, 0
    wanted = data_batch(100)
    found = from_brokers(Wanted(positions=Range(wanted.position, wanted.position + 1)))
    assert len(found) == wanted.record_count
    assert played.bytes < everything / 2


def test_broker_lost_in_mid_segment_then_another_continues(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads are small, and the slave dies after each range that it gave."""
    for name, value in (("_SLAB_RECORDS", 10), ("_RUN", 4096)):
        monkeypatch.setattr(payloads, name, value)
    for name in ("_LEAST", "_MOST"):
        monkeypatch.setattr(brokers, name, 4096)
    good = from_brokers()
    in_the_middle = 0
    for survives in range(2, 30, 3):
        left, came = [survives], 0

        def die(name: str, request: SegmentRead, left: list[int] = left) -> None:
            if name == "slave" and request.base == 65536 and not request.index:
                left[0] -= 1
                if left[0] < 0:
                    played.down.add("slave")

        played.down.clear()
        splits = plan(survey([SLAVE, MASTER]), WHOLE, 65536)
        played.before = die
        rows: list[Row] = []
        for split in splits:
            assert split.sources == (SLAVE, MASTER)
            reader = SplitReader(split, ALL, Throttle(0))
            for slab in reader:
                rows += rows_of(slab, reader.names)
                came += split.segment.base == 65536 and "slave" not in played.down
        played.before = lambda *_: None
        assert rows == good
        in_the_middle += came > 0 and "slave" in played.down
    assert in_the_middle > 2
    assert not played.slept


def test_damage_on_one_broker_is_read_from_the_other(played: Played) -> None:
    good = from_brokers()
    flip(played.folders["slave"], data_batch(100).position + 100)
    assert from_brokers() == good
    flip(played.folders["master"], data_batch(100).position + 100)
    with pytest.raises(CorruptJournal, match=f"damaged at position {data_batch(100).position}"):
        from_brokers()


def test_all_brokers_lost_then_error_names_range_and_brokers(played: Played) -> None:
    split = plan(survey([SLAVE, MASTER]), WHOLE, 65536)[3]
    played.down |= {"slave", "master"}
    with pytest.raises(Unavailable) as caught:
        list(SplitReader(split, ALL, Throttle(0)))
    assert str(caught.value) == (
        f"positions {split.begin} to {split.end} could not be read from any broker: "
        "slave:1: refused; master:1: refused"
    )
    assert len(played.slept) == brokers.ROUNDS - 1
    with pytest.raises(
        Unavailable, match=r"no broker answers \(slave:1: refused; master:1: refused\)"
    ):
        survey([SLAVE, MASTER])


def test_broker_that_came_back_is_asked_again(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = plan(survey([SLAVE, MASTER]), WHOLE, 65536)[3]
    played.down |= {"slave", "master"}
    only_here(monkeypatch, lambda _: played.down.discard("master"))
    assert list(SplitReader(split, ALL, Throttle(0)))


def test_records_lost_to_retention_are_an_error_at_once(played: Played) -> None:
    split = plan(survey([SLAVE, MASTER]), WHOLE, 65536)[0]
    (played.folders["slave"] / segment_name(Position(0))).unlink()
    assert list(SplitReader(split, ALL, Throttle(0)))
    (played.folders["master"] / segment_name(Position(0))).unlink()
    with pytest.raises(NotFound, match="positions 0 to 65536"):
        list(SplitReader(split, ALL, Throttle(0)))
    assert not played.slept


def test_a_busy_broker_is_waited_for_before_another_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    only_here(monkeypatch, slept.append)
    lines = brokers.Lines()
    for refusals in (3, 10**6):
        left = [refusals]

        async def fetch(*_: object, left: list[int] = left) -> bytes:
            left[0] -= 1
            if left[0] >= 0:
                raise Overloaded("slave:1: 8 scans are at work")
            return b"data"

        monkeypatch.setattr(lines, "_fetch", fetch)
        slept.clear()
        if refusals == 3:
            assert lines.fetch("slave:1", SegmentRead()) == b"data"
            assert len(slept) == 3
        else:
            with pytest.raises(Overloaded):
                lines.fetch("slave:1", SegmentRead())
            assert len(slept) > 3
    lines.close()


def test_lagging_slave_gives_only_what_it_knows_as_committed(played: Played) -> None:
    folder = played.folders["slave"]
    checkpoint = decode_checkpoint((folder / CHECKPOINT).read_bytes())
    behind = Position(3 * 65536 + 96)
    claimed = checkpoint._replace(commit_end=behind)
    (folder / CHECKPOINT).write_bytes(encode_checkpoint(claimed))
    found = survey([SLAVE, MASTER])
    assert found.end == journal().end
    sources = {int(view.segment.base): view.sources for view in found.segments}
    assert sources[0] == (SLAVE, MASTER)
    assert sources[3 * 65536] == (MASTER,)
    assert from_brokers() == truth(journal())[0]


def test_survey_names_what_a_broker_may_not_let_read(played: Played) -> None:
    assert survey([SLAVE, MASTER]).notices == []
    played.withheld["master:1"] = 1500
    found = survey([SLAVE, MASTER])
    (notice,) = found.notices
    assert notice.startswith(
        f"{MASTER} stores 1,500 bytes more, from position {found.end} on, which may not be read "
        "yet: they wait for slave g1-1; "
    )
    assert found.left_out == []


def test_brokers_of_two_groups_are_not_one_journal(played: Played) -> None:
    played.journal = "c/g2"
    with pytest.raises(InvalidArgument, match="brokers of several groups: c/g1, c/g2"):
        survey([SLAVE, MASTER])


def test_group_option_selects_the_journal(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    assert brokers_of([MASTER]) == Members("g1", (SLAVE, MASTER), frozenset({"orders"}))
    monkeypatch.setattr(PlayedLines, "call", lambda *_: routes("g1", "g2"))
    assert brokers_of([MASTER], "g2").group == "g2"
    assert brokers_of(["master:1"], topics=["orders"]).group == "g1"
    # The journal still has records of deleted topics, and the other topics must continue.
    assert brokers_of(["master:1"], topics=["orders", "bills"]).group == "g1"
    assert brokers_of(["master:1"], "g1", ["bills"]).group == "g1"
    cases: list[tuple[tuple[Any, ...], str]] = [
        (("", ["bills"]), r"was deleted, name its group, one of g1, g2"),
        ((), r"several groups match: name one of g1, g2"),
        (("g3",), "no group 'g3': the cluster's groups are g1, g2"),
        (("", ["bills"]), "no topic bills: the cluster's topics are orders"),
    ]
    for arguments, sentence in cases:
        with pytest.raises(InvalidArgument, match=sentence):
            brokers_of([MASTER], *arguments)


def test_invalid_options_are_reported() -> None:
    cases: list[tuple[dict[str, str], str]] = [
        ({"connect": SLAVE, "path": "/x"}, "exclude each other: name brokers"),
        ({"connect": "nowhere"}, "begins with fmq://"),
        ({"connect": SLAVE, "uncommitted": "true"}, "return only committed data"),
        ({"path": "/x", "group": "g1"}, "option group needs option connect"),
    ]
    for options, sentence in cases:
        with pytest.raises(InvalidArgument, match=sentence):
            understand(options)
    assert understand({"connect": SLAVE, "group": "g1"}).named == (SLAVE,)


# ---- real ones
COUNT = 6000


def rows_from(sources: Sequence[str], wanted: Wanted = WHOLE) -> list[Row]:
    return sorted(read(sources, wanted))  # type: ignore[arg-type]


@pytest.mark.processes
async def test_killed_brokers_then_rows_equal_their_directories(
    tmp_path: Path, zookeeper: str
) -> None:
    settings = {"segment_bytes": 65536 * 4, "checkpoint_interval_ms": 50}
    options = ClusterOptions(groups=1, slaves=1, zookeeper=zookeeper, settings=settings)
    async with DevCluster(tmp_path / "dev", options) as cluster:
        sent = await produced(cluster.url)
        members = await asyncio.to_thread(brokers_of, [cluster.url])
        master, slave = (f"fmq://{cluster.brokers[b].address}" for b in ("g1-0", "g1-1"))
        assert members.sources == (slave, master)
        await same_end(slave, master)
        found = await asyncio.to_thread(rows_from, members.sources)
        assert [(q, o, v) for t, q, o, v in found if t == "orders"] == sent
        assert len(found) == COUNT

        def killed_in_mid_scan() -> list[Row]:
            rows: list[Row] = []
            splits = plan(survey(members.sources), WHOLE)
            assert len(splits) > 4
            assert all(split.sources == (slave, master) for split in splits)
            for number, split in enumerate(splits):
                reader = SplitReader(split, ALL, Throttle(0))
                with brokers.connections():  # the connection is up when the broker dies
                    for slab in reader:
                        rows += rows_of(slab, reader.names)
                        if number == 1:
                            cluster.kill("g1-1")
            return sorted(rows)

        assert await asyncio.to_thread(killed_in_mid_scan) == found
        assert await cluster.ended("g1-1")
        splits = await asyncio.to_thread(lambda: plan(survey(members.sources), WHOLE))
        assert splits[0].sources == (master,), "who does not answer is not planned with"
        cluster.kill("g1-0")
        assert await cluster.ended("g1-0")
        with pytest.raises(Unavailable, match=f"positions 0 to [0-9]+ .* {master[6:]}"):
            await asyncio.to_thread(lambda: list(SplitReader(splits[0], ALL, Throttle(0))))
        with pytest.raises(Unavailable, match="no broker answers"):
            await asyncio.to_thread(brokers_of, [cluster.url])


async def produced(url: str) -> list[tuple[int, int, bytes]]:
    async with connect(url) as client:
        await client.admin().create_topic("orders", queues=2)
        async with client.producer() as producer:
            values = [b"%d " % n + b"x" * 200 for n in range(COUNT)]
            receipts = await producer.send_batch(
                "orders", values, keys=[b"%d" % (n % 7) for n in range(COUNT)]
            )
    return sorted((r.queue, r.offset, v) for r, v in zip(receipts, values, strict=True))


async def same_end(slave: str, master: str) -> None:
    """The slave learns the commit end a little later."""
    async with asyncio.timeout(60):
        while True:
            listings = [await asyncio.to_thread(listing, source) for source in (slave, master)]
            if listings[0].end == listings[1].end:
                return
            await asyncio.sleep(0.05)
