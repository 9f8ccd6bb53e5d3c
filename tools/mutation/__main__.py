"""`make mutate`: plant small mistakes by rule, one at a time; list those that no test detects.

Results are kept in `build/mutation.jsonl`, so that an interrupted run can be continued. A mutant is
tried again if its file or its tests have changed; with --again, also if it survived.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tools.mutation import equivalent, invariants, report, running, serving
from tools.mutation.modules import MODULES, Module
from tools.mutation.operators import Mutant, mutants, sample
from tools.mutation.reach import Reach

LIMIT_S: Final = 1200.0
OPEN: Final = ("survived", "timed out", "broken")
"""The outcomes of which --again makes another try."""
RESULTS: Final = running.ROOT / "build/mutation.jsonl"
REACHES: Final = running.ROOT / "build/mutation-reach"


def main() -> int:
    """Exit status 1 if a mutant survived."""
    asked = _arguments()
    if asked.invariants is not None:
        return min(1, invariants.hunt(asked.invariants))
    named = (m for part in asked.only or [""] for m in MODULES if part in m.file)
    chosen = list(dict.fromkeys(named))
    if not asked.write:
        _hunt(chosen, asked)
    found = list(_found(chosen))
    if asked.write:
        page = report.written(report.PAGE.read_text(), report.table(found))
        report.PAGE.write_text(page)
    survivors = [result for result in found if result["outcome"] in OPEN]
    _print(report.table(found))
    for result in survivors:
        _print(_line(result))
    return 1 if survivors else 0


def _found(chosen: list[Module]) -> Iterator[dict[str, Any]]:
    """The last result of each mutant that was planted, and what has been read since."""
    known, listed = _known(), equivalent.load()
    for module in chosen:
        source = (running.ROOT / module.file).read_bytes()
        for each in mutants(module.file, source, running.fields()):
            if each.key in known:
                read = {"outcome": "equivalent"} if any(e.covers(each) for e in listed) else {}
                yield known[each.key] | read


def _hunt(chosen: list[Module], asked: argparse.Namespace) -> None:
    running.preload()
    by_tests: dict[tuple[str, ...], list[Module]] = {}
    for module in chosen:
        by_tests.setdefault(module.paths(), []).append(module)
    REACHES.mkdir(exist_ok=True, parents=True)
    with running.copied() as copy, RESULTS.open("a") as results:
        for modules in by_tests.values():
            for result in _tried_group(copy, modules, asked):
                results.write(json.dumps(result) + "\n")
                results.flush()
                _print(_line(result))


def _tried_group(
    copy: Path, modules: list[Module], asked: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield the results of modules that have the same tests."""
    known, listed = _known(), equivalent.load()
    left: list[tuple[Mutant, Module]] = []
    for module in modules:
        for each in _sampled(copy, module, asked):
            old = known.get(each.key)
            if any(one.covers(each) for one in listed):
                if old is None or old["outcome"] != "equivalent":
                    found = {"outcome": "equivalent", "by": "", "took_s": 0.0}
                    yield _record(copy, module, each, found)
            elif (
                old is None
                or (asked.again and old["outcome"] in OPEN)
                or _is_old(copy, module, old)
            ):
                left.append((each, module))
    if not left:
        return
    tests = modules[0].paths()
    with serving.group(copy, tests) as served:
        reach = _reach(copy, modules, served)
        for each, module in left if reach.tests else ():
            yield _record(copy, module, each, _outcome(copy, served, reach, each))


def _reach(copy: Path, modules: list[Module], served: serving.Group) -> Reach:
    """Return which functions the tests call; cached by the texts of modules and tests."""
    names = [module.file for module in modules] + list(modules[0].paths())
    cache = REACHES / f"{_of_texts(copy, names)}.json"
    if cache.exists():
        return Reach.read(cache)
    ran, reach = served.reach(3600.0)
    if ran.outcome != "survived":
        _print(f"tests left out, as they fail or are slow without a mutant: {ran.verdict.text()}")
    if reach.tests:
        reach.write(cache)
    else:
        _print(ran.log[-2000:])
    return reach


def _outcome(copy: Path, served: serving.Group, reach: Reach, each: Mutant) -> dict[str, Any]:
    tests = reach.of(each.file, each.function)
    if not tests:
        return {"outcome": "survived", "by": "(no test reaches it)", "took_s": 0.0}
    path = copy / each.file
    text = each.apply(path.read_bytes())
    ran = None
    if reach.calls(each.file, each.function):
        ran = served.run(serving.Plant(path, text), tests, LIMIT_S)
    if ran is None:
        with running.planted({path: text}):
            ran = running.run(copy, tests, LIMIT_S)
    notes = [*ran.verdict.failed, ran.verdict.broken, *ran.verdict.late, f"({len(tests)} tests)"]
    by = next(filter(None, notes))
    return {"outcome": ran.outcome, "by": by, "took_s": round(ran.took_s, 1)}


def _record(copy: Path, module: Module, each: Mutant, found: dict[str, Any]) -> dict[str, Any]:
    record = {"key": each.key, "file": each.file, "function": each.function, "line": each.line}
    record |= {"kind": each.kind, "old": each.old, "new": each.new} | found
    return record | {"digest": _digest(copy, module, found)}


def _sampled(root: Path, module: Module, asked: argparse.Namespace) -> Iterator[Mutant]:
    source = (root / module.file).read_bytes()
    yield from sample(mutants(module.file, source, running.fields()), module.count, asked.seed)


def _is_old(copy: Path, module: Module, result: dict[str, Any]) -> bool:
    """Whether the module has changed, or a test that could change the outcome."""
    return bool(result["digest"] != _digest(copy, module, result))


def _digest(copy: Path, module: Module, result: dict[str, Any]) -> str:
    names = [module.file, *module.paths()]
    if result["outcome"] == "caught":
        names[1:] = [result["by"].split("::")[0]]
    return _of_texts(copy, names)


def _of_texts(copy: Path, names: list[str]) -> str:
    texts = [(copy / name).read_bytes() for name in names if (copy / name).is_file()]
    return sha256(b"\0".join(texts)).hexdigest()[:10]


def _known() -> dict[str, dict[str, Any]]:
    """The last result of each mutant."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {result["key"]: result for result in map(json.loads, lines)}


def _line(result: dict[str, Any]) -> str:
    place = f"{result['file']}:{result['line']} {result['function']}"
    change = f"{result['kind']}: {' '.join(result['old'].split())} -> {result['new']}"
    return f"{result['outcome']:<10} {place}\n    {change}\n    {result['by']} {result['took_s']} s"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    add = parser.add_argument
    add(
        "--only",
        nargs="*",
        default=[],
        metavar="TEXT",
        help="only paths with TEXT in them",
    )
    add("--seed", type=int, default=28, help="seed of the sample (default 28)")
    add("--again", action="store_true", help="also try the survivors again")
    add("--write", action="store_true", help="run nothing; write the table of the page")
    add(
        "--invariants", nargs="*", metavar="NUMBER", help="break each invariant of the page instead"
    )
    return parser.parse_args()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
