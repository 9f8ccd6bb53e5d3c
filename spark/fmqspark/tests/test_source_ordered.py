"""Read an ordered topic across groups: its order, each record once, and what ends it early."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.zk.chain import Chain
from fmqspark.source.members import MemberPath
from fmqspark.source.options import understand
from fmqspark.source.ordered import OrderedPlan, plan_ordered
from fmqspark.tests.chain_kit import (
    CHAIN,
    G1,
    NEXT,
    chain_file,
    changed,
    first_segment,
    members,
    named,
    ordered_rows,
    sound,
    switched,
)
from fmqspark.tests.kit import write


def planned(
    folder: Path, paths: tuple[MemberPath, ...], chain: Chain = CHAIN, **options: str
) -> OrderedPlan:
    given = {"path": ",".join(named(paths)), "chain": str(chain_file(folder, chain))}
    return plan_ordered(understand(given | options))


def stretches(plan: OrderedPlan) -> list[tuple[int, int, int, int, int]]:
    """Return (queue, segment, first offset, end, first sequence) of each."""
    return [(s.queue, s.segment, s.first, s.end, s.sequence) for s in plan.stretches]


SEGMENTS = [(0, 1, 0, 40, 1), (0, 2, 2, 32, 41), (0, 3, 42, 61, 71), (1, 1, 0, 6, 1)]


def test_stretches_leave_out_orphans_and_doubles(tmp_path: Path) -> None:
    plan = planned(tmp_path, members(tmp_path))
    assert stretches(plan) == [*SEGMENTS, (1, 3, 6, 9, 7)]
    assert [task.segment for task in plan.tasks] == [1, 2, 3, 1, 3]
    assert plan.notices == []


def test_open_segment_ends_where_its_slowest_member_does(tmp_path: Path) -> None:
    behind = first_segment()
    behind.open_epoch(2)
    behind.send(0, 71, 73)
    slow = MemberPath(G1, str(write(tmp_path / "slow", behind)))
    plan = planned(tmp_path, (*members(tmp_path)[1:], slow))
    assert stretches(plan) == [*SEGMENTS[:2], (0, 3, 42, 45, 71), SEGMENTS[3]]


@pytest.mark.parametrize("rolled", [False, True])
def test_segments_newer_than_the_chain_are_not_read(tmp_path: Path, rolled: bool) -> None:
    """Segment 4 in g2 and 5 in g1 were opened after the chain was written."""
    plan = planned(tmp_path, members(tmp_path, switched(rolled=rolled)))
    assert stretches(plan) == [*SEGMENTS, (1, 3, 6, 9, 7)]
    (notice,) = plan.notices
    assert notice.startswith("nothing is read from segment 4 on")


@pytest.mark.parametrize("closing", ["g1 lacks g1-1", None])
def test_nothing_is_read_from_an_unknown_end_on(tmp_path: Path, closing: str | None) -> None:
    """Of a closing segment, and of what follows an unknown end, consumers get nothing either."""
    chain = replace(CHAIN, closing=closing) if closing else changed(2, end=None, end_unknown=True)
    plan = planned(tmp_path, members(tmp_path), chain)
    last = 3 if closing else 2
    assert stretches(plan) == [s for s in SEGMENTS if s[1] < last]
    assert len(plan.notices) == 2
    assert f"nothing is read from segment {last} of " in plan.notices[0]


def test_new_sender_does_not_hide_an_unknown_end(tmp_path: Path) -> None:
    chain = changed(2, end=None, end_unknown=True)
    last = replace(chain.segments[2], sender_epoch=2)
    chain = replace(
        chain, segments=(*chain.segments[:2], last), sender=chain.sender._replace(epoch=2)
    )
    assert [s[1] for s in stretches(planned(tmp_path, members(tmp_path), chain))] == [1, 1]


def test_records_that_the_directories_lack_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="segment 2 queue 0 ends at offset 33 in g2"):
        planned(tmp_path, members(tmp_path), changed(2, end=(33, 0)))


def test_group_without_a_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="segment 2 of changes lies in g2"):
        planned(tmp_path, members(tmp_path)[:2])


def test_chain_goes_with_directories_only() -> None:
    with pytest.raises(InvalidArgument, match="option chain needs option path"):
        understand({"connect": "fmq://b1:9876", "chain": "chain.json"})


def test_queues_of_the_options_are_read_alone(tmp_path: Path) -> None:
    plan = planned(tmp_path, members(tmp_path), queues="1")
    assert [task.segment for task in plan.tasks] == [1, 3]


# ---- Spark itself
@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from fmqspark.spark.session import open_session
    from fmqspark.spark.source import register

    with open_session(2) as session:
        register(session)
        yield session


def frame(spark: Any, folder: Path) -> Any:
    paths = members(folder, sound())
    return spark.read.format("fmq").option("chain", str(chain_file(folder))).load(named(paths))


@pytest.mark.spark
def test_rows_come_in_order_across_groups(spark: Any, tmp_path: Path) -> None:
    columns = ("queue", "segment", "sequence", "value")
    rows = frame(spark, tmp_path).select(*columns).collect()
    assert [(r.queue, r.segment, r.sequence, bytes(r.value)) for r in rows] == ordered_rows()


@pytest.mark.spark
def test_columns_and_filters_of_an_ordered_topic(spark: Any, tmp_path: Path) -> None:
    changes = frame(spark, tmp_path)
    assert changes.columns[-2:] == ["segment", "sequence"]
    assert changes.where("queue = 0 and sequence between 39 and 42").count() == 4
    assert changes.where("segment = 3").count() == (NEXT - 71) + 3
    one = spark.read.format("fmq").option("chain", str(chain_file(tmp_path)))
    one = one.option("columns", "sequence").load(named(members(tmp_path)))
    assert [row.sequence for row in one.collect()] == [row[2] for row in ordered_rows()]


@pytest.mark.spark
def test_stream_of_an_ordered_topic_is_refused(tmp_path: Path) -> None:
    from fmqspark.spark.source import FmqDataSource

    options = {"chain": str(chain_file(tmp_path)), "path": ",".join(named(members(tmp_path)))}
    source = FmqDataSource(options)
    with pytest.raises(InvalidArgument, match="is not read as a stream"):
        source.streamReader(source.schema())
