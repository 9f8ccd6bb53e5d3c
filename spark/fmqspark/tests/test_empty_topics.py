"""A topic without a message here: live brokers know it, and a journal alone cannot."""

import json
from pathlib import Path
from typing import Any

import pytest

from fmqcore.errors import InvalidArgument
from fmqcore.tests.journal.writer import JournalWriter
from fmqproto.v1.client_pb2 import RouteReply, TopicGroup, TopicRoute
from fmqspark.archive.replay import Replay
from fmqspark.cli.main import app
from fmqspark.engines.engines import LocalEngine
from fmqspark.source import brokers
from fmqspark.source.files import Throttle
from fmqspark.source.options import understand
from fmqspark.source.planning import plan
from fmqspark.source.splits import SplitReader
from fmqspark.tests import test_brokers
from fmqspark.tests.kit import write
from fmqspark.tests.test_brokers import MASTER, SLAVE, Played, only_here
from fmqspark.tests.test_source import ALL, rows_of


def journal(*, later: bool) -> JournalWriter:
    """`fresh` gets its first message late; `other` has none here."""
    writer = JournalWriter()
    writer.open_epoch(1)
    writer.topic(1, "orders", 1)
    writer.data(1, 0, [b"one"])
    if later:
        writer.roll()
        writer.topic(2, "fresh", 1)
        writer.data(2, 0, [b"two"])
    return writer


EARLY, LATER = journal(later=False), journal(later=True)


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Brokers that list `fresh` in their group, and `other` in another one."""
    found = Played(tmp_path)
    for name in found.folders:
        found.folders[name] = write(tmp_path / f"{name}-early", EARLY)
    plain = test_brokers.routes

    def routes(*groups: str) -> RouteReply:
        topics = [("orders", "g1"), ("fresh", "g1"), ("other", "g2")]
        rows = [TopicRoute(name=name, groups=[TopicGroup(group=g)]) for name, g in topics]
        return RouteReply(groups=plain(*(groups or ("g1", "g2"))).groups, topics=rows)

    monkeypatch.setattr(test_brokers, "routes", routes)
    monkeypatch.setattr(brokers, "Lines", found.lines)
    only_here(monkeypatch, found.slept.append)
    return found


def grow(played: Played) -> None:
    for folder in played.folders.values():
        write(folder, LATER)


def values(**options: str) -> list[bytes]:
    request = understand({"connect": MASTER, **options})
    found = request.survey()
    readers = [
        SplitReader(split, ALL, Throttle(0)) for split in plan(found, request.wanted_in(found))
    ]
    return [row[-1] for one in readers for slab in one for row in rows_of(slab, one.names)]


def test_topic_without_a_message_is_empty_with_connect(played: Played) -> None:
    assert values(topic="fresh") == []
    assert values(topic="orders,fresh") == [b"one"]
    assert values(topic="fresh", group="g1") == []
    grow(played)
    assert values(topic="fresh") == [b"two"]
    assert values(topic="orders,fresh") == [b"one", b"two"]


def test_topic_that_brokers_do_not_list_here_is_unknown(played: Played) -> None:
    for topic in ("nope", "other"):
        with pytest.raises(InvalidArgument) as caught:
            values(topic=topic, group="g1")
        assert f"no topic '{topic}' in this journal; its topics: orders" in str(caught.value)
        assert "nor do the brokers list it for this group" in str(caught.value)


def test_directory_names_who_knows_an_empty_topic(tmp_path: Path) -> None:
    request = understand({"path": str(write(tmp_path / "a", EARLY)), "topic": "fresh"})
    with pytest.raises(InvalidArgument) as caught:
        request.wanted_in(request.survey())
    for part in ("no topic 'fresh' in this journal", "(connect)", "`fmq topic list`"):
        assert part in str(caught.value)


@pytest.mark.spark
@pytest.mark.parametrize("topics", ["fresh", "orders,fresh"])
def test_stream_reads_a_topic_once_it_has_messages(
    played: Played, topics: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from fmqspark.spark.stream import FmqStreamReader

    reader: Any = FmqStreamReader(understand({"connect": MASTER, "topic": topics}), ALL)
    start, rows = reader.initialOffset(), list[bytes]()
    for later in (False, True):
        if later:
            grow(played)
        end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
        splits = [split for part in reader.partitions(start, end) for split in part.task]
        readers = [SplitReader(split, ALL, Throttle(0)) for split in splits]
        rows += [row[-1] for one in readers for slab in one for row in rows_of(slab, one.names)]
        start = end
    assert rows == ([b"one", b"two"] if "orders" in topics else [b"two"])
    assert "no topic" not in capsys.readouterr().err


@pytest.mark.spark
def test_stream_of_another_group_is_refused(played: Played) -> None:
    """The streams may start where no mark can be compared."""
    from fmqspark.spark.stream import FmqStreamReader

    reader: Any = FmqStreamReader(understand({"connect": MASTER, "group": "g1"}), ALL)
    start = reader.initialOffset()
    assert start["journal"] == "c/g1"
    with pytest.raises(
        InvalidArgument, match=r"belongs to journal c/g2, but .* holds journal c/g1"
    ):
        reader.partitions({**start, "journal": "c/g2"}, {"position": EARLY.end})


@pytest.mark.spark
def test_archive_and_replay_of_a_topic_without_a_message(played: Played, tmp_path: Path) -> None:
    from fmqspark.archive.job import ArchiveOptions, run_archive  # needs pyarrow

    out = tmp_path / "out"

    def archive(*topics: str, listed: tuple[str, ...] = ("orders", "fresh")) -> int:
        options = ArchiveOptions((SLAVE, MASTER), out, "g1", topics, listed=frozenset(listed))
        return run_archive(options, LocalEngine()).rows

    with pytest.raises(InvalidArgument, match="no topic 'other' in this journal"):
        archive("other")
    assert archive("fresh") == 0
    assert list(Replay(out, "fresh", None, "again").chunks()) == []
    with pytest.raises(InvalidArgument, match="no topic 'orders'"):
        Replay(out, "orders", None, "other")
    grow(played)
    assert archive("fresh") == 1
    ((rows, _),) = Replay(out, "fresh", None, "again").chunks()
    assert [row.value for row in rows] == [b"two"]


@pytest.mark.spark
def test_archive_command_asks_the_brokers_for_topics(played: Played, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = ["archive", "--connect", MASTER, "--out", str(out), "--topic", "fresh"]
    assert app(args=given, prog_name="fmq job", standalone_mode=False) == 0
    assert (out / "_fmq" / "g1.ledger").exists()
