"""Range sets and maps against a set and a dict of single offsets."""

from hypothesis import given
from hypothesis import strategies as st

from fmqcore.consume.ranges import RangeMap, RangeSet
from fmqcore.ids import Offset

_OFFSET = st.integers(0, 30).map(Offset)
_RANGE = st.tuples(_OFFSET, _OFFSET)


def _offsets(ranges: RangeSet) -> set[int]:
    return {o for first, end in ranges for o in range(first, end)}


@given(st.lists(st.tuples(st.sampled_from(["add", "cut"]), _OFFSET, _OFFSET)))
def test_range_set_holds_added_offsets_in_fewest_ranges(steps: list[tuple[str, int, int]]) -> None:
    ranges, naive = RangeSet(), set[int]()
    for what, first, end in steps:
        if what == "add":
            ranges.add(Offset(first), Offset(end))
            naive |= set(range(first, end))
        else:
            ranges.remove_below(Offset(first))
            naive = {o for o in naive if o >= first}
        assert _offsets(ranges) == naive
        flat = [edge for piece in ranges for edge in piece]
        assert flat == sorted(set(flat)), "ranges touch, overlap or do not rise"
        assert [Offset(o) in ranges for o in range(32)] == [o in naive for o in range(32)]


@given(st.lists(_RANGE), _OFFSET, _OFFSET)
def test_gaps_are_the_complement_of_the_set(
    put: list[tuple[Offset, Offset]], a: int, b: int
) -> None:
    ranges = RangeSet(put)
    gaps = ranges.gaps(Offset(a), Offset(b))
    assert {o for x, y in gaps for o in range(x, y)} == set(range(a, b)) - _offsets(ranges)
    assert all(x < y for x, y in gaps)


@given(st.lists(st.tuples(st.booleans(), _OFFSET, _OFFSET)))
def test_range_map_returns_exactly_the_stored_values(steps: list[tuple[bool, int, int]]) -> None:
    where: RangeMap[int] = RangeMap()
    naive: dict[int, int] = {}
    for value, (put, first, end) in enumerate(steps):
        wanted = {o: naive.pop(o) for o in range(first, end) if o in naive}
        taken = where.take(Offset(first), Offset(end))
        assert {o: p.value for p in taken for o in range(p.first, p.end)} == wanted
        if put and first < end:
            where.put(Offset(first), Offset(end), value)
            naive |= dict.fromkeys(range(first, end), value)
        assert {o: p.value for p in where for o in range(p.first, p.end)} == naive
        assert where.records == len(naive)
    assert [p.first for p in where.take_all()] == sorted(set(_starts(naive)))
    assert len(where) == where.records == 0


def _starts(naive: dict[int, int]) -> list[int]:
    return [o for o in naive if naive.get(o - 1) != naive[o]]
