"""The part of the journal that a master without a term takes for settled, as a table."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from fmqbroker.replication.shippable_end import Settled
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.zk.group_state import GroupState, Mode

ME, OTHER = BrokerId("g1-0"), BrokerId("g1-1")
SERVES = GroupState(Mode.MASTER, Epoch(4), master=ME, reader=ME)
TAKEN = replace(SERVES, mode=Mode.SLAVE_CONSUME, reader=OTHER)
BACK = replace(TAKEN, mode=Mode.HANDOVER)
OLD, START, END = Position(10), Position(70), Position(100)
"""Where the term before the newest started, where the newest started, and the journal's end."""


@dataclass
class Doubles:
    """A journal that ends with the first batches of a term, and the group state."""

    journal: Any
    group: Any

    def settled(self) -> Settled:
        return Settled(ME, self.journal, self.group)


def found(state: GroupState, newest: int, committed: int = 0) -> Doubles:
    epochs = [(Epoch(newest - 1), OLD), (Epoch(newest), START)]
    journal = SimpleNamespace(
        end=END,
        epoch=Epoch(newest),
        known_commit_end=Position(committed),
        state=SimpleNamespace(epochs=epochs),
    )
    return Doubles(journal, SimpleNamespace(state=SimpleNamespace(value=state)))


@pytest.mark.parametrize(
    ("state", "newest", "committed", "end"),
    [
        (SERVES, 5, 0, START),  # its compare-and-set was never made, or another's may come
        (SERVES, 5, START, START),
        (SERVES, 5, START + 1, END),  # then it stood, whatever the state has
        (SERVES, 4, 0, END),  # it stands
        (SERVES, 3, 0, END),  # it stood
        (SERVES, 6, 0, END),  # its opener knew of a term 5: the state was restored
        (TAKEN, 4, 0, START),  # its number is a takeover's
        (TAKEN, 5, 0, OLD),  # made on an unfinished term with the takeover's number
        (TAKEN, 3, 0, END),
        (TAKEN, 6, 0, END),
        (BACK, 3, 0, START),  # the takeover's
        (BACK, 4, 0, OLD),
        (BACK, 5, 0, OLD),
        (BACK, 2, 0, END),
        # of a claim before the one that stands
        (replace(TAKEN, last_opened_epoch=Epoch(2)), 3, 0, START),
        (replace(TAKEN, last_opened_epoch=Epoch(2)), 3, START + 1, END),
        (replace(TAKEN, last_opened_epoch=Epoch(3)), 3, 0, END),
        (replace(BACK, last_opened_epoch=Epoch(1)), 2, 0, START),
        (replace(SERVES, last_opened_epoch=Epoch(4)), 4, 0, END),
        # mastership taken: no term
        (replace(SERVES, last_opened_epoch=Epoch(2), required_epoch=Epoch(2)), 3, 0, START),
        (GroupState(), 1, 0, END),  # the state was lost, the journal is all there is
    ],
)
def test_shippable_end_of_a_starting_master(
    state: GroupState, newest: int, committed: int, end: Position
) -> None:
    """F9: not an unfinished term, for its number may yet become another broker's claim."""
    settled = found(state, newest, committed).settled()
    assert settled.end == END, "no slave has asked yet"
    for _ in range(2):
        settled.look_back()
        assert settled.end == end
    assert settled.left_over() is (end < END)


def test_unfinished_term_above_unfinished_term_is_not_settled() -> None:
    """A claim passed the first one's number, and its master ended once more before its return."""
    it = found(replace(TAKEN, epoch=Epoch(6), last_opened_epoch=Epoch(2)), 5)
    it.journal.state.epochs[:] = [(Epoch(2), Position(1)), (Epoch(3), OLD), (Epoch(5), START)]
    settled = it.settled()
    settled.look_back()
    assert settled.end == OLD


def test_only_bytes_present_at_start_can_be_an_unfinished_term() -> None:
    """Others have or may have what was pulled, or appended in an open term."""
    it = found(SERVES, 5)
    settled = it.settled()
    settled.all()
    settled.look_back()
    assert settled.end == END
    it.journal.state.epochs.append((Epoch(6), END))
    it.journal.end = Position(120)
    it.group.state.value = replace(SERVES, epoch=Epoch(5))
    settled.look_back()
    assert settled.end == END
    settled.all()
    assert settled.end == it.journal.end


@pytest.mark.parametrize(
    ("state", "left_over"),
    [
        (SERVES, True),
        (replace(SERVES, epoch=Epoch(5)), False),  # its answer was lost, and it stands
        (replace(SERVES, epoch=Epoch(6)), True),
        (replace(TAKEN, epoch=Epoch(5)), True),
        (replace(SERVES, epoch=Epoch(5), master=OTHER, reader=OTHER), True),
    ],
)
def test_term_in_the_group_state_is_not_unfinished(state: GroupState, left_over: bool) -> None:
    """It was appended, and only the state has it besides."""
    it = found(SERVES, 4)
    settled = it.settled()
    assert not settled.left_over()
    it.journal.state.epochs.append((Epoch(5), END))
    it.journal.end, it.journal.epoch = Position(120), Epoch(5)
    it.group.state.value = state
    settled.look_back()
    assert settled.end == END
    assert settled.left_over() is left_over
