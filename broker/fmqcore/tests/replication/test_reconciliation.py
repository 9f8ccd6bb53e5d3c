"""Reconcile: each row of the table, and all pairs of short histories against an oracle."""

from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from typing import Any

import pytest

from fmqcore.ids import BrokerId, Epoch, GroupName, Position
from fmqcore.replication.epoch_history import EpochStart, common_end, is_history
from fmqcore.replication.reconciliation import Action, Decision, MasterView, SlaveView, reconcile
from fmqcore.zk.group_config import GroupConfig, Member

ME, S = BrokerId("g-0"), BrokerId("g-1")
CONFIG = GroupConfig(GroupName("g"), ME, (Member(ME, "a:1"), Member(S, "a:2")))
Byte = tuple[int, int, int]  # epoch, its start, which of two masters' writing


@dataclass(frozen=True)
class Toy:
    """A journal of one-byte batches; bytes below `journal_start` are gone but remembered here."""

    data: tuple[Byte, ...]
    journal_start: int = 0

    @property
    def end(self) -> int:
        return len(self.data)

    @property
    def epochs(self) -> list[EpochStart]:
        return list(starts_of(self.data)) if self.journal_start < self.end else []

    def chain(self, position: int) -> int | None:
        """Return the chain as a journal has it: every batch end inside, and the one before them."""
        if not self.journal_start <= position <= self.end:
            return None
        return hash(self.data[:position]) if position else 0


@cache
def starts_of(data: tuple[Byte, ...]) -> tuple[EpochStart, ...]:
    return tuple((Epoch(e), Position(s)) for e, s in sorted({(e, s) for e, s, _ in data if e}))


def histories(length: int, epochs: tuple[int, ...]) -> list[tuple[Byte, ...]]:
    """Return all journals of at most `length` bytes: two masters, each epoch opened once."""
    found: list[tuple[Byte, ...]] = [()]
    for count in range(1, len(epochs) + 1):
        for numbers, starts in product(
            combinations(epochs, count), combinations(range(1, length), count)
        ):
            for writers in product((0, 1), repeat=count):
                marks = [(0, 0, 0), *zip(numbers, starts, writers, strict=True)]
                whole = [max(m for m in marks if m[1] <= at) for at in range(length)]
                found += [tuple(whole[:end]) for end in range(starts[-1] + 1, length + 1)]
    return sorted(set(found) | {((0, 0, 0),)})


def meet(
    slave: Toy,
    master: Toy,
    floor: int,
    *,
    opening: bool,
    fits: bool = True,
    yields: bool = False,
) -> Decision:
    known = max((e for e, _ in master.epochs), default=0)
    view = SlaveView(
        cluster="c",
        group=GroupName("g"),
        broker=S,
        epochs=slave.epochs,
        journal_start=Position(slave.journal_start),
        end=Position(slave.end),
        durable_end=Position(slave.end),
        commit_end=Position(floor),
        last_header_crc=slave.chain(slave.end) or 0,
    )
    own = MasterView(
        cluster="c",
        config=CONFIG,
        me=ME,
        epoch=Epoch(known),
        epochs=master.epochs,
        journal_start=Position(master.journal_start),
        end=Position(master.end),
        opening=opening,
        chain=master.chain(slave.end),
        suffix_fits=fits,
        yields_to={S} if yields else frozenset(),
    )
    return reconcile(view, own)


def same_bytes(one: Toy, other: Toy) -> int:
    return in_common(one.data, other.data)


@cache
def in_common(one: tuple[Byte, ...], other: tuple[Byte, ...]) -> int:
    both = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(both) if a != b), min(len(one), len(other)))


def reported_end(slave: Toy, master: Toy) -> int:
    """Return where the two histories diverge; -1: nothing in common."""
    found = common_end(master.epochs, Position(master.end), slave.epochs, Position(slave.end))
    return -1 if found is None else found.end


def advanced(toy: Toy) -> tuple[int, int]:
    return max((e for e, _ in toy.epochs), default=0), toy.end


def follow(slave: Toy, master: Toy, floor: int, *, opening: bool, yields: bool = False) -> Decision:
    """Apply decisions until done, checking every step; return the last decision."""
    fits = True
    for _ in range(8):
        agree = same_bytes(slave, master)
        decision = meet(slave, master, floor, opening=opening, fits=fits, yields=yields)
        at = decision.position
        assert yields or not decision.instead
        match decision.action:
            case Action.REJECT:
                return decision
            case Action.APPEND_FROM:  # R1: a byte prefix; the master still has what follows
                empty = slave.end == slave.journal_start
                assert at == slave.end >= master.journal_start
                assert empty or agree == slave.end, "not a prefix"
                return decision
            case Action.TRUNCATE_TO:  # R5
                assert floor <= at < slave.end
                assert at > slave.journal_start
                assert at >= master.journal_start
                slave = replace(slave, data=slave.data[:at])
                if same_bytes(slave, master) == at:
                    return decision
            case Action.RESET_TO:
                assert at == master.journal_start
                reported = reported_end(slave, master)  # contrary evidence may be deleted
                assert (
                    floor <= max(agree, slave.journal_start)
                    or floor <= reported < master.journal_start
                )
                return decision
            case Action.SEND_SUFFIX if decision.instead:  # so no two take turns for ever
                assert opening
                assert at == slave.journal_start
                assert advanced(slave) > advanced(master)
                master = slave
            case Action.SEND_SUFFIX:
                assert opening
                assert slave.end > master.end or master.end == master.journal_start
                if master.end > master.journal_start and agree < master.end:
                    fits = False
                    continue
                start = (
                    slave.journal_start
                    if master.end == master.journal_start
                    else master.journal_start
                )
                assert slave.journal_start <= at <= slave.end
                master = Toy(slave.data, start)
    raise AssertionError("it never settles")


def judge(
    slave: Toy, master: Toy, floor: int, last: Decision, *, opening: bool, yields: bool = False
) -> None:
    """A slave is refused only if following would lose bytes, or the master is stale."""
    if last.action is not Action.REJECT:
        return
    two_terms = reported_end(slave, master) != same_bytes(slave, master)
    assert not yields or advanced(slave) <= advanced(master) or two_terms
    assert last.alarm
    assert last.reason
    agree = same_bytes(slave, master)
    known = max((e for e, _ in master.epochs), default=0)
    stale = bool(slave.epochs) and slave.epochs[-1][0] > known
    gap = opening and agree == master.end < slave.journal_start
    two_writers = reported_end(slave, master) != agree  # one epoch opened twice, or other data
    assert floor > agree or stale or gap or two_writers


@pytest.mark.parametrize("opening", [True, False])
def test_all_pairs_of_short_histories_reconcile(opening: bool) -> None:
    toys = histories(4, (1, 2))
    actions: set[Action] = set()
    for own, theirs in product(toys, toys):
        for low, high in product((0, 2, 3), (0, 1, 2)):
            if low > len(own) or high > len(theirs):
                continue
            master, slave = Toy(own, low), Toy(theirs, high)
            for floor in {0, min(2, slave.end), slave.end} | {same_bytes(slave, master)}:
                for yields in {False, opening}:
                    last = follow(slave, master, floor, opening=opening, yields=yields)
                    judge(slave, master, floor, last, opening=opening, yields=yields)
                actions.add(meet(slave, master, floor, opening=opening).action)
    assert actions == set(Action) - (set() if opening else {Action.SEND_SUFFIX})


@pytest.mark.parametrize(
    ("slave", "position"),
    [
        # the bytes between are nowhere
        ({"end": 300, "journal_start": 220, "durable_end": 300}, 220),
        ({"end": 300, "epochs": [(1, 8), (2, 60)], "journal_start": 32}, 32),  # they diverge
        ({"end": 150, "epochs": [(2, 60)], "durable_end": 150}, 0),  # nothing in common
    ],
)
def test_bytes_given_to_an_emptied_master_yield(slave: dict[str, Any], position: int) -> None:
    """Row 13: to which slaves it yields, and to no other; nor with a term open, nor to less."""
    given = {"opening": True, "epoch": 2, "yields_to": {S}}
    decision = reconcile(view(**slave), own(**given))
    assert (decision.action, decision.position) == (Action.SEND_SUFFIX, position)
    assert decision.instead
    others: list[dict[str, Any]] = [
        {"yields_to": frozenset()},
        {"yields_to": {ME}},
        {"suffix_fits": False},
        {"epochs": [(1, 8), (3, 60)], "epoch": 3},
    ]
    for other in others:
        assert not reconcile(view(**slave), own(**(given | other))).instead


def test_equally_advanced_histories_do_not_yield() -> None:
    """Row 13: otherwise two slaves would take turns for ever, and no term would be opened."""
    slave = view(epochs=[(1, 16)], end=200, durable_end=200)
    assert not reconcile(slave, own(opening=True, yields_to={S})).instead
    assert reconcile(replace(slave, end=Position(208)), own(opening=True, yields_to={S})).instead


def test_emptied_master_keeps_bytes_that_only_need_extension() -> None:
    given = own(opening=True, yields_to={S})
    decision = reconcile(view(end=300), given)
    assert (decision.action, decision.position) == (Action.SEND_SUFFIX, 200)
    assert not decision.instead


def test_an_extension_is_always_pulled_before_a_term_is_opened() -> None:
    for data in histories(4, (1, 2)):
        for end in range(1, len(data)):
            if not Toy(data[:end]).epochs:
                continue
            for floor in range(len(data) + 1):
                decision = meet(Toy(data), Toy(data[:end]), floor, opening=True)
                assert decision == Decision(Action.SEND_SUFFIX, Position(end), decision.reason)


def view(**changes: Any) -> SlaveView:
    fields: dict[str, Any] = {
        "cluster": "c",
        "group": GroupName("g"),
        "broker": S,
        "epochs": [(1, 8)],
        "journal_start": 0,
        "end": 100,
        "durable_end": 100,
        "last_header_crc": 7,
    }
    return SlaveView(**(fields | changes))


def own(**changes: Any) -> MasterView:
    fields: dict[str, Any] = {
        "cluster": "c",
        "config": CONFIG,
        "me": ME,
        "epoch": Epoch(1),
        "epochs": [(1, 8)],
        "journal_start": 0,
        "end": 200,
        "opening": False,
        "chain": 7,
    }
    return MasterView(**(fields | changes))


@pytest.mark.parametrize(
    ("slave", "master", "words"),
    [
        ({"cluster": "d"}, {}, "cluster 'c'"),
        ({"group": "h"}, {}, "group 'g'"),
        ({}, {"config": replace(CONFIG, master=S)}, "not the configured master"),
        ({"broker": ME}, {}, "own name"),
        ({"broker": "x"}, {}, "no member"),
        ({}, {"twin": "incarnation 9"}, "another process lives"),
        ({"durable_end": 101}, {}, "makes no sense"),
        ({"epochs": [(2, 8), (1, 9)]}, {}, "makes no sense"),
        ({"epochs": [(1, 100)]}, {}, "makes no sense"),
    ],
)
def test_refused_slaves(slave: dict[str, Any], master: dict[str, Any], words: str) -> None:
    decision = reconcile(view(**slave), own(**master))
    assert decision.action is Action.REJECT
    assert words in decision.reason
    assert not decision.alarm


@pytest.mark.parametrize(
    ("epochs", "good"),
    [
        ([], True),
        ([(1, 0), (2, 8)], True),
        ([(1, 0), (1, 8)], False),
        ([(2, 0), (1, 8)], False),
        ([(1, 8), (2, 8)], False),
        ([(1, 8), (2, 0)], False),
        ([(1, 0), (2, 16)], False),
    ],
)
def test_history_rises_and_ends_inside_the_journal(
    epochs: list[tuple[int, int]], good: bool
) -> None:
    """R1: an epoch that started twice agrees with no other journal, wherever it is compared."""
    starts = [(Epoch(epoch), Position(start)) for epoch, start in epochs]
    assert is_history(starts, Position(16)) is good


ROWS: list[tuple[dict[str, Any], dict[str, Any], Action, int]] = [
    # 2, 3: empty
    ({"epochs": [], "end": 0, "durable_end": 0}, {}, Action.APPEND_FROM, 0),
    ({"epochs": [], "end": 0, "durable_end": 0}, {"journal_start": 64}, Action.RESET_TO, 64),
    # 4: the master lost its disk
    ({"journal_start": 32}, {"epochs": [], "end": 0, "opening": True}, Action.SEND_SUFFIX, 32),
    (
        {"journal_start": 32},
        {"epochs": [], "end": 0, "opening": True, "suffix_fits": False},
        Action.REJECT,
        0,
    ),
    # 5, 6, 7: a prefix
    ({"commit_end": 100}, {}, Action.APPEND_FROM, 100),
    ({}, {"journal_start": 104}, Action.RESET_TO, 104),
    ({"commit_end": 8}, {"chain": 9}, Action.TRUNCATE_TO, 8),
    ({"commit_end": 9}, {"chain": 9}, Action.REJECT, 0),
    ({}, {"chain": None}, Action.TRUNCATE_TO, 8),
    # 8, 9, 10: ahead of a master that has opened no term
    ({"end": 300}, {"opening": True}, Action.SEND_SUFFIX, 200),
    ({"end": 300, "epochs": [(1, 8), (2, 250)]}, {"opening": True}, Action.SEND_SUFFIX, 200),
    (
        {"end": 300, "journal_start": 200, "durable_end": 300},
        {"opening": True},
        Action.SEND_SUFFIX,
        200,
    ),
    ({"end": 300, "journal_start": 220, "durable_end": 300}, {"opening": True}, Action.REJECT, 0),
    ({"end": 300}, {"opening": True, "suffix_fits": False}, Action.TRUNCATE_TO, 8),
    # 11: they diverge, or a slave is ahead in an opened term
    ({}, {"epochs": [(1, 8), (2, 60)], "epoch": 2}, Action.TRUNCATE_TO, 60),
    ({"commit_end": 61}, {"epochs": [(1, 8), (2, 60)], "epoch": 2}, Action.REJECT, 0),
    ({"reader": True}, {"epochs": [(1, 8), (2, 60)], "epoch": 2}, Action.REJECT, 0),
    ({}, {"epochs": [(1, 8), (2, 60)], "epoch": 2, "journal_start": 64}, Action.RESET_TO, 64),
    ({"journal_start": 60}, {"epochs": [(1, 8), (2, 60)], "epoch": 2}, Action.RESET_TO, 0),
    ({"epochs": [(1, 8), (2, 60)]}, {}, Action.REJECT, 0),  # one newer: this master is stale
    ({"epochs": [(1, 8), (3, 60)]}, {}, Action.REJECT, 0),
    ({"end": 300}, {}, Action.TRUNCATE_TO, 200),
    # 12: another lineage
    ({"epochs": [(1, 16)]}, {}, Action.RESET_TO, 0),
    ({"epochs": [(1, 16)], "commit_end": 1}, {}, Action.REJECT, 0),
]


@pytest.mark.parametrize(("slave", "master", "action", "position"), ROWS)
def test_each_reconciliation_row(
    slave: dict[str, Any], master: dict[str, Any], action: Action, position: int
) -> None:
    decision = reconcile(view(**slave), own(**master))
    assert (decision.action, decision.position) == (action, position), decision.reason
    assert decision.alarm == (action is Action.REJECT)
    assert decision.reason or action is Action.APPEND_FROM


def test_a_commit_end_beyond_a_lost_tail_does_not_bar_the_slave() -> None:
    """A slave that does not fsync may restart below a commit end it knew."""
    assert reconcile(view(commit_end=150), own()).action is Action.APPEND_FROM


def test_histories_of_journals_without_an_epoch() -> None:
    one, two = [(Epoch(1), Position(8))], [(Epoch(2), Position(8))]
    assert common_end(one, Position(20), two, Position(20)) is None
    found = common_end([], Position(8), one, Position(20))
    assert found is not None
    assert found.end == 8
    assert is_history([], Position(0))
    assert not is_history([(Epoch(1), Position(8)), (Epoch(2), Position(8))], Position(20))
