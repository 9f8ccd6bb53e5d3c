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

from tools.mutation import equivalent, report, running
from tools.mutation.modules import MODULES, Module
from tools.mutation.operators import Mutant, mutants, sample
from tools.mutation.reach import Reach

Baselines = dict[tuple[str, ...], Reach | None]
RESULTS: Final = running.ROOT / "build/mutation.jsonl"


def main() -> int:
    """Exit status 1 if a mutant survived."""
    asked = _arguments()
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
    known = _known()
    listed = equivalent.load()
    baselines: Baselines = {}
    RESULTS.parent.mkdir(exist_ok=True)
    with running.copied() as copy, RESULTS.open("a") as results:
        for module in chosen:
            digest = _digest(copy, module)
            for each in _sampled(module, asked):
                old = known.get(each.key)
                done = old is not None and old["digest"] == digest
                if done and not (asked.again and old and old["outcome"] == "survived"):
                    continue
                if (result := _tried(copy, module, each, listed, baselines)) is None:
                    break
                result["digest"] = digest
                results.write(json.dumps(result) + "\n")
                results.flush()
                _print(_line(result))


def _tried(
    copy: Path,
    module: Module,
    each: Mutant,
    listed: list[equivalent.Equivalent],
    baselines: Baselines,
) -> dict[str, Any] | None:
    """The result of one mutant, or None if the tests of its module fail without it."""
    record = {"key": each.key, "file": each.file, "function": each.function, "line": each.line}
    record |= {"kind": each.kind, "old": each.old, "new": each.new}
    if any(one.covers(each) for one in listed):
        return record | {"outcome": "equivalent", "by": "", "took_s": 0.0}
    if (reach := _reach(copy, module, baselines)) is None:
        return None
    tests = reach.of(each.file, each.function)
    if not tests:
        return record | {"outcome": "survived", "by": "(no test reaches it)", "took_s": 0.0}
    path = copy / each.file
    with running.planted({path: each.apply(path.read_bytes())}):
        ran = running.run(copy, tests, 90.0)
    outcome = "survived" if ran.green else "caught"
    by = f"({len(tests)} tests)" if ran.green else ran.failed[0]
    return record | {"outcome": outcome, "by": by, "took_s": round(ran.took_s, 1)}


def _reach(copy: Path, module: Module, baselines: Baselines) -> Reach | None:
    """Which tests reach what, from one run without a mutant."""
    tests = module.paths()
    if tests not in baselines:
        ran, baselines[tests] = running.reached(copy, tests, 600.0)
        if not ran.green:
            baselines[tests] = None
            _print(f"{module.file}: red without a mutant: {ran.failed}\n{ran.log}")
    return baselines[tests]


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
    add("--write", action="store_true", help="run nothing; write the table of docs/mutation.md")
    return parser.parse_args()


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
