"""Fresh seeds: different code plays different seeds, the same code the same ones."""

from pathlib import Path

import pytest

from fmqsim.__main__ import first_seed
from fmqsim.scenario.fresh_seeds import BLOCK, FROM, fresh_seed

SOURCES = ("core/**/*.py", "e2e/*.py")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("core/one.py", "core/deep/two.py", "core/tests/test_one.py", "e2e/three.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"name = {name!r}\n")
    return tmp_path


def test_the_same_sources_play_the_same_seeds(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "tree"
    tree.rename(other)
    first = fresh_seed(other, SOURCES)
    other.rename(tree)
    assert fresh_seed(tree, SOURCES) == first


@pytest.mark.parametrize("name", ["core/one.py", "core/deep/two.py", "e2e/three.py"])
def test_a_changed_a_new_and_a_renamed_source_play_others(tree: Path, name: str) -> None:
    seeds = [fresh_seed(tree, SOURCES)]
    (tree / name).write_text("name = 'other'\n")
    seeds.append(fresh_seed(tree, SOURCES))
    (tree / name).rename((tree / name).with_name("renamed.py"))
    seeds.append(fresh_seed(tree, SOURCES))
    (tree / name).write_text("")
    seeds.append(fresh_seed(tree, SOURCES))
    assert len(set(seeds)) == len(seeds)


def test_unrelated_source_changes_no_seed(tree: Path) -> None:
    before = fresh_seed(tree, SOURCES)
    (tree / "core/tests/test_one.py").write_text("name = 'other'\n")
    (tree / "core/notes.md").write_text("notes\n")
    (tree / "e2e/kind").mkdir()
    (tree / "e2e/kind/four.py").write_text("name = 'four'\n")
    assert fresh_seed(tree, SOURCES) == before


def test_missing_part_is_reported(tree: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no sources: .*gone"):
        fresh_seed(tree, ("core/**/*.py", "gone/*.py"))


def test_fresh_seeds_lie_beyond_seeds_people_type() -> None:
    seed = first_seed("fresh")
    assert seed == fresh_seed() >= FROM
    assert seed % BLOCK == 0


@pytest.mark.parametrize("text", ["", "fresher", "1.5", "0x10"])
def test_invalid_seed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a number, or 'fresh'"):
        first_seed(text)


def test_number_is_taken_as_the_seed() -> None:
    assert first_seed("500000") == 500_000
