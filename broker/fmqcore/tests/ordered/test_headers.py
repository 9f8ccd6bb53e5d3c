"""Fields of an ordered batch's header: who sent it, and which sequence comes first."""

import pytest

from fmqcore.ordered.headers import header_sender, sequence_of


def test_fields_hold_the_low_bits_of_epoch_and_sequence() -> None:
    assert header_sender(2**16 + 3, 2**32 + 5) == (0, 3, 5)


@pytest.mark.parametrize("near", [0, 1, 5, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**32 + 17])
@pytest.mark.parametrize("distance", [-3, -1, 0, 1, 1000])
def test_sequence_is_found_again_near_an_expected_one(near: int, distance: int) -> None:
    sequence = near + distance
    if sequence >= 0:
        assert sequence_of(header_sender(1, sequence).base_sequence, near) == sequence
