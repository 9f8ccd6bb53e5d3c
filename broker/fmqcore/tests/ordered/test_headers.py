"""Fields of an ordered batch's header: who sent it, and which sequence comes first."""

import pytest

from fmqcore.ids import TopicId
from fmqcore.ordered.headers import header_sender, sequence_of

TOPIC = TopicId(7)


def test_fields_hold_the_low_bits_of_epoch_and_sequence() -> None:
    fields = header_sender(TOPIC, 2**16 + 3, 2**32 + 5)
    assert (fields.producer_epoch, fields.base_sequence) == (3, 5)


def test_fields_are_the_same_in_every_version() -> None:
    """Journals hold them: another value would be a fault in each segment that is stored."""
    assert header_sender(TOPIC, 1, 1) == (2872319286, 1, 1)


def test_sender_epochs_of_a_topic_have_different_producers() -> None:
    ids = {header_sender(TOPIC, epoch, 0).producer_id for epoch in range(1, 5000)}
    assert len(ids) == 4999
    assert 0 not in ids


def test_topics_have_different_producers() -> None:
    assert header_sender(TOPIC, 1, 0).producer_id != header_sender(TopicId(8), 1, 0).producer_id


@pytest.mark.parametrize("near", [0, 1, 5, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**32 + 17])
@pytest.mark.parametrize("distance", [-3, -1, 0, 1, 1000])
def test_sequence_is_found_again_near_an_expected_one(near: int, distance: int) -> None:
    sequence = near + distance
    if sequence >= 0:
        base = header_sender(TOPIC, 1, sequence).base_sequence
        assert sequence_of(base, near) == sequence
