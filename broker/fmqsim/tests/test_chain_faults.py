"""Faults of an ordered topic really fire: each at its step, in seeds that are judged like all."""

import re
from typing import Final

import pytest

from e2e.checks.verdict import Outcome
from fmqsim.faults import chain_steps
from fmqsim.faults.group_cuts import GROUP_CUTS
from fmqsim.faults.lost_reader import LOST_READER
from fmqsim.report.run import Result, forked, simulate
from fmqsim.scenario.chain_watch import ChainStep
from fmqsim.scenario.scene import Focus

SEED: Final = 1
AT_STEPS: Final = (
    ("kill at a chain's step", ChainStep.CLOSE),
    ("kill at a chain's step", ChainStep.SEAL),
    ("pause at a chain's step", ChainStep.GIVE_END),
    ("cut the power at a chain's step", ChainStep.DECLARE_UNKNOWN),
    ("cut off at a chain's step", ChainStep.OPEN),
    ("late write at a chain's step", ChainStep.MOVE_HEADS),
    ("empty a disk at a chain's step", ChainStep.DROP),
)
CUTS: Final = tuple(entry.name for entry in GROUP_CUTS)


def _played(
    fault: str, step: ChainStep | None = None, seed: int = SEED
) -> tuple[Result, list[str]]:
    """Return a seed with this fault alone, at this step if there is one, and its trace."""

    def run(seed: int) -> tuple[Result, list[str]]:  # in another process
        lines: list[str] = []
        if step is not None:
            chain_steps.STEPS = ((step, 1),)
        focus = Focus(ordered=True, moves=fault in CUTS, faults=(fault,))
        result = simulate(seed, focus=focus, trace=lines.append)
        return result, [line for line in lines if "fault " in line or ": sender " in line]

    ((result, lines),) = forked([seed], 1, run)
    assert result.outcome is not Outcome.BROKEN, result.story
    return result, lines


def test_all_steps_of_a_chain_are_struck() -> None:
    struck = set(ChainStep) - {ChainStep.LOWER_END}  # by the loss of a reader only: see below
    assert {step for step, _ in chain_steps.STEPS} == struck
    assert {step for _, step in AT_STEPS} == struck


@pytest.mark.parametrize(("fault", "step"), AT_STEPS, ids=lambda part: str(part))
def test_fault_at_a_step_fires_at_that_step(fault: str, step: ChainStep) -> None:
    _, lines = _played(fault, step)
    struck = re.compile(f"fired: {fault} .*(at|before|after) {step.value} on g")
    assert any(struck.search(line) for line in lines), lines


def test_zombie_sender_wakes_after_another_took_over() -> None:
    result, lines = _played("zombie sender")
    assert _woken_zombies(lines) >= 1, lines
    assert result.counts["senders"] >= 2


def test_sender_goes_on_without_the_end_of_a_killed_group() -> None:
    result, lines = _played("kill the sender and its group")
    assert any("fired: kill the sender and its group" in line for line in lines), lines
    assert result.counts["accepted unknown ends"] >= 1


def _woken_zombies(lines: list[str]) -> int:
    """Return how many zombies woke in a chain of another sender."""
    woken, sender = 0, ""
    asleep: dict[str, str] = {}
    for line in lines:
        if found := re.search(r": sender (\S+) epoch", line):
            sender = found[1]
        elif found := re.search(r"fault (\d+) fired: zombie", line):
            asleep[found[1]] = sender
        elif found := re.search(r"fault (\d+) healed: zombie", line):
            woken += sender != asleep[found[1]]
    return woken


def test_groups_in_turn_lose_a_member_one_after_the_other() -> None:
    _, lines = _played("groups in turn")
    found = [re.search(r"fault (\d+) fired: .* segment \d+ on (g\d)-", line) for line in lines]
    groups: dict[str, set[str]] = {}
    for hit in found:
        if hit is not None:
            groups.setdefault(hit[1], set()).add(hit[2])
    assert any(len(of_one) > 1 for of_one in groups.values()), lines


def test_end_of_a_lost_reader_is_lowered() -> None:
    result, _ = _played(LOST_READER.name)
    assert result.counts["lowered ends"] >= 1
    assert result.counts["accepted losses"] == 0


def test_person_accepts_the_loss_of_a_last_record() -> None:
    result, _ = _played(LOST_READER.name, seed=52)
    assert result.counts["accepted losses"] >= 1


def test_a_group_is_lost_with_a_disk() -> None:
    _, lines = _played("lose a group and a disk")
    assert any("fired: lose a group and a disk" in line for line in lines), lines


@pytest.mark.parametrize("fault", CUTS)
def test_links_of_another_group_are_cut(fault: str) -> None:
    _, lines = _played(fault)
    cut = re.compile(f"fired: {fault} .*->")
    assert any(cut.search(line) for line in lines), lines


def test_sends_leave_a_group_that_the_sender_does_not_reach() -> None:
    _, lines = _played("cut the sender from a group", seed=6)
    assert any("does not reach g1" in line for line in lines), lines
