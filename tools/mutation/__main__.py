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

LIMIT_S: Final = 120.0
RESULTS: Final = running.ROOT / "build/mutation.jsonl"


def main() -> int:
    """Exit status 1 if a mutant survived."""
    asked = _arguments()
    if asked.invariants is not None:
        return min(1, invariants.hunt(asked.invariants))
    named = (m for part in asked.only or [""] for m in MODULES if part in m.file)
    chosen = list(dict.fromkeys(named))
    if not asked.write:
        _hunt(chosen, asked)
    known = _known()
    found = [known[each.key] for m in chosen for each in _sampled(m, asked) if each.key in known]
    if asked.write:
        page = report.written(report.PAGE.read_text(), report.table(found))
        report.PAGE.write_text(page)
    survivors = [result for result in found if result["outcome"] == "survived"]
    _print(report.table(found))
    for result in survivors:
        _print(_line(result))
    return 1 if survivors else 0


def _hunt(chosen: list[Module], asked: argparse.Namespace) -> None:
    running.preload()
    by_tests: dict[tuple[str, ...], list[Module]] = {}
    for module in chosen:
        by_tests.setdefault(module.paths(), []).append(module)
    RESULTS.parent.mkdir(exist_ok=True)
    with running.copied() as copy, RESULTS.open("a") as results:
        for modules in by_tests.values():
            for result in _tried_group(copy, modules, asked):
                results.write(json.dumps(result) + "\n")
                results.flush()
                _print(_line(result))


def _tried_group(
    copy: Path, modules: list[Module], asked: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """The results of modules with the same tests."""
    known, listed = _known(), equivalent.load()
    left: list[tuple[Mutant, dict[str, Any]]] = []
    for module in modules:
        digest = _digest(copy, module)
        for each in _sampled(module, asked):
            old, record = known.get(each.key), _record(each) | {"digest": digest}
            survived = old is not None and old["outcome"] == "survived"
            if any(one.covers(each) for one in listed):
                yield record | {"outcome": "equivalent", "by": "", "took_s": 0.0}
            elif old is None or old["digest"] != digest or (asked.again and survived):
                left.append((each, record))
    if not left:
        return
    tests = modules[0].paths()
    with serving.group(copy, tests) as served:
        ran, reach = served.reach(600.0)
        if not ran.green:
            _print(f"left out, they fail or are too slow without a mutant: {ran.failed}")
        if not reach.tests:
            _print(ran.log[-2000:])
            return
        for each, record in left:
            yield record | _outcome(copy, served, reach, each)


def _outcome(copy: Path, served: serving.Group, reach: Reach, each: Mutant) -> dict[str, Any]:
    tests = reach.of(each.file, each.function)
    if not tests:
        return {"outcome": "survived", "by": "(no test reaches it)", "took_s": 0.0}
    path = copy / each.file
    text = each.apply(path.read_bytes())
    ran = None
    if reach.calls(each.file, each.function):
        ran = served.run(serving.Plant(path, text, each.function), tests, LIMIT_S)
    if ran is None:
        with running.planted({path: text}):
            ran = running.run(copy, tests, LIMIT_S)
    by = f"({len(tests)} tests)" if ran.green else ran.failed[0]
    outcome = "survived" if ran.green else "caught"
    return {"outcome": outcome, "by": by, "took_s": round(ran.took_s, 1)}


def _record(each: Mutant) -> dict[str, Any]:
    record = {"key": each.key, "file": each.file, "function": each.function, "line": each.line}
    return record | {"kind": each.kind, "old": each.old, "new": each.new}


def _sampled(module: Module, asked: argparse.Namespace) -> Iterator[Mutant]:
    source = (running.ROOT / module.file).read_bytes()
    yield from sample(mutants(module.file, source, running.fields()), module.count, asked.seed)


def _digest(copy: Path, module: Module) -> str:
    texts = [(copy / name).read_bytes() for name in (module.file, *module.paths())]
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
