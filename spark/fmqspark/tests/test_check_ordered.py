"""Check an ordered topic over two groups: a sound one is clean, each code has a planted fault."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fmqcore.errors import InvalidArgument
from fmqcore.ids import TopicId
from fmqcore.journal.journal_identity import INCARNATIONS
from fmqcore.zk.chain import Chain, Floor, Sender
from fmqcore.zk.chain_json import chain_to_json
from fmqspark.check.job import CLEAN, INCOMPLETE, INCONSISTENT, WARNINGS
from fmqspark.check.ordered import OrderedOptions, OrderedOutcome, check_ordered
from fmqspark.cli.main import app
from fmqspark.engines.engines import LocalEngine, open_engine
from fmqspark.source.members import MemberPath, members_of, read_chain
from fmqspark.tests.chain_kit import (
    CHAIN,
    G1,
    G2,
    NEXT,
    GroupWriter,
    Journals,
    batches,
    chain_file,
    changed,
    first_segment,
    members,
    named,
    sound,
    switched,
)
from fmqspark.tests.kit import data_batch, flip, write


def checked(paths: tuple[MemberPath, ...], chain: Chain = CHAIN) -> OrderedOutcome:
    return check_ordered(OrderedOptions(chain, paths), LocalEngine())


def found(outcome: OrderedOutcome) -> list[tuple[str, int | None, int | None, int | None]]:
    """Return (code, segment, queue, first offset) of each finding."""
    return [(f.code.name, f.segment, f.queue, f.first) for f in outcome.findings]


def test_sound_members_are_clean(tmp_path: Path) -> None:
    outcome = checked(members(tmp_path))
    assert (outcome.findings, outcome.unread, outcome.exit_code) == ([], [], CLEAN)
    assert outcome.records == 2 * (42 + 32 + 19 + 6 + 3)


def test_pool_finds_the_same(tmp_path: Path) -> None:
    paths = members(tmp_path)
    with open_engine("pool", 2) as engine:
        outcome = check_ordered(OrderedOptions(changed(2, end=(33, 0)), paths), engine)
    assert found(outcome) == [("O105", 2, 0, 32)]


# ---- faults in what members store
def second(*parts: tuple[int, int], sender: int = 1) -> Journals:
    """Return journals in which g2 holds these sequences of queue 0."""
    g2 = GroupWriter()
    for first, last in parts:
        g2.send(0, first, last, sender=sender)
    return Journals(sound().g1, g2)


FAULTS: list[tuple[str, int, Callable[[], Journals]]] = [
    ("O101", 21, lambda: second(*batches(39, 59), *batches(62, 72))),  # 60, 61 lack
    ("O102", 21, lambda: second(*batches(39, 59), *batches(57, 67))),  # 57 to 59 again
    ("O103", 12, lambda: second((39, 44), (51, 56), (45, 50), *batches(57, 70))),
    ("O107", 0, lambda: second(*batches(40, 71))),
    ("O107", 0, lambda: second(*batches(39, 70), sender=2)),
]


@pytest.mark.parametrize(("code", "at", "journals"), FAULTS)
def test_fault_in_a_segment_is_found_once(
    tmp_path: Path, code: str, at: int, journals: Callable[[], Journals]
) -> None:
    outcome = checked(members(tmp_path, journals()))
    assert (code, 2, 0, at) in found(outcome)
    assert outcome.exit_code == INCONSISTENT
    (finding,) = [f for f in outcome.findings if f.code.name == code]
    assert finding.members == tuple(f"g2={tmp_path}/g2-{n}" for n in range(2))


def test_gap_names_the_sequences_around_it(tmp_path: Path) -> None:
    outcome = checked(members(tmp_path, FAULTS[0][2]()))
    assert [f.sentence for f in outcome.findings] == ["sequence 62 follows 59"]
    assert outcome.findings[0].end == 32


def test_other_senders_epoch_is_named(tmp_path: Path) -> None:
    chain = replace(changed(3, sender_epoch=2), sender=Sender("copier-0000000002", 2))
    outcome = checked(members(tmp_path, second(*batches(39, 70), sender=2)), chain)
    (finding,) = [f for f in outcome.findings if f.segment == 2]
    assert (finding.code.name, finding.first, finding.end) == ("O107", 0, 32)
    assert finding.sentence == "sender epoch 2 wrote it, segment 2 is of sender epoch 1"


def test_ordinary_batch_in_an_orphans_place_is_stray(tmp_path: Path) -> None:
    """Above an end lie orphans of that segment's sender, and nothing else."""
    g1 = GroupWriter()
    for first, last in batches(1, 6):
        g1.send(1, first, last)
    for first, last in batches(1, 40, 2):
        g1.send(0, first, last)
    g1.data(7, 0, [b"x", b"y"], producer_id=99)
    chain = replace(CHAIN, segments=CHAIN.segments[:2], closing="it is switched off")
    outcome = checked(members(tmp_path, Journals(g1, sound().g2)), chain)
    assert found(outcome) == [("O106", 1, 0, 40)]


def test_records_before_the_first_segment_are_stray(tmp_path: Path) -> None:
    chain = changed(2, start=(3, 0), first_sequence=(42, 7))
    outcome = checked(
        members(tmp_path), replace(chain, segments=chain.segments[1:2], floor=Floor())
    )
    assert ("O106", None, 0, 0) in found(outcome)


def test_records_of_dropped_segments_are_not_judged(tmp_path: Path) -> None:
    """After a segment is dropped the chain does not know any more which offsets were its own."""
    chain = replace(CHAIN, segments=CHAIN.segments[1:], floor=Floor(1, 1, (40, 6)), heads=())
    assert checked(members(tmp_path), chain).findings == []


def test_records_of_a_queue_beyond_the_chains_are_stray(tmp_path: Path) -> None:
    journals = sound()
    journals.g2.data(7, 5, [b"x"])
    assert found(checked(members(tmp_path, journals))) == [("O106", None, 5, 0)]


def test_segment_of_which_no_member_has_anything(tmp_path: Path) -> None:
    chain = changed(2, start=(100, 0), end=(132, 0))
    (finding,) = checked(members(tmp_path, Journals(sound().g1, GroupWriter())), chain).findings
    assert (finding.code.name, finding.first, finding.end) == ("O105", 100, 132)
    assert finding.sentence.endswith("its members at 100: sequences 39 to 70 are lost")


def test_end_that_no_member_reaches(tmp_path: Path) -> None:
    outcome = checked(members(tmp_path, second(*batches(39, 65))))
    assert found(outcome) == [("O105", 2, 0, 27)]
    assert "sequences 66 to 70 are lost" in outcome.findings[0].sentence


def test_one_member_that_reaches_the_end_is_enough(tmp_path: Path) -> None:
    """A member that is behind is R003 in its group's check; no record is lost."""
    whole, behind = members(tmp_path), members(tmp_path / "b", second(*batches(39, 65)))
    assert checked((*whole[:3], behind[3])).findings == []


def test_acknowledged_sequences_behind_an_unknown_end(tmp_path: Path) -> None:
    """Segment 3 starts with 71, so all before was acknowledged: g2 holds only up to 65."""
    chain = changed(2, end=None, end_unknown=True)
    assert checked(members(tmp_path), chain).findings == []
    outcome = checked(members(tmp_path / "b", second(*batches(39, 65))), chain)
    assert found(outcome) == [("O104", 2, 0, 27)]


def test_members_that_differ_within_a_segment(tmp_path: Path) -> None:
    same = members(tmp_path)
    differs = GroupWriter()
    for first, last in batches(39, 70):
        if first == 48:
            differs.data(
                7,
                0,
                [b"x", b"y", b"z"],
                producer_epoch=1,
                base_sequence=48,
            )
        else:
            differs.send(0, first, last)
    outcome = checked((*same[:3], MemberPath(G2, str(write(tmp_path / "other", differs)))))
    assert found(outcome) == [("O108", 2, 0, 9)]
    assert outcome.findings[0].members == (f"g2={tmp_path}/g2-0", f"g2={tmp_path}/other")


def test_tails_above_an_open_segments_commit_end_may_differ(tmp_path: Path) -> None:
    """A dead master's tail that no other member has is truncated when it comes back."""
    ends, paths = [], []
    for name, last in (("a", 77), ("b", 76)):
        writer = first_segment()
        writer.send(1, 7, 9)
        ends.append(writer.send(0, 71, 74).end)
        writer.send(0, 75, last)
        path = write(tmp_path / name, writer, commit_end=ends[0], durable_end=ends[0])
        paths.append(MemberPath(G1, str(path)))
    others = members(tmp_path)[2:]
    assert checked((*paths, *others)).findings == []


# ---- a chain that is older than the directories
@pytest.mark.parametrize("sender", [1, 2])
@pytest.mark.parametrize("rolled", [False, True])
def test_segments_newer_than_the_chain_are_not_judged(
    tmp_path: Path, sender: int, rolled: bool
) -> None:
    paths = members(tmp_path, switched(sender, rolled=rolled))
    outcome = checked(paths)
    assert (outcome.findings, outcome.exit_code) == ([], INCOMPLETE)
    assert outcome.unread == [
        f"{name} queue 0 from offset {offset} on: newer than the chain, which ends with segment 3; "
        "write it again, and check again"
        for name, offset in zip(named(paths), (61, 61, 32, 32), strict=True)
    ]


def test_fault_before_newer_segments_is_still_found(tmp_path: Path) -> None:
    """A copy of a segment that the chain knows does not hide what comes behind it."""
    journals, later = sound(), switched()
    assert isinstance(journals.g1, GroupWriter)
    journals.g1.note(CHAIN)
    journals.g1.send(0, NEXT + 3, NEXT + 5)
    outcome = checked(members(tmp_path, Journals(journals.g1, later.g2)))
    assert (found(outcome), outcome.exit_code) == ([("O101", 3, 0, 61)], INCONSISTENT)


def test_segment_of_a_group_without_a_known_one_is_not_stray(tmp_path: Path) -> None:
    chain = replace(CHAIN, segments=CHAIN.segments[:1], closing="it is switched off")
    g2 = GroupWriter()
    g2.note(CHAIN)
    g2.send(0, 39, 70)
    outcome = checked(members(tmp_path, Journals(first_segment(), g2)), chain)
    assert (outcome.findings, outcome.exit_code) == ([], INCOMPLETE)


# ---- faults in the chain
def test_gap_between_segments_of_the_chain(tmp_path: Path) -> None:
    chain = changed(3, first_sequence=(74, 7))
    assert ("O101", None, None, None) in found(checked(members(tmp_path), chain))


def test_accepted_loss_is_a_warning(tmp_path: Path) -> None:
    """A release with a loss ended segment 2 at 65; segment 3 goes on with 71."""
    chain = changed(2, end=(27, 0), loss=True)
    outcome = checked(members(tmp_path), chain)
    assert (found(outcome), outcome.exit_code) == ([("O101", 2, 0, None)], WARNINGS)


def test_overlapping_segments_of_one_group_are_a_double(tmp_path: Path) -> None:
    chain = changed(3, start=(39, 6))
    assert ("O102", None, None, None) in found(checked(members(tmp_path), chain))


def test_falling_sender_epoch_is_an_inversion(tmp_path: Path) -> None:
    chain = changed(1, sender_epoch=2)
    assert ("O103", None, None, None) in found(checked(members(tmp_path), chain))


def test_other_invariants_of_the_chain_have_a_code(tmp_path: Path) -> None:
    chain = replace(CHAIN, heads=(("app", (9, 1)),))
    assert found(checked(members(tmp_path), chain)) == [("O109", None, None, None)] * 2


# ---- what could not be judged
def test_group_without_a_directory_is_incomplete(tmp_path: Path) -> None:
    outcome = checked(members(tmp_path)[:2])
    assert (outcome.findings, outcome.exit_code) == ([], INCOMPLETE)
    assert outcome.unread == ["segment 2: no directory of group g2 is named"]


def test_damaged_header_is_not_taken_for_a_gap(tmp_path: Path) -> None:
    paths = members(tmp_path)
    for path in paths[2:]:
        flip(Path(path.path), data_batch(3, sound().g2).position + 20)
    outcome = checked(paths)
    assert (outcome.findings, outcome.exit_code) == ([], INCOMPLETE)
    assert any("segment 2 queue 0" in why for why in outcome.unread)


def test_other_member_has_what_one_cannot_give(tmp_path: Path) -> None:
    paths = members(tmp_path)
    flip(Path(paths[2].path), data_batch(3, sound().g2).position + 20)
    outcome = checked(paths)
    assert (outcome.findings, outcome.exit_code) == ([], INCOMPLETE)
    assert not any("on no member" in why for why in outcome.unread)


def test_missing_member_directory_is_incomplete(tmp_path: Path) -> None:
    paths = members(tmp_path)
    shutil.rmtree(paths[3].path)
    with pytest.raises(InvalidArgument, match="is not a directory"):
        checked(paths)


# ---- the chain file, and names
def test_chain_is_read_from_a_status_or_a_node(tmp_path: Path) -> None:
    assert read_chain(chain_file(tmp_path), "changes") == CHAIN
    node = tmp_path / "node.json"
    node.write_bytes(chain_to_json(CHAIN))
    assert read_chain(node) == CHAIN


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"chain": 3}', "[1]", '"x"'])
def test_file_without_a_chain_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "chain.json"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=r"chain\.json holds"):
        read_chain(path, "changes")


@pytest.mark.parametrize("text", ["/data/g1-0", "g9=/data/g1-0", "g1="])
def test_directory_needs_a_group_of_the_chain(text: str) -> None:
    with pytest.raises(InvalidArgument, match="g1"):
        members_of(CHAIN, [text])


def test_directory_of_another_group_is_named(tmp_path: Path) -> None:
    paths = members(tmp_path)
    for member in paths:
        (Path(member.path) / INCARNATIONS).write_text(f"dev/{member.group}\n")
    assert members_of(CHAIN, named(paths)) == paths
    swapped = [f"g2={paths[0].path}", *named(paths[1:])]
    with pytest.raises(InvalidArgument, match=rf"belongs to group g1 .*: name it as g1={tmp_path}"):
        members_of(CHAIN, swapped)
    (Path(paths[3].path) / INCARNATIONS).write_text("prod/g2\n")
    with pytest.raises(InvalidArgument, match=r"different clusters .*g1-0 to dev, .*g2-1 to prod"):
        members_of(CHAIN, named(paths))


def test_member_without_its_file_is_to_copy_it(tmp_path: Path) -> None:
    paths = members(tmp_path)
    next(Path(paths[0].path).glob("*.journal")).unlink()
    outcome = checked(paths)
    assert (outcome.findings, outcome.exit_code) == ([], INCOMPLETE)
    (why,) = outcome.unread
    assert why.startswith(f"g1={paths[0].path} positions 0–")
    assert "move this whole data directory away and start the broker" in why


def test_chain_of_another_cluster_is_refused(tmp_path: Path) -> None:
    paths = members(tmp_path)
    writer = GroupWriter()
    writer.topic(9, "bills", 1)
    writer.data(9, 0, [b"x"])
    paths = (MemberPath(G1, str(write(tmp_path / "other", writer))), *paths[2:])
    with pytest.raises(InvalidArgument, match="topic number 9 is bills"):
        checked(paths, replace(CHAIN, topic_id=TopicId(9)))


# ---- the command
def call(*arguments: object) -> object:
    return app(args=[str(a) for a in arguments], prog_name="job", standalone_mode=False)


def test_command_reports_and_exits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = named(members(tmp_path))
    ordered = ("check", "--ordered", "changes", "--chain")
    assert call(*ordered, chain_file(tmp_path), *paths) in (None, CLEAN)
    shown = capsys.readouterr().out
    assert "segment 2 in g2: ended, sender epoch 1, sequences 39–70, none" in shown
    assert "verdict (ordered): clean" in shown
    assert call(*ordered, chain_file(tmp_path, changed(2, end=(33, 0))), *paths) == INCONSISTENT
    shown = capsys.readouterr().out
    assert "error: O105 segment 2 queue 0 offsets 32–33: " in shown
    assert "remedy: name the directories of all members" in shown


def test_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = chain_file(tmp_path, changed(2, end=(33, 0)))
    paths = named(members(tmp_path))
    assert call("check", "--ordered", "changes", "--chain", chain, "-o", "json", *paths) == 2
    shown = json.loads(capsys.readouterr().out)
    assert (shown["verdict"], shown["findings"][0]["code"]) == ("inconsistent", "O105")
    assert shown["members"] == paths


@pytest.mark.parametrize("more", [[], ["--out", "x"], ["--level", "deep"]])
def test_command_refuses_what_does_not_go_with_ordered(
    tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    chain = ["--chain", str(chain_file(tmp_path))] if more else []
    assert call("check", "--ordered", "changes", *chain, *more, "g1=/x") == 64
    assert "--ordered" in capsys.readouterr().err
