"""Amounts: those that the operator compares, and those that it leaves alone."""

import pytest

from fmqoperator.core.children.quantities import amount, bytes_of, too_small


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("7", 7), ("1k", 1000), ("2M", 2 * 1000**2), ("1T", 1000**4), ("1P", 1000**5),
        ("1Ki", 1024), ("1Mi", 1024**2), ("1Ti", 1024**4), ("1Pi", 1024**5),
    ],
)  # fmt: skip
def test_amount_in_units(text: str, units: int) -> None:
    assert amount(text) == units


@pytest.mark.parametrize(
    ("has", "wanted", "small"),
    [
        ("10Gi", "20Gi", True),
        ("20Gi", "20Gi", False),
        ("1T", "1Ti", True),
        ("", "20Gi", False),
        ("10Gi", "1e20", False),  # an amount that the operator does not write
    ],
)
def test_volume_is_too_small_only_for_certain(has: str, wanted: str, small: bool) -> None:
    assert too_small(has, wanted) is small


def test_bytes_have_a_decimal_below_a_hundred() -> None:
    counts = (99 << 10, 100 << 10, 1 << 20, 1 << 50)
    assert [bytes_of(n) for n in counts] == ["99.0 KiB", "100 KiB", "1.0 MiB", "1024 TiB"]
