"""Amounts as Kubernetes writes them: 10Gi, 500m, 1.5. Pure."""

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

_QUANTITY: Final = re.compile(r"([0-9]+|[0-9]*\.[0-9]+)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?")
_UNITS: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{u: Decimal(1000) ** p for p, u in enumerate("kMGTP", start=1)},
    **{f"{u}i": Decimal(1024) ** p for p, u in enumerate("KMGTP", start=1)},
}


def amount(text: str | int) -> Decimal | None:
    """Return the amount in units; None if it is no quantity that the operator writes.

    Rounded up to a thousandth, as the API server rounds requested resources.
    """
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        return None
    number, unit = found.groups()
    thousandths = Decimal(number) * _UNITS[unit or ""] * 1000
    return thousandths.to_integral_value(ROUND_CEILING) / 1000


def equal_quantities(one: str | int, other: str | int) -> bool:
    """Whether the amounts are equal; a value that is no quantity is compared as text."""
    first, second = amount(one), amount(other)
    return str(one) == str(other) if first is None or second is None else first == second


def too_small(has: str, wanted: str) -> bool:
    """Whether `has` is less than `wanted`, for certain."""
    first, second = amount(has), amount(wanted)
    return first is not None and second is not None and first < second


def bytes_of(count: int) -> str:
    """Return an amount of bytes for people: 0 B, 1.5 MiB."""
    value, unit = float(count), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
