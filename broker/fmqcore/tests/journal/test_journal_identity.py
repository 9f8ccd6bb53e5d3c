"""The identity file of a data directory, sound and damaged."""

import pytest

from fmqcore.errors import Malformed
from fmqcore.journal.findings import Severity
from fmqcore.journal.journal_identity import decode_home
from fmqcore.verify.small_files import note_incarnations

GOOD = b"fmq/g1\ngrant_ms=2000\n0123456789abcdef\nfedcba9876543210\n"


@pytest.mark.parametrize(
    ("raw", "home"),
    [
        (GOOD, "fmq/g1"),
        (b"0123456789abcdef\n", ""),  # of a version that did not remember it
        (b"fmq/orders-eu.1\n", "fmq/orders-eu.1"),
    ],
)
def test_incarnation_files_a_broker_writes_are_read(raw: bytes, home: str) -> None:
    assert decode_home(raw) == home
    note = note_incarnations(raw)
    assert note.finding is None
    assert home in note.says


@pytest.mark.parametrize(
    ("raw", "severity"),
    [
        (GOOD.replace(b"grant_ms=2000", b"grant_ms=20x0"), Severity.WARNING),
        (GOOD.replace(b"0123", b"012G"), Severity.WARNING),
        (GOOD.replace(b"cdef\n", b"cdef"), Severity.WARNING),
        (GOOD.replace(b"fmq/g1", b"fmqog1"), Severity.WARNING),
        (GOOD.replace(b"fmq/g1", b"fmq/"), Severity.ERROR),
        (GOOD.replace(b"fmq/g1", b"fmq/\xe71"), Severity.ERROR),
        (GOOD.replace(b"fmq/g1", b"fm/q/g1"), Severity.ERROR),
        (GOOD + b"fmq/g2\n", Severity.WARNING),
        (b"\0" * 60, Severity.WARNING),
        (b"", Severity.WARNING),  # its promise is forgotten, too
        (b"\n", Severity.WARNING),
    ],
)
def test_incarnations_content_that_no_broker_writes(raw: bytes, severity: Severity) -> None:
    """An error means that a broker refuses to start with it."""
    with pytest.raises(Malformed):
        decode_home(raw)
    found = note_incarnations(raw).finding
    assert found is not None
    assert (found.code.name, found.severity) == ("M001", severity)


@pytest.mark.parametrize("at", range(len(GOOD)))
def test_flipped_bit_is_detected_or_changes_name_or_number(at: int) -> None:
    for bit in range(8):
        raw = bytearray(GOOD)
        raw[at] ^= 1 << bit
        try:
            home = decode_home(bytes(raw))
        except Malformed:
            continue
        assert home.isprintable()
        assert home.count("/") == (b"/" in raw)
