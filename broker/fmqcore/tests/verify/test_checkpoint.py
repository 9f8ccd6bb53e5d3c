"""Checkpoint claims against the journal; states that brokers leave are no findings."""

from typing import Any

import pytest

from fmqcore.ids import Epoch, Position
from fmqcore.journal.checkpoint import Checkpoint
from fmqcore.journal.findings import Code
from fmqcore.journal.segments import CHECKPOINT, index_name
from fmqcore.journal.state import MAX_EPOCHS
from fmqcore.tests.journal.writer import JournalWriter, sample
from fmqcore.verify.directory import Verifier

WRITER = sample(batches=120)
BASES = sorted(WRITER.segments)
HEADERS = WRITER.headers
WITHIN = next(h for h in HEADERS if h.position > BASES[1] + 5000)
"""A batch in the middle of an older segment."""
END, LAST = WRITER.end, HEADERS[-1]


def found(
    checkpoint: Checkpoint, writer: JournalWriter = WRITER, **options: Any
) -> list[tuple[str, int | None]]:
    """Return (subject, position) of every claim that does not hold."""
    files = writer.files(checkpoint)
    listing = [(name, len(data)) for name, data in files.items()]
    verifier = Verifier(listing, files[CHECKPOINT], **options)
    for file in verifier.segments:
        verifier.segment(file, files[file.name], files.get(index_name(file.base)))
    verifier.finish()
    for finding in verifier.findings:
        assert (finding.code, finding.severity.value) == (Code.M001, "error"), finding
    return [(finding.file, finding.position) for finding in verifier.findings]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("payloads", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clean": True},
        {"clean": True, "commit_end": WITHIN.end},
        {"durable_end": WITHIN.end, "commit_end": HEADERS[1].end},  # it lags
        {"durable_end": WITHIN.end},
        {"durable_end": BASES[1]},
        {"durable_end": Position(0), "commit_end": Position(0)},
        {"commit_end": Position(END + 8)},  # a slave's, or a power cut took the rest
        {"durable_end": WITHIN.end, "drop_from": WITHIN.position, "last_header_crc": 1},
        {"durable_end": WITHIN.end, "epochs": ()},  # right after a reset it knows none
    ],
)
def test_checkpoints_left_by_brokers_pass(
    changes: dict[str, Any], payloads: bool, live: bool
) -> None:
    checkpoint = WRITER.checkpoint(**changes)
    if checkpoint.drop_from is None:
        assert found(checkpoint, payloads=payloads, live=live) == []
    else:
        files = WRITER.files(checkpoint)
        verifier = Verifier([(n, len(d)) for n, d in files.items()], files[CHECKPOINT], live=live)
        for file in verifier.segments:
            verifier.segment(file, files[file.name], None)
        verifier.finish()
        assert Code.M001 not in {finding.code for finding in verifier.findings}


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("payloads", [False, True])
@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"commit_end": Position(LAST.position + 8)}, LAST.position + 8),
        ({"commit_end": Position(END - 8)}, END - 8),
        ({"commit_end": Position(WITHIN.position + 96)}, WITHIN.position + 96),
        ({"commit_end": Position(BASES[1] - 8)}, BASES[1] - 8),  # within an EOF's span
        ({"durable_end": Position(WITHIN.end - 8)}, WITHIN.end - 8),
        ({"last_header_crc": LAST.prev_header_crc}, END),
        ({"durable_end": WITHIN.end, "last_header_crc": LAST.header_crc}, WITHIN.end),
        ({"durable_end": BASES[1], "last_header_crc": LAST.header_crc}, BASES[1]),
        ({"bases": BASES[:1] + BASES[2:]}, BASES[1]),
        ({"commit_end": Position(END - 8), "drop_from": END}, END - 8),
    ],
)
def test_checkpoint_claims_that_do_not_fit(
    changes: dict[str, Any], place: int, payloads: bool, live: bool
) -> None:
    checkpoint = WRITER.checkpoint(**changes)
    assert found(checkpoint, payloads=payloads, live=live) == [(CHECKPOINT, place)]


@pytest.mark.parametrize("end", [WITHIN.end, BASES[1], LAST.position])
def test_no_bytes_follow_an_orderly_stop(end: Position) -> None:
    checkpoint = WRITER.checkpoint(durable_end=end, commit_end=end, clean=True)
    assert found(checkpoint) == [(CHECKPOINT, end)]
    assert found(checkpoint._replace(clean=False)) == []
    assert found(checkpoint, live=True) == [], "a start has not written its own yet"


@pytest.mark.parametrize("durable_end", [END, WITHIN.end, BASES[1]])
def test_terms_that_the_journal_does_not_have(durable_end: Position) -> None:
    right = WRITER.checkpoint(durable_end=durable_end, commit_end=durable_end)
    assert found(right) == []
    for epoch, start in ((2, 9999), (1, 8), (7, 9999)):
        other = (Epoch(epoch), Position(start))
        wrong = (*(e for e in right.epochs if e[0] < epoch), other)
        assert found(right._replace(epochs=wrong)) == [(CHECKPOINT, start)]


def test_terms_evicted_from_a_full_table() -> None:
    writer = JournalWriter()
    writer.open_epoch(1)
    early = writer.checkpoint(clean=False)
    for number in range(2, MAX_EPOCHS + 3):
        writer.open_epoch(number)
    assert found(early, writer) == []
    assert found(writer.checkpoint(), writer) == []
