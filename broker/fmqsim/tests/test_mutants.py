"""The mutants fit the current code; a copy of the sources holds the planted mistake."""

import ast
from pathlib import Path

import pytest

from fmqsim.mutants.hunt import ROOT, copied
from fmqsim.mutants.mutant import Edit, Misplaced, Mutant
from fmqsim.mutants.table import MUTANTS

LISTED = (
    "ack before fsync",
    "retry after a failed fsync",
    "no epoch check on append",
    "no epoch check on ack",
    "acks counted from an old stream",
    "in-sync set expanded early",
    "in-sync set shrunk after, not before, its waiters are answered",
    "truncation to the wrong epoch",
    "truncation below the commit end",
    "slave ahead is truncated instead of read",
    "READ given on the watch",
    "claim without lease expiry",
    "promises forgotten on restart",
    "lease renewed by a wedged loop",
    "offsets not shipped",
    "stale offsets overwrite newer",
    "directory not fsynced after a roll",
    "checkpoint not atomic",
    "dedup table not restored from SNAP",
    "queue index passes the commit end",
    "retention notes no log start",
    "retention deletes under a slave's feet",
)
"""Mutants that the project has promised to catch."""


def edited(mutant: Mutant) -> dict[str, str]:
    texts: dict[str, str] = {}
    for edit in mutant.edits:
        texts[edit.file] = edit.apply(texts.get(edit.file) or (ROOT / edit.file).read_text())
    return texts


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_can_be_planted_and_compiles(mutant: Mutant) -> None:
    for file, text in edited(mutant).items():
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse((ROOT / file).read_text()))


def test_promised_mutants_exist_and_names_are_unique() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert set(LISTED) <= set(names)


def test_only_mutants_seeds_cannot_show_are_left_to_tests() -> None:
    for mutant in MUTANTS:
        assert bool(mutant.tests) == bool(mutant.alone), mutant.name
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text()


def test_text_that_does_not_occur_once_is_refused() -> None:
    for old in ("nowhere", "e"):
        with pytest.raises(Misplaced, match=r"x\.py holds"):
            Edit("x.py", old, "").apply("here and there")


def test_a_copy_holds_the_mistake_and_the_sources_do_not() -> None:
    mutant = MUTANTS[0]
    (edit,) = mutant.edits
    with copied(mutant) as root:
        assert root != ROOT
        assert edit.new in (root / edit.file).read_text()
        assert (root / "broker/fmqsim/mutants/probe.py").exists()
        assert (root / "e2e/checks/verdict.py").exists()
    assert edit.old in (ROOT / edit.file).read_text()
    assert not Path(root).exists()
