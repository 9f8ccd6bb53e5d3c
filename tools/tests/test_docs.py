"""The documents name files, functions, tests and invariants that exist."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOTS = (
    ROOT,
    ROOT / "broker",
    *sorted((ROOT / "broker").iterdir()),
    *sorted((ROOT / "broker").glob("*/tests")),
)
DECISIONS = ROOT / "docs/decisions"
ALL_PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGES = [p for p in ALL_PAGES if p.name != "CHANGELOG.md" and p.parent != DECISIONS]
"""Decisions and the changelog may name what was there when they were written."""
INVARIANTS = ROOT / "docs/internals/invariants.md"
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w./-]*\w+\.(?:py|md|proto|toml)|[\w.-]+(?:/[\w.-]+)*/")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_NUMBER = re.compile(r"\b([DRPFCLK]\d{1,2})\b")
_ROW = re.compile(r"^\| ([A-Z]\d{1,2}) \|")


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def prose_of(page: Path) -> str:
    """The page without code: a link is not looked for in there."""
    return _CODE.sub("", without_blocks(page.read_text()))


def quoted(text: str) -> Iterator[str]:
    """What stands between backticks, outside of blocks of code."""
    yield from _CODE.findall(without_blocks(text))


def find(name: str, beside: Path | None = None) -> Path | None:
    """Return the file or folder of that name: below the root, below `broker`, or beside another."""
    homes = (*((beside.parent, beside.parent.parent) if beside else ()), *ROOTS)
    return next((home / name for home in homes if (home / name).exists()), None)


@cache
def functions(path: Path) -> frozenset[str]:
    """Return the names of all functions and methods in the file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, kinds))


def rows() -> dict[str, list[str]]:
    """Return the places and tests of each invariant."""
    found: dict[str, list[str]] = {}
    for line in INVARIANTS.read_text().splitlines():
        if row := _ROW.match(line):
            assert row[1] not in found, f"{row[1]} occurs twice"
            found[row[1]] = [each for each in quoted(line) if "::" in each]
    return found


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of the page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", without_blocks(page.read_text()), re.M)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_every_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    broken = []
    for target in _LINK.findall(prose_of(page)):
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if "://" in target:
            continue
        if not found.exists() or (anchor and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_named_by_the_pages_exist(page: Path) -> None:
    """A bare name may follow the path of a file beside the page, or of a folder."""
    missing = []
    beside: Path | None = None
    for name in quoted(page.read_text()):
        path = find(name, beside)
        if path is None and _FILE.fullmatch(name):
            missing.append(name)
        if path is not None and "/" in name:
            beside = path / "x" if path.is_dir() else path
    assert missing == []


def test_every_invariant_has_a_place_that_names_it_and_a_test() -> None:
    wrong = []
    for number, places in rows().items():
        tests = [place for place in places if "::test_" in place]
        if not tests or len(tests) == len(places):
            wrong.append(f"{number}: needs a place and a test")
        for place in places:
            name, _, function = place.partition("::")
            path = find(name)
            if path is None or function not in functions(path):
                wrong.append(f"{number}: there is no {place}")
            elif place not in tests and not re.search(rf"\b{number}\b", path.read_text()):
                wrong.append(f"{number} is not named in {name}")
    assert wrong == []


def test_invariants_are_numbered_without_gaps() -> None:
    counts: dict[str, int] = {}
    for number in rows():
        counts[number[0]] = counts.get(number[0], 0) + 1
        assert number == f"{number[0]}{counts[number[0]]}"


def test_invariant_numbers_used_in_the_code_are_on_the_page() -> None:
    known = set(rows())
    strange = [
        f"{path.relative_to(ROOT)}: {number}"
        for path in sorted((ROOT / "broker").rglob("*.py"))
        if "tests" not in path.parts and "_pb2" not in path.name
        for number in sorted(set(_NUMBER.findall(path.read_text())) - known)
    ]
    assert strange == []


def test_pages_named_in_the_code_exist() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {page}"
        for folder in ("broker", "bench", "tools", "proto")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for page in re.findall(r"docs/[\w/-]+\.md", path.read_text())
        if not (ROOT / page).exists()
    ]
    assert missing == []


def test_decisions_are_numbered_without_gaps_and_complete() -> None:
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    assert [page.name[:4] for page in pages] == [f"{n + 1:04}" for n in range(len(pages))]
    parts = ("Status", "Date", "Context", "Options", "Decision", "Consequences")
    for page in pages:
        text = page.read_text()
        assert text.startswith(f"# {page.name[:4]}: ")
        places = [text.find(f"**{part}.**") for part in parts]
        assert min(places) > 0, f"{page.name} lacks {parts[places.index(-1)]}"
        assert places == sorted(places), f"{page.name}: the parts are in another order"


def test_a_new_user_reads_the_readme_to_its_end() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_index_of_decisions_has_each_with_its_title() -> None:
    index = (DECISIONS / "README.md").read_text()
    listed = re.findall(r"^- \[(\d{4})\]\((\S+)\) (.+)$", index, re.M)
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    titles = [page.read_text().splitlines()[0].removeprefix("# ") for page in pages]
    assert [f"{number}: {title}" for number, _, title in listed] == titles
    assert [name for _, name, _ in listed] == [page.name for page in pages]


def test_make_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert phony is not None
    output = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert {line.split()[0] for line in output.splitlines()} == set(phony[1].split())


def test_the_five_ways_are_as_long_as_the_page_counts() -> None:
    page = (ROOT / "docs/internals/architecture.md").read_text()
    page = page.split("\n## The five ways\n")[1].split("\n## ")[0]
    head, *ways = page.split("### ")
    names, counts = (
        line.strip("| ").split(" | ")[1:] for line in re.findall(r"^\| \w.*$", head, re.M)
    )
    listed = {
        way.split(":")[0]: set(re.findall(r"`([\w/]+/[\w/]+\.(?:py|proto))`", way)) for way in ways
    }
    assert {name: len(files) for name, files in listed.items()} == {
        name: int(count) for name, count in zip(names, counts, strict=True)
    }
