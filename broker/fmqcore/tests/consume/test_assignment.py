"""Assignment: balanced, sticky, deterministic; queues drain before they move."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmqcore.consume.assignment import NO_SESSION, REJOIN_MS, Assignments, Move, Moves, assign

_NAMES = st.lists(st.sampled_from("abcdefg"), unique=True, max_size=6)
_HELD = st.dictionaries(st.integers(0, 19), st.sampled_from("abcdefg"))


@given(st.integers(1, 20), _NAMES, _HELD, _HELD)
def test_every_queue_has_one_holder_and_shares_are_even(
    queues: int, names: list[str], held: dict[int, str], wanted: dict[int, str]
) -> None:
    target = assign(queues, names, held, wanted)
    if not names:
        assert target == {}
        return
    assert sorted(target) == list(range(queues))
    shares = [sum(name == each for each in target.values()) for name in names]
    assert max(shares) - min(shares) <= 1
    assert target == assign(queues, reversed(names), held, wanted), (
        "the order of sessions does not matter"
    )


@given(st.integers(1, 20), _NAMES.filter(bool), _HELD, _HELD)
def test_no_assignment_that_is_balanced_moves_fewer(
    queues: int, names: list[str], held: dict[int, str], wanted: dict[int, str]
) -> None:
    held = {q: s for q, s in held.items() if q < queues}
    target = assign(queues, names, held, wanted)
    kept = sum(held.get(q) == s for q, s in target.items())
    least, extra = divmod(queues, len(names))
    have = sorted((sum(s == n for s in held.values()) for n in names), reverse=True)
    quota = [least + (rank < extra) for rank in range(len(names))]
    assert kept == sum(map(min, have, quota)), "as many stay as can"


@given(st.integers(1, 20), _NAMES, _HELD, _HELD, st.none() | st.integers(0, 9))
def test_repeated_assignment_moves_nothing(
    queues: int,
    names: list[str],
    held: dict[int, str],
    wanted: dict[int, str],
    before: int | None,
) -> None:
    once = assign(queues, names, held, wanted, before)
    assert assign(queues, names, once, wanted, before) == once


@given(st.lists(st.tuples(st.integers(1, 20), _HELD, _HELD), max_size=4), _NAMES.filter(bool))
def test_shares_of_all_groups_together_differ_by_one_at_most(
    groups: list[tuple[int, dict[int, str], dict[int, str]]], names: list[str]
) -> None:
    """Each group assigns its own queues, whatever was held before and whoever came first."""
    before, shares = 0, dict.fromkeys(names, 0)
    for queues, held, wanted in groups:
        target = assign(queues, names, held, wanted, before)
        assert sorted(target) == list(range(queues))
        for name in target.values():
            shares[name] += 1
        before += queues
    assert max(shares.values()) - min(shares.values()) <= 1


def test_first_session_does_not_keep_all_groups_odd_queues() -> None:
    """With three groups of one queue each, three sessions get one each, even if one had all."""
    tables = [Assignments(1, drain_ms=100) for _ in range(3)]
    for at, table in enumerate(tables):
        table.grow(1, (), 0, before=at)
        for session in "cab":
            table.join(session, (), 0)
    assert [_holders(table) for table in tables] == [["a"], ["b"], ["c"]]
    moved = tables[1].grow(1, (), 0, before=3)  # the previous group has two more now
    assert [move.session for move in moved.assigned] == ["a"]


@given(st.integers(1, 20), _NAMES.filter(bool), _HELD)
def test_previous_holder_gets_its_queues_back(
    queues: int, names: list[str], held: dict[int, str]
) -> None:
    before = assign(queues, names, held)
    assert assign(queues, names, {}, before) == before
    first, *_ = names
    everything = dict.fromkeys(range(queues), first)
    target = assign(queues, names, everything, before)
    elsewhere = [q for q in before if target[q] != before[q]]
    even = not queues % len(names)
    assert len(elsewhere) <= (0 if even else 2), (
        "given up to who asks for it; but the odd one stays"
    )


def _holders(table: Assignments) -> list[str]:
    return [h.session for h in table.holdings]


def test_a_queue_in_flight_is_drained_before_it_moves() -> None:
    table = Assignments(2, drain_ms=100)
    assert table.join("a", (), 0).assigned == [Move(0, "a", 1), Move(1, "a", 1)]
    moves = table.join("b", busy={0, 1}, now_ms=10)
    assert moves == Moves([Move(1, "a", 1)], [], [])
    assert _holders(table) == ["a", "a"]
    assert not table.holdings[1].delivering
    assert table.next_deadline_ms() == 110
    assert table.settle({0, 1}, 109) == Moves([], [], [])
    moves = table.settle({0}, 50)
    assert moves == Moves([], [Move(1, "b", 2)], [Move(1, "a", 1)])
    assert table.next_deadline_ms() is None


def test_a_drain_ends_at_its_deadline() -> None:
    table = Assignments(1, drain_ms=100)
    table.join("b", (), 0)
    table.leave("b", (), 0)
    table.join("b", (), 0)
    assert table.join("a", {0}, 0) == Moves([], [], []), "one queue stays where it is"
    moves = table.leave("b", {0}, 5)
    assert moves == Moves([], [Move(0, "a", 3)], [Move(0, "b", 2)]), "who is gone drains nothing"
    table = Assignments(2, drain_ms=100)
    table.join("a", (), 0)
    table.join("b", {0, 1}, 0)
    assert table.settle({0, 1}, 100).assigned == [Move(1, "b", 2)]


def test_draining_queue_returns_to_its_holder_if_the_next_leaves() -> None:
    table = Assignments(2, drain_ms=100)
    table.join("a", (), 0)
    table.join("b", {1}, 0)
    assert table.leave("b", {1}, 10) == Moves([], [], [])
    assert table.settle((), 20) == Moves([], [Move(1, "a", 2)], [Move(1, "a", 1)])


def test_renewing_and_seeking_raise_generations_without_moving() -> None:
    table = Assignments(2, drain_ms=100)
    table.join("a", (), 0)
    assert table.bump(1) == Move(1, "a", 2)
    moves = table.renew("a")
    assert moves.assigned == [Move(0, "a", 2), Move(1, "a", 3)]
    assert moves.released == [Move(0, "a", 1), Move(1, "a", 2)]
    with pytest.raises(AssertionError):
        table.join("a", (), 0)
    assert Assignments(1, 0).bump(0) is None


def test_draining_queue_gets_a_new_generation_after_a_seek() -> None:
    """Otherwise acks of the old holder from before the seek count as done after it."""
    table = Assignments(2, drain_ms=100)
    table.join("a", (), 0)
    table.join("b", {1}, 0)
    assert table.bump(1) is None, "no member gets more"
    assert table.holdings[1].generation == 2
    assert table.settle((), 10) == Moves([], [Move(1, "b", 3)], [Move(1, "a", 2)])


def test_draining_queue_gets_a_new_generation_on_a_new_stream() -> None:
    table = Assignments(2, drain_ms=100)
    table.join("a", (), 0)
    table.join("b", {1}, 0)
    moves = table.renew("a")
    assert moves == Moves([], [Move(0, "a", 2)], [Move(0, "a", 1), Move(1, "a", 1)])
    assert table.holdings[1].generation == 2, "acks that were under way on the old one are void"
    assert not table.holdings[1].delivering


def test_next_holder_starts_at_once_if_the_draining_one_leaves() -> None:
    table = Assignments(2, drain_ms=100)
    table.join("a", (), 0)
    table.join("b", {1}, 0)
    assert not table.holdings[1].delivering
    assert table.leave("a", {1}, 10).assigned == [Move(0, "b", 2), Move(1, "b", 2)]
    assert all(holding.delivering for holding in table.holdings)
    assert table.next_deadline_ms() is None


def test_unrequested_queue_waits_briefly_for_its_old_holder() -> None:
    table = Assignments(4, drain_ms=100)
    assert table.join("b", (), 0, held=[2, 3, 99]).assigned == [Move(2, "b", 1), Move(3, "b", 1)]
    assert table.next_deadline_ms() == REJOIN_MS
    assert table.settle((), REJOIN_MS - 1) == Moves([], [], [])
    assert table.join("a", (), 5, held=[0]).assigned == [Move(0, "a", 1)]
    assert table.settle((), REJOIN_MS).assigned == [Move(1, "a", 1)]
    assert table.next_deadline_ms() is None
    table.leave("a", (), 2000)
    assert _holders(table) == ["b"] * 4
    assert table.join("c", (), 2000, held=[2, 3]).revoked == [Move(2, "b", 1), Move(3, "b", 1)]


def test_new_consumer_does_not_wait() -> None:
    table = Assignments(2, drain_ms=100)
    assert len(table.join("new", (), 0).assigned) == 2
    assert table.join("b", (), 0, held=[0]).assigned == [Move(0, "b", 2)]


_STEP = st.tuples(
    st.sampled_from(["join", "leave", "settle", "time", "bump", "renew", "grow"]),
    st.sampled_from("abcd"),
    st.sets(st.integers(0, 5)),
)


@settings(max_examples=300)
@given(st.lists(_STEP, max_size=40))
def test_generations_rise_and_holders_are_notified(
    steps: list[tuple[str, str, set[int]]],
) -> None:
    table, now = Assignments(4, drain_ms=10), 0
    reported: dict[int, tuple[str, int]] = {}  # the sessions' view: who may get which queue
    last = [0] * 6
    for what, who, busy in steps:
        match what:
            case "join" if who not in table.sessions:
                moves = table.join(who, busy, now, held=sorted(busy)[:2])
            case "leave":
                moves = table.leave(who, busy, now)
            case "time":
                now += 7
                moves = table.settle(busy, now)
            case "bump":
                bumped = table.bump(0)
                moves = Moves([], [bumped] if bumped else [], [])
                reported.pop(0, None)
            case "renew" if who in table.sessions:
                moves = table.renew(who)
            case "grow":
                moves = table.grow(6, busy, now)
            case _:
                moves = table.settle(busy, now)
        for move in moves.revoked:
            assert reported.pop(move.queue_id) == (move.session, move.generation)
        for move in moves.released:
            reported.pop(move.queue_id, None)
        for move in moves.assigned:
            assert move.queue_id not in reported, "never two who may get one queue"
            assert move.generation > last[move.queue_id]
            assert move.session in table.sessions
            reported[move.queue_id] = (move.session, move.generation)
            last[move.queue_id] = move.generation
        for queue, holding in enumerate(table.holdings):
            known = reported.get(queue)
            assert known == ((holding.session, holding.generation) if holding.delivering else None)
    table.settle((), now + REJOIN_MS)
    if table.sessions:
        shares = [_holders(table).count(name) for name in sorted(table.sessions)]
        assert NO_SESSION not in _holders(table)
        assert max(shares) - min(shares) <= 1
