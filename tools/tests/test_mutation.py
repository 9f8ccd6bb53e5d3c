"""The mutation tool plants what its rules describe, samples evenly and notices a red test."""

import importlib.util
import struct
from pathlib import Path

import pytest

from tools.mutation import equivalent, invariants, report, running, serving
from tools.mutation.modules import MODULES
from tools.mutation.operators import Mutant, mutants, optional_fields, sample
from tools.mutation.verdicts import Verdict

ROOT = Path(__file__).resolve().parents[2]


def planted(source: str, optional: frozenset[str] = frozenset()) -> set[tuple[str, str]]:
    """Return each mutant's kind, and the line that it changes as it then reads."""
    found = set()
    for each in mutants("a.py", source.encode(), optional):
        line = each.apply(source.encode()).decode().splitlines()[each.line - 1]
        found.add((each.kind, line.strip()))
    return found


@pytest.mark.parametrize(
    ("line", "kind", "changed"),
    [
        ("return a < b", "comparison", "return (a <= b)"),
        ("return a is None", "comparison", "return (a is not None)"),
        ("return a in b", "comparison", "return (a not in b)"),
        ("return a < b <= c", "comparison", "return (a <= b <= c)"),
        ("return a < b <= c", "comparison", "return (a < b < c)"),
        ("return a and b", "and/or", "return (a or b)"),
        ("return a and b", "operand removed", "return (a)"),
        ("return a and b", "operand removed", "return (b)"),
        ("return a if b else c", "negated", "return (c if b else a)"),
        ("return not a", "negated", "return (a)"),
        ("return min(a, b)", "min/max, any/all", "return max(a, b)"),
        ("return all(a)", "min/max, any/all", "return any(a)"),
        ("return a + b", "arithmetic", "return (a - b)"),
        ("return a | b", "arithmetic", "return (a & b)"),
        ("return f(1)", "constant", "return f((2))"),
        ("return f(True)", "constant", "return f(False)"),
        ("return [x for x in a if x.b]", "filter removed", "return [x for x in a if True]"),
        ("return replace(a, b=1, c=2)", "field left out", "return replace(a, c=2)"),
        ("a.b = c", "statement", "pass"),
        ("a += b", "statement", "pass"),
        ("a.b(c)", "statement", "pass"),
    ],
)
def test_each_rule_plants_its_mistake(line: str, kind: str, changed: str) -> None:
    assert (kind, changed) in planted(f"def g(a, b, c):\n    {line}\n")


def test_a_guard_is_negated_and_removed() -> None:
    source = "def g(a):\n    if a.b:\n        return 1\n    return f(a)\n"
    found = planted(source)
    assert {("negated", "if not (a.b):"), ("guard removed", "if False:")} <= found


def test_only_a_field_with_a_default_is_left_out() -> None:
    classes = b"class C:\n    a: int\n    b: int = 0\n"
    assert optional_fields(classes) == {"C.b"}
    found = planted("def g():\n    return C(a=x, b=y)\n", optional_fields(classes))
    assert found == {("field left out", "return C(a=x)")}


@pytest.mark.parametrize(
    "line",
    [
        "assert a < b",
        "raise ValueError(1)",
        "logger.info('x', n=1)",
        "await logger.info('x', n=1)",
        "x: Literal[1]",
        "return 'a' + b",
        "'a docstring'",
    ],
)
def test_code_without_decisions_is_not_mutated(line: str) -> None:
    assert planted(f"async def g(a, b):\n    {line}\n") == set()


def test_equal_mutants_of_a_function_have_different_keys() -> None:
    found = mutants("a.py", b"def g(a):\n    f(a)\n    f(a)\n")
    assert len(found) == len({each.key for each in found}) == 2


def test_a_key_does_not_depend_on_the_line() -> None:
    source = b"def g(a):\n    return f(a < 1)\n"
    before = mutants("a.py", source)
    after = mutants("a.py", b"import x\n\n\n" + source)
    assert [each.key for each in before] == [each.key for each in after]


def _many() -> list[Mutant]:
    functions = [f"def g{n}(a, b):\n" + "    f(a < b, a or b, 1)\n" * 4 for n in range(5)]
    return mutants("a.py", "\n".join(functions).encode())


@pytest.mark.parametrize("seed", range(5))
def test_a_sample_takes_each_function_before_any_twice(seed: int) -> None:
    taken = sample(_many(), 7, seed)
    assert len({each.key for each in taken}) == 7
    assert {each.function for each in taken[:5]} == {f"g{n}" for n in range(5)}
    assert len({each.function for each in taken[5:]}) == 2


def test_a_sample_takes_guards_before_constants() -> None:
    assert all(each.kind != "constant" for each in sample(_many(), 10, 1))


def test_a_sample_depends_on_its_seed_alone() -> None:
    assert sample(_many(), 7, 1) == sample(list(reversed(_many())), 7, 1)
    assert sample(_many(), 7, 1) != sample(_many(), 7, 2)


def test_a_larger_sample_contains_the_smaller() -> None:
    assert sample(_many(), 20, 1)[:7] == sample(_many(), 7, 1)


def test_every_module_and_its_tests_exist() -> None:
    paths = {path for module in MODULES for path in (module.file, *module.paths())}
    assert [path for path in sorted(paths) if not (ROOT / path).is_file()] == []
    files = [module.file for module in MODULES]
    assert len(files) == len(set(files))


def test_each_mutant_listed_as_equivalent_can_be_planted() -> None:
    for one in equivalent.load():
        assert one.reason
        source = (ROOT / one.file).read_bytes()
        found = mutants(one.file, source, running.fields())
        assert any(one.covers(each) for each in found), f"no such mutant: {one}"


def test_each_invariant_has_a_break_that_can_be_planted() -> None:
    page = invariants.PAGE.read_text()
    assert set(invariants.tests_of(page)) == set(invariants.BREAKS)
    for each in invariants.breaks(page):
        assert each.tests, each
        for path, text in invariants.changed(ROOT, each.edits).items():
            assert text != path.read_bytes()
            compile(text, path, "exec", dont_inherit=True)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A tree with a module and a test of that module."""
    folder = tmp_path / "broker"
    folder.mkdir()
    (folder / "fmqsample.py").write_text("def less(a, b):\n    return a < b\n")
    text = "import fmqsample\n\ndef test_less():\n    assert fmqsample.less(1, 2)\n"
    (folder / "test_sample.py").write_text(text)
    return tmp_path


def test_run_distinguishes_red_from_green_and_restores(copy: Path) -> None:
    path = copy / "broker/fmqsample.py"
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert running.run(copy, ["broker/test_sample.py"], 60.0).outcome == "survived"
    with running.planted({path: b"def less(a, b):\n    return a > b\n"}):
        ran = running.run(copy, ["broker/test_sample.py"], 60.0)
    assert (ran.outcome, ran.verdict.failed) == ("caught", ["broker/test_sample.py::test_less"])
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_a_mutant_runs_the_tests_that_reach_it_fastest_first(copy: Path) -> None:
    path = copy / "broker/fmqsample.py"
    path.write_text(
        path.read_text() + "\ndef more(a, b):\n    return a > b\n\nclass A:\n    B = 1\n"
    )
    text = "import fmqsample\n\ndef test_more():\n    assert fmqsample.more(2, 1)\n"
    text += "\ndef test_slow():\n    sum(range(20_000_000))\n    fmqsample.less(1, 2)\n"
    (copy / "broker/test_other.py").write_text(text)
    tests = ["broker/test_other.py", "broker/test_sample.py"]
    with serving.group(copy, tests) as served:
        ran, reach = served.reach(60.0)
    assert ran.outcome == "survived"
    less = ["broker/test_sample.py::test_less", "broker/test_other.py::test_slow"]
    assert reach.of("broker/fmqsample.py", "less") == less
    assert reach.of("broker/fmqsample.py", "more") == ["broker/test_other.py::test_more"]
    assert reach.of("broker/fmqother.py", "less") == []
    assert not reach.calls("broker/fmqsample.py", "unused")
    assert len(reach.of("broker/fmqsample.py", "unused")) == 3  # it may be called at import
    assert len(reach.of("broker/fmqsample.py", "A")) == 3


def test_a_group_replaces_the_code_of_a_function_in_a_fork(copy: Path) -> None:
    path, tests = copy / "broker/fmqsample.py", ["broker/test_sample.py::test_less"]
    before = path.read_text() + "\nclass A:\n    B = 1\n\nMORE = (lambda a, b: a < b,)\n"
    before += "def deep(a, b):\n    return (lambda: a < b)()\n"
    path.write_text(before)
    test = "import fmqsample\n\ndef test_less():\n    a = fmqsample.less(1, 2)\n"
    test += "    assert a and fmqsample.MORE[0](1, 2) and fmqsample.deep(1, 2)\n"
    (copy / "broker/test_sample.py").write_text(test)

    def changed(old: str, new: str) -> serving.Plant:
        return serving.Plant(path, before.replace(old, new).encode())

    with serving.group(copy, ["broker/test_sample.py"]) as served:
        assert served.run(changed("B = 1", "B = 2"), tests, 60.0) is None
        header = Path(importlib.util.cache_from_source(str(path))).read_bytes()[8:16]
        stat = path.stat()
        assert header == struct.pack("<LL", int(stat.st_mtime), stat.st_size)  # compiled once
        for place in ("return a", "lambda a, b: a", "(lambda: a"):
            ran = served.run(changed(f"{place} < b", f"{place} > b"), tests, 60.0)
            assert ran is not None, place
            assert (ran.outcome, ran.verdict.failed) == ("caught", tests)
        loops, ends = "while True: pass", "__import__('os')._exit(0)"
        assert outcome(served.run(changed("return a < b", loops), tests, 1.0)) == "timed out"
        assert outcome(served.run(changed("return a < b", ends), tests, 60.0)) == "broken"
        assert outcome(served.run(changed("a < b", "a <= b"), tests, 60.0)) == "survived"


def outcome(ran: running.Ran | None) -> str:
    assert ran is not None
    return ran.outcome


def test_a_test_that_is_red_anyway_catches_no_mutant(copy: Path) -> None:
    test = "broker/test_sample.py::test_red"
    (copy / "broker/test_sample.py").write_text(
        "import fmqsample\n\ndef test_red():\n    assert fmqsample.less(2, 1)\n"
    )
    path = copy / "broker/fmqsample.py"
    with serving.group(copy, ["broker/test_sample.py"]) as served:
        ran = served.run(serving.Plant(path, path.read_bytes()), [test], 60.0)
    assert outcome(ran) == "broken"


def test_a_group_that_cannot_be_collected_is_broken(copy: Path) -> None:
    (copy / "broker/test_sample.py").write_text("import fmqnowhere\n")
    with serving.group(copy, ["broker/test_sample.py"]) as served:
        assert served.reach(60.0)[0].verdict == Verdict(broken="(collection)")


def test_a_run_without_an_end_times_out(copy: Path) -> None:
    path = copy / "broker/fmqsample.py"
    with running.planted({path: b"def less(a, b):\n    while True:\n        pass\n"}):
        assert running.run(copy, ["broker/test_sample.py"], 3.0).outcome == "timed out"


def test_a_module_that_cannot_be_imported_is_broken(copy: Path) -> None:
    with running.planted({copy / "broker/fmqsample.py": b"raise ValueError\n"}):
        assert running.run(copy, ["broker/test_sample.py"], 60.0).outcome == "broken"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("raise ValueError", "caught"),
        ("assert False", "caught"),
        ("pytest.fail('no')", "caught"),
        ("pytest.fail('Timeout (>30.0s) from pytest-timeout.')", "timed out"),
        ("raise TimeoutError", "timed out"),
        ("raise ExceptionGroup('', [TimeoutError()])", "timed out"),
        ("try:\n        raise TimeoutError\n    except TimeoutError:\n"
         "        raise AssertionError('never') from None", "timed out"),
        ("pytest.skip('no')", "survived"),
        ("pytest.xfail('no')", "survived"),
    ],
)  # fmt: skip
def test_only_an_assertion_or_an_error_catches(copy: Path, body: str, expected: str) -> None:
    text = f"import pytest\n\ndef test_less():\n    {body}\n"
    (copy / "broker/test_sample.py").write_text(text)
    assert running.run(copy, ["broker/test_sample.py"], 60.0).outcome == expected


def test_after_a_late_test_another_may_catch(copy: Path) -> None:
    text = "def test_late():\n    raise TimeoutError\n\ndef test_red():\n    assert False\n"
    (copy / "broker/test_sample.py").write_text(text)
    ran = running.run(copy, ["broker/test_sample.py"], 60.0)
    test = "broker/test_sample.py::"
    assert ran.verdict == Verdict([f"{test}test_red"], [f"{test}test_late"])
    assert ran.outcome == "caught"


def test_the_table_of_the_page_adds_up() -> None:
    outcomes = ("caught", "caught", "survived", "equivalent", "timed out", "broken")
    text = report.table({"file": "a.py", "outcome": each} for each in outcomes)
    assert "| `a.py` | 6 | 2 | 1 | 1 | 1 | 1 |" in text
    assert "| all | 6 | 2 | 1 | 1 | 1 | 1 |" in text
    page = report.written(report.PAGE.read_text(), text)
    assert page.count("| all | ") == 1
    assert "| all | 6 | 2 | 1 | 1 | 1 | 1 |" in page
