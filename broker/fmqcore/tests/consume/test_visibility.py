"""What is stored and may not be read yet, and whether that may last."""

import pytest

from fmqcore.consume.visibility import VisibleRange, withheld_reason
from fmqcore.ids import BrokerId, Offset

ME, S1, S2 = (BrokerId(f"g1-{number}") for number in range(3))
NONE = BrokerId("")
UNMET = "the policy needs one in-sync slave"


@pytest.mark.parametrize(
    ("master", "unmet", "out_of_sync", "reason"),
    [
        (ME, None, (), ""),
        (ME, None, (S1,), ""),  # the others suffice: acks are on their way
        (ME, UNMET, (S1,), f"they wait for slave g1-1 ({UNMET})"),
        (ME, UNMET, (S2, S1), f"they wait for slaves g1-1, g1-2 ({UNMET})"),
        (ME, UNMET, (), UNMET),  # no slave is configured
        (S1, None, (S1,), "they wait for master g1-1"),
        (S1, UNMET, (S1,), "they wait for master g1-1"),  # of an earlier term of this broker
        (NONE, None, (S1,), "they wait for a master"),
    ],
)
def test_reason_is_given_only_where_waiting_may_last(
    master: BrokerId, unmet: str | None, out_of_sync: tuple[BrokerId, ...], reason: str
) -> None:
    assert withheld_reason(ME, master, unmet, out_of_sync) == reason


@pytest.mark.parametrize(
    ("visible", "next_offset", "stored_end"),
    [((0, 0), 9, 9), ((3, 7), 7, 7), ((3, 7), 9, 9), ((3, 7), 5, 7)],
)
def test_stored_end_is_never_below_the_visible_end(
    visible: tuple[int, int], next_offset: int, stored_end: int
) -> None:
    first, end = map(Offset, visible)
    assert VisibleRange(first, end).stored_end(Offset(next_offset)) == stored_end
