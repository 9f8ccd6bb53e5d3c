"""Topic numbers after ZooKeeper lost some: each topic regains its own, none is given twice."""

from itertools import permutations

import pytest

from fmqcore.errors import InvalidArgument, Malformed
from fmqcore.ids import TopicId
from fmqcore.zk.topic import TopicConfig
from fmqcore.zk.topic_numbers import (
    Noted,
    TopicNumbers,
    conflict,
    numbers_from_json,
    numbers_to_json,
)


def noted(**topics: int) -> Noted:
    return {TopicId(number): (name, 4) for name, number in topics.items()}


def test_a_whole_zookeeper_is_left_as_it_is() -> None:
    numbers = TopicNumbers(next_id=8)
    assert numbers.claim(noted(orders=2, gone=7)) is numbers
    assert numbers.assign("audit") == (8, TopicNumbers(9))
    assert numbers_to_json(numbers) == b'{"next_id": 8}'


def test_each_lost_topic_gets_its_own_number_back() -> None:
    numbers = TopicNumbers().claim(noted(salaries=1, orders=2))
    orders, numbers = numbers.assign("orders")
    audit, numbers = numbers.assign("audit")
    salaries, numbers = numbers.assign("salaries")
    assert (orders, audit, salaries) == (2, 3, 1)
    assert all(map(numbers.was_given, (1, 2, 3)))


@pytest.mark.parametrize("order", [*permutations([noted(a=1), noted(b=2, c=5), noted(d=4)])])
def test_journals_claim_in_any_order(order: tuple[Noted, ...]) -> None:
    numbers = TopicNumbers()
    for journal in order:
        numbers = numbers.claim(journal)
        numbers = numbers_from_json(numbers_to_json(numbers))
    assert numbers.lost == {"a": 1, "b": 2, "c": 5, "d": 4}
    assert numbers.next_id == 6
    assert numbers.claim(order[0]) == numbers


def test_numbers_newer_than_an_older_backup_are_restored() -> None:
    numbers = TopicNumbers(next_id=3).claim(noted(old=1, other=2, young=4))
    assert numbers.lost == {"young": 4}
    assert numbers.assign("new")[0] == 5
    assert not numbers.was_given(3)


def test_a_name_with_two_lost_numbers_gets_the_newest() -> None:
    journal = {TopicId(2): ("orders", 4), TopicId(5): ("orders", 4)}
    numbers = TopicNumbers().claim(journal)
    assert numbers.assign("orders")[0] == 5
    after = numbers.assign("orders")[1].forget("orders", TopicId(5))
    assert after.claim(journal) == after, "the older one does not come back"


@pytest.mark.parametrize("order", [(2, 5), (5, 2)])
def test_the_newest_counts_whichever_journal_claims_first(order: tuple[int, int]) -> None:
    numbers = TopicNumbers()
    for number in order:
        numbers = numbers.claim(noted(orders=number))
    assert numbers.assign("orders")[0] == 5
    assert [n for n in range(1, 7) if numbers.was_given(n)] == [2]


def test_a_topic_deleted_after_that_gets_another_number() -> None:
    number, numbers = TopicNumbers().claim(noted(orders=2)).assign("orders")
    assert number == numbers.assign("orders")[0] == 2, "making it failed: the same number again"
    assert numbers.forget("orders", TopicId(9)) is numbers, "not under its own number"
    numbers = numbers.forget("orders", TopicId(2))
    assert numbers.claim(noted(orders=2)).assign("orders")[0] == 3


def test_wanted_number_is_given_unless_another_topic_may_own_it() -> None:
    number, numbers = TopicNumbers().assign("orders", wanted=5)
    assert (number, numbers.assign("audit", wanted=2)[0]) == (5, 2)
    assert numbers.assign("audit", wanted=5)[0] == 6
    assert numbers.claim(noted(salaries=2)).assign("audit", wanted=2)[0] == 6
    assert numbers.claim(noted(salaries=2)).assign("salaries", wanted=3)[0] == 2


def test_a_wished_number_that_was_given_is_not_given_again() -> None:
    """Else two topics would share it, and readers of one would get the other's messages."""
    assert TopicNumbers(next_id=8).assign("orders", wanted=5) == (8, TopicNumbers(9))
    number, numbers = TopicNumbers().assign("orders", wanted=5)
    assert numbers.assign("orders")[0] == number == 5, "making it failed: the same number again"


def test_numbers_all_given_again_leave_only_the_lost_names() -> None:
    numbers = TopicNumbers().claim(noted(audit=1, orders=3))
    assert numbers.skipped == ((1, 2), (2, 4))
    for name, skipped in (("audit", ((2, 4),)), ("orders", ((2, 3),))):
        _, numbers = numbers.assign(name)
        assert numbers.skipped == skipped
    assert numbers_from_json(b"") == TopicNumbers()


def test_a_lost_topic_that_is_deleted_unmade_does_not_come_back() -> None:
    numbers = TopicNumbers().claim(noted(orders=2)).forget("orders", TopicId(2))
    assert numbers.claim(noted(orders=2)).lost == {}


def test_contradicting_journals_leave_the_number_to_the_first() -> None:
    numbers = TopicNumbers().claim(noted(orders=2)).claim(noted(salaries=2))
    assert numbers.lost == {"orders": 2}


def test_number_known_for_another_name_conflicts() -> None:
    topic = TopicConfig("orders", TopicId(1))
    assert conflict(topic, noted(orders=1)) is None
    assert conflict(topic, noted(salaries=2)) is None
    reason = str(conflict(topic, noted(salaries=1)))
    assert "orders has the number 1, under which this journal holds messages of topic sal" in reason


@pytest.mark.parametrize(
    "garbage",
    [b"7", b"{", b'{"next_id": 3, "lost": [1]}', b'{"next_id": 3, "skipped": [[1]]}',
     b'{"next_id": 3, "lost": {"a/b": 2}}', b'{"next_id": 3, "lost": {"a": 1, "a/b": 2}}'],
)  # fmt: skip
def test_garbage_does_not_decode(garbage: bytes) -> None:
    with pytest.raises(Malformed):
        numbers_from_json(garbage)


def test_lost_topic_comes_back_as_its_newest_kind() -> None:
    four, five = TopicId(4), TopicId(5)
    numbers = TopicNumbers().claim({four: ("plain", 2), five: ("chain", 2)}, {five})
    with pytest.raises(InvalidArgument, match=r"plain is an ordinary topic .* without --ordered"):
        numbers.assign("plain", ordered=True)
    with pytest.raises(InvalidArgument, match=r"chain is an ordered topic .* --ordered --groups"):
        numbers.assign("chain")
    assert numbers.assign("plain")[0] == four
    assert numbers.assign("chain", ordered=True)[0] == five
    newer = numbers.claim({TopicId(6): ("chain", 2)})
    assert newer.assign("chain")[0] == 6
    older = newer.claim({TopicId(3): ("chain", 2)}, {TopicId(3)})
    assert older.assign("chain")[0] == 6
