"""Recovery: the table of verdicts, damaged directories, the checkpoint's bytes."""

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmqcore.batch.header import BatchFault, BatchType
from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, Position
from fmqcore.journal.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from fmqcore.journal.findings import FAULT_CODES, REFILL, Code, Severity
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.recovery import (
    _RULES,
    Clean,
    Cut,
    Refuse,
    SegmentFile,
    Survey,
    Verdict,
    check_length,
    judge,
    judge_sealed,
    replay,
    survey,
)
from fmqcore.journal.scan import Blank, Cursor, Fault, Scan, Sealed, Stop
from fmqcore.journal.segments import (
    CHECKPOINT,
    MIN_SEGMENT,
    Segment,
    index_name,
    segment_base,
    segment_name,
)
from fmqcore.journal.state import JournalState
from fmqcore.tests.journal.writer import DeafWriter, JournalWriter, sample

P = Position
FILE = segment_name(P(0))


@dataclass
class Recovered:
    survey: Survey
    verdict: Verdict | None
    state: JournalState
    index: SegmentIndex


def recovered(files: dict[str, bytes]) -> Recovered:
    """Recover an in-memory directory as a start does (one segment is replayed)."""
    raw = files.get(CHECKPOINT)
    checkpoint = decode_checkpoint(raw) if raw is not None else None
    listing = [(name, len(data)) for name, data in files.items()]
    found = survey(listing, checkpoint)
    state = JournalState()
    if found.refusal or not found.segments:
        return Recovered(found, None, state, SegmentIndex(P(0)))
    last = found.segments[-1]
    index = SegmentIndex(last.base)
    data = files[last.name]
    scan = Scan(data, last.base, Cursor(last.base), until=found.cut_at)
    stop = replay(scan, state, index)
    verdict = judge(
        stop,
        last.name,
        durable_end=found.durable_end,
        clean=checkpoint is not None and checkpoint.clean,
        dirty=isinstance(stop, Blank) and any(data[stop.position - last.base :]),
    )
    return Recovered(found, verdict, state, index)


# ---- the table
STOPS: dict[str, Stop] = {
    "zeros": Blank(P(1000)),
    "dirty zeros": Blank(P(1000)),
    "sealed": Sealed(P(1000)),
    "fault": Fault(P(1000), BatchFault.PAYLOAD_CRC, "payload CRC is wrong"),
    "content": Fault(P(1000), BatchFault.CONTENT, "nonsense"),
}


@pytest.mark.parametrize(
    ("how", "below", "clean", "expected"),
    [
        ("zeros", False, False, Clean),
        ("zeros", False, True, Clean),
        ("dirty zeros", False, False, Cut),
        ("dirty zeros", False, True, Refuse),
        ("sealed", False, False, Clean),
        ("sealed", False, True, Clean),
        ("fault", False, False, Cut),
        ("fault", False, True, Refuse),
        ("content", False, False, Refuse),
        ("content", False, True, Refuse),
        *((how, True, clean, Refuse) for how in STOPS for clean in (False, True)),
    ],
)
def test_the_table(how: str, below: bool, clean: bool, expected: type) -> None:
    verdict = judge(
        STOPS[how],
        FILE,
        durable_end=P(1001 if below else 1000),
        clean=clean,
        dirty=how == "dirty zeros",
    )
    assert type(verdict) is expected
    match verdict:
        case Clean():
            assert verdict.end == 1000
        case Cut():
            assert verdict.at == 1000
            assert verdict.finding.severity is Severity.WARNING
            assert verdict.finding.position == 1000
        case Refuse():
            assert verdict.finding.severity is Severity.ERROR
            assert "position 1000" in str(verdict.finding)
            assert REFILL in str(verdict.finding)


def test_recovery_table_is_complete_and_faults_have_codes() -> None:
    either = (False, True)
    for how, below, clean, dirty in product(STOPS, either, either, either):
        judge(STOPS[how], FILE, durable_end=P(1001 if below else 0), clean=clean, dirty=dirty)
    assert set(FAULT_CODES) == set(BatchFault)
    assert len(_RULES) == 16


def test_segment_before_another_must_be_sealed() -> None:
    file = SegmentFile(P(0), MIN_SEGMENT)
    assert judge_sealed(Sealed(file.end), file) is None
    for stop in (*STOPS.values(), Sealed(P(MIN_SEGMENT - 8)), Blank(file.end)):
        assert judge_sealed(stop, file) is not None


def test_a_file_that_is_not_as_long_as_its_segment() -> None:
    file = SegmentFile(P(0), MIN_SEGMENT)
    assert check_length(Segment(P(0), file.end), file) is None
    assert check_length(None, file) is None
    shorter = check_length(Segment(P(0), P(MIN_SEGMENT + 8)), file)
    assert shorter is not None
    assert shorter.severity is Severity.WARNING
    longer = check_length(Segment(P(0), P(MIN_SEGMENT - 8)), file)
    assert longer is not None
    assert longer.severity is Severity.ERROR


# ---- whole directories
def test_sound_directory_is_recovered_whole() -> None:
    writer = sample()
    for checkpoint in (writer.checkpoint(), writer.checkpoint(clean=True), None):
        got = recovered(writer.files(checkpoint))
        assert got.survey.refusal is None
        assert not got.survey.leftovers
        assert got.verdict == Clean(writer.end)
        assert got.state == writer.state
        assert got.index.encode() == writer.index(writer.last_base)
        codes = [finding.code for finding in got.survey.findings]
        assert codes == ([] if checkpoint else [Code.M001])


def test_torn_tail_is_truncated_above_durable_end_refused_below() -> None:
    writer = sample(batches=30)
    batch = [h for h in writer.headers if h.type == BatchType.DATA][-1]
    files = writer.files()
    name = segment_name(writer.last_base)
    good, base = files[name], writer.last_base
    for end in range(batch.position, batch.position + batch.total_len, 5):
        files[name] = good[: end - base] + bytes(len(good) - (end - base))
        if files[name] == good:  # only zeros were lost
            continue
        for durable, clean in product((batch.position, batch.end), (False, True)):
            checkpoint = writer.checkpoint(durable_end=durable, clean=clean)
            got = recovered(files | {CHECKPOINT: encode_checkpoint(checkpoint)}).verdict
            if durable == batch.position and end == batch.position:
                assert got == Clean(batch.position)
            elif durable == batch.position and not clean:
                assert isinstance(got, Cut)
                assert got.at == batch.position
            else:
                assert isinstance(got, Refuse)
                assert got.finding.position == batch.position
                assert got.finding.file == name


def test_only_last_segment_may_be_truncated_without_checkpoint() -> None:
    writer = sample()
    last = next(h for h in writer.headers if h.position > writer.last_base)
    files = writer.files()
    name = segment_name(writer.last_base)
    damaged = bytearray(files[name])
    damaged[last.position - writer.last_base + 20] ^= 1
    got = recovered(files | {name: bytes(damaged)})
    assert isinstance(got.verdict, Cut)
    assert got.verdict.at == last.position


def test_torn_first_snap_and_empty_file_end_the_journal_at_base() -> None:
    writer = sample()
    files = writer.files(writer.checkpoint(durable_end=writer.last_base))
    name = segment_name(writer.last_base)
    torn = files | {name: files[name][:50] + bytes(MIN_SEGMENT - 50)}
    assert isinstance(recovered(torn).verdict, Cut)
    assert recovered(torn).verdict.at == writer.last_base  # type: ignore[union-attr]
    blank = files | {name: bytes(MIN_SEGMENT)}
    got = recovered(blank)
    assert got.survey.refusal is None
    assert name not in got.survey.leftovers
    assert got.verdict == Clean(writer.last_base)
    durable = writer.files(writer.checkpoint()) | {name: bytes(MIN_SEGMENT)}
    verdict = recovered(durable).verdict
    assert isinstance(verdict, Refuse), "what was durable in it is gone"
    assert (verdict.finding.code, verdict.finding.file) == (Code.J001, name)


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_missing_segment_is_named(with_checkpoint: bool) -> None:
    writer = sample(batches=120)
    bases = list(writer.segments)
    assert len(bases) >= 3
    files = writer.files(writer.checkpoint() if with_checkpoint else None)
    for number, base in enumerate(bases):
        left = {n: d for n, d in files.items() if n != segment_name(base)}
        refusal = recovered(left).survey.refusal
        if with_checkpoint or 0 < number < len(bases) - 1:
            assert refusal is not None
            assert (refusal.file, refusal.position) == (segment_name(base), base)
            assert "missing" in refusal.sentence
        else:
            assert refusal is None, "without a checkpoint neither end is known"
    nothing = {n: d for n, d in files.items() if segment_base(n) is None}
    assert (recovered(nothing).survey.refusal is None) is not with_checkpoint


def test_segment_file_of_wrong_length() -> None:
    writer = sample(batches=120)
    files = writer.files(writer.checkpoint())
    name = segment_name(P(0))
    shorter = recovered(files | {name: files[name][:-8]}).survey.refusal
    assert shorter is not None
    assert f"{name} has been cut short" in shorter.sentence
    longer = recovered(files | {name: files[name] + bytes(8)}).survey.refusal
    assert longer is not None
    assert (longer.code, longer.file) == (Code.J005, name)


def test_retention_interrupted_leaves_files_to_remove() -> None:
    writer = sample(batches=120)
    bases = list(writer.segments)
    checkpoint = writer.checkpoint(journal_start=bases[1], bases=tuple(bases[1:]))
    got = recovered(writer.files(checkpoint))
    assert got.survey.leftovers == (index_name(bases[0]), segment_name(bases[0]))
    assert got.survey.journal_start == bases[1]
    assert got.verdict == Clean(writer.end)
    codes = {finding.code for finding in got.survey.findings}
    assert codes == {Code.M002}


def test_interrupted_truncation_is_finished() -> None:
    writer = sample(batches=120)
    bases = list(writer.segments)
    victim = next(h for h in writer.headers if h.position > bases[1] + 5000)
    checkpoint = writer.checkpoint(drop_from=victim.position)  # everything was durable
    got = recovered(writer.files(checkpoint))
    assert got.survey.refusal is None
    assert got.survey.durable_end == victim.position
    assert [s.base for s in got.survey.segments] == bases[:2]
    assert got.survey.leftovers == tuple(
        sorted(
            [index_name(bases[1])]
            + [segment_name(b) for b in bases[2:]]
            + [index_name(b) for b in bases[2:-1]]
        )
    )
    assert isinstance(got.verdict, Cut)
    assert got.verdict.at == victim.position
    kept = [h for h in writer.headers if h.position < victim.position]
    assert got.index.end == kept[-1].end


def test_interrupted_reset_drops_everything() -> None:
    writer = sample()
    target = P(10 * MIN_SEGMENT)
    checkpoint = Checkpoint(target, target, target, 0, False, (), (), drop_from=target)
    got = recovered(writer.files(checkpoint))
    assert got.survey.refusal is None
    assert (got.survey.segments, got.survey.journal_start) == ((), target)
    assert len(got.survey.leftovers) == 2 * len(writer.segments) - 1


def test_an_empty_directory_is_a_new_journal() -> None:
    got = survey([], None)
    assert (got.journal_start, got.segments, got.refusal, got.findings) == (0, (), None, ())
    got = survey([("lock", 3), ("takeover.journal", 100)], None)
    assert got.leftovers == ()


def test_an_unknown_control_payload_is_refused_even_in_the_tail() -> None:
    writer = JournalWriter()
    writer.open_epoch(1)
    bad = writer.append(BatchType.DELIVER, b"whatever")  # DELIVER is passed over
    assert recovered(writer.files()).verdict == Clean(bad.end)
    newer = DeafWriter()
    newer.append(BatchType.CONFIG, b"\x63\x00")
    scan = Scan(bytes(newer.segments[P(0)]), P(0), Cursor(P(0), 0))
    stop = replay(scan, JournalState())
    assert isinstance(stop, Fault)
    assert stop.fault is BatchFault.CONTENT
    verdict = judge(stop, FILE, durable_end=P(0), clean=False)
    assert isinstance(verdict, Refuse)
    assert "newer FMQ" in verdict.finding.sentence


# ---- the checkpoint's bytes
@given(
    st.integers(0, 2**64 - 2),
    st.booleans(),
    st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=5).map(sorted),
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)), max_size=5),
    st.none() | st.integers(0, 2**64 - 2),
)
def test_checkpoints_round_trip(
    end: int, clean: bool, bases: list[int], epochs: list[tuple[int, int]], drop: int | None
) -> None:
    checkpoint = Checkpoint(
        P(3),
        P(end),
        P(end + 1),
        0xFFFF_FFFF,
        clean,
        tuple(P(b) for b in bases),
        tuple((Epoch(e), P(p)) for e, p in epochs),
        None if drop is None else P(drop),
    )
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint


def test_every_damaged_byte_of_a_checkpoint_is_found() -> None:
    raw = encode_checkpoint(sample().checkpoint(clean=True))
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x10
        with pytest.raises(Malformed):
            decode_checkpoint(damaged)
        with pytest.raises(Malformed):
            decode_checkpoint(raw[:at])
    with pytest.raises(Malformed):
        decode_checkpoint(raw + b"\0")


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("lacks", [False, True])
@pytest.mark.parametrize("tail_lost", [False, True])
@pytest.mark.parametrize("unproven", [False, True])
def test_each_flag_of_a_checkpoint_is_its_own(
    clean: bool, lacks: bool, tail_lost: bool, unproven: bool
) -> None:
    checkpoint = Checkpoint(
        P(1), P(2), P(3), 4, clean, (), lacks=lacks, tail_lost=tail_lost, unproven=unproven
    )
    raw = encode_checkpoint(checkpoint)
    assert decode_checkpoint(raw) == checkpoint
    assert raw[48] == clean + 2 * lacks + 4 * tail_lost + 8 * unproven


def test_the_bytes_of_a_checkpoint_are_those_of_the_file_format() -> None:
    """Pinned: a change here is a new version of the format."""
    checkpoint = Checkpoint(P(1), P(2), P(3), 4, True, (P(5),), ((Epoch(6), P(7)),))
    raw = encode_checkpoint(checkpoint)
    assert raw[:8].hex(" ") == "46 4d 51 43 01 00 00 00"
    assert raw[12:].hex(" ") == (
        "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00 "
        "ff ff ff ff ff ff ff ff 04 00 00 00 01 00 00 00 01 00 00 00 01 00 00 00 "
        "05 00 00 00 00 00 00 00 06 00 00 00 07 00 00 00 00 00 00 00"
    )
