"""The resume file: every field comes back, and what cannot be is refused."""

import pytest

from fmqcore.errors import Malformed
from fmqcore.ids import Epoch, Position
from fmqcore.journal.resume_file import Resume, decode_resume, encode_resume, open_resume

WHOLE = Resume(
    base=Position(4096),
    end=Position(9000),
    position=Position(5000),
    last_ms=17,
    raw_crc=3,
    last_header_crc=4,
    epoch=Epoch(5),
    snap=b"a snap",
    entries=b"the entries",
)


def test_every_field_round_trips() -> None:
    raw = encode_resume(WHOLE)
    found = decode_resume(raw)
    assert found._replace(entries=bytes(found.entries)) == WHOLE
    head, at = open_resume(raw)
    assert (head, raw[at:]) == (WHOLE._replace(entries=b""), b"the entries")


def test_file_begins_with_its_kind_and_version() -> None:
    """Pinned: another version would decode what an older one left."""
    assert encode_resume(WHOLE)[:6] == b"FMQR\x01\0"


@pytest.mark.parametrize(
    ("position", "valid"), [(4095, False), (4096, False), (4097, True), (9000, True), (9001, False)]
)
def test_its_position_is_within_its_segment(position: int, valid: bool) -> None:
    """A start that believed it would read on behind the segment, or again from its SNAP."""
    raw = encode_resume(WHOLE._replace(position=Position(position)))
    if valid:
        assert decode_resume(raw).position == position
        return
    with pytest.raises(Malformed, match="not in its segment"):
        decode_resume(raw)


def test_a_file_that_was_cut_or_changed_is_malformed() -> None:
    raw = encode_resume(WHOLE)
    for bad in (*(raw[:end] for end in range(len(raw))), raw + b"\0"):
        with pytest.raises(Malformed):
            decode_resume(bad)
    for at in range(len(raw)):
        with pytest.raises(Malformed):
            decode_resume(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
