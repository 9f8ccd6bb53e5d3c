"""`python -m fmqsim.mutants`: plant every mistake, one at a time, and see each of them caught.

One line a mutant; the last one is `N mutants, N caught`. Exit status 1 if one survived.
`--search` forgets the seeds that are known and counts from 0.
"""

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from fmqsim.mutants.hunt import ROOT, Catch, Hunter, copied
from fmqsim.mutants.table import MUTANTS


def main() -> int:
    """Hunt them all, or those that were named."""
    asked = _arguments()
    chosen = [m for m in MUTANTS if not asked.only or any(part in m.name for part in asked.only)]
    for mutant in chosen:
        mutant.check(ROOT)
    if asked.list:
        for mutant in chosen:
            _print(f"{mutant.name}: {mutant.reason}")
        return 0
    caught = 0
    if asked.search:
        chosen = [replace(mutant, seeds=()) for mutant in chosen]
    with copied(None) as source, ThreadPoolExecutor(asked.jobs) as pool:
        hunter = Hunter(source, asked.limit)
        hunts = [pool.submit(hunter.hunt, mutant, asked.seeds) for mutant in chosen]
        for hunt in as_completed(hunts):
            catch = hunt.result()
            caught += catch.caught
            _print(_line(catch, verbose=asked.why))
    _print(f"{len(chosen)} mutants, {caught} caught")
    return 0 if caught == len(chosen) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fmqsim.mutants", description=__doc__)
    add = parser.add_argument
    add("--only", nargs="*", default=[], metavar="TEXT", help="those with this in their names")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: one a core)")
    add("--limit", type=int, default=60, help="seeds for one mutant at most (default 60)")
    add("--seeds", nargs="*", type=int, metavar="SEED", help="these only")
    add("--search", action="store_true", help="try seeds 0, 1, 2… instead of the known ones")
    add("--why", action="store_true", help="say what was found")
    add("--list", action="store_true", help="only say what they are")
    return parser.parse_args()


def _line(catch: Catch, *, verbose: bool) -> str:
    name = f"{catch.mutant.name:<62}"
    reason = f"\n    {catch.reason}" if verbose and catch.reason else ""
    if not catch.caught:
        return f"{name} SURVIVED {catch.tried} seeds, {catch.took_s:.0f} s{reason}"
    by = ", ".join(catch.by)
    if catch.seed is None:
        return f"{name} caught by {by}, {catch.took_s:.0f} s{reason}"
    seeds = "1 seed" if catch.tried == 1 else f"{catch.tried} seeds"
    return f"{name} caught by {by} at seed {catch.seed}, {seeds}, {catch.took_s:.0f} s{reason}"


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
