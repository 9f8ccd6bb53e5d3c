"""`python -m fmqsim`: run many seeds, or one.

While it runs, it reports progress and speed (a bar on a terminal, plain lines elsewhere) and prints
the story of each failed seed. It ends with `N seeds, N failed`. Exit status: 0 no seed failed, 1 a
seed failed, 2 too many seeds were inconclusive (more than `UNKNOWN_SHARE`).
"""

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from e2e.checks.verdict import Outcome
from fmqsim.report.run import Result, charge_for_turns, forked, simulate
from fmqsim.scenario.fresh_seeds import fresh_seed
from fmqsim.scenario.scene import Focus

UNKNOWN_SHARE: Final = 0.1
"""A campaign is not green above this share of inconclusive seeds."""
ORDERED_EVERY: Final = 3
_EVERY_S: Final = 10.0
_STORIES: Final = 20  # are printed whole


def main() -> int:
    """Run the requested seed or seeds and return the exit status."""
    logging.getLogger("fmqclient").setLevel(logging.ERROR)  # it warns of what is done on purpose
    asked = _arguments()
    charge_for_turns()
    if asked.seed is not None:
        focus = Focus(
            settings=tuple(asked.set),
            moves=asked.moves,
            topics=asked.topics,
            ordered=asked.ordered or _is_ordered(asked.seed, asked),
            seek_times=asked.ordered,
        )
        return _one(asked.seed, asked.trace, focus)
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    _print(f"seeds {seeds.start} to {seeds.stop - 1}")
    numbers = asked.twice_every, asked.stop_after, asked.within_s
    play = partial(_play, asked=asked)
    return Campaign(seeds, asked.jobs, *numbers, play).run()


def _play(seed: int, asked: argparse.Namespace) -> Result:
    ordered = asked.ordered or _is_ordered(seed, asked)
    focus = Focus(moves=asked.moves, topics=asked.topics, ordered=ordered, seek_times=asked.ordered)
    return simulate(seed, focus=focus)


def _is_ordered(seed: int, asked: argparse.Namespace) -> bool:
    """Every third seed has an ordered topic, unless it is narrowed otherwise."""
    return seed % ORDERED_EVERY == 0 and not (asked.set or asked.moves or asked.topics)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fmqsim", description="Simulate clusters.")
    add = parser.add_argument
    add("--seeds", type=int, default=100, help="number of seeds (default 100)")
    add("--first-seed", type=_first_seed, metavar="N", default=0,
        help="first seed (default 0); 'fresh': a range that no other code has run")  # fmt: skip
    add("--seed", type=int, help="run only this seed, in this process; see --trace")
    add("--trace", metavar="FILE", help="with --seed: write all that happens to a file")
    add("--set", metavar="NAME=N", type=_setting, action="append", default=[],
        help="with --seed: another value of a broker's setting")  # fmt: skip
    add(
        "--moves",
        action="store_true",
        help="another master may be requested, and links between groups cut, at any time",
    )
    add("--topics", action="store_true", help="topics are altered, and one is created and deleted")
    add(
        "--ordered",
        action="store_true",
        help="each seed, not every third, has an ordered topic, with readers that seek to times",
    )
    add(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="number of processes (default: one per core)",
    )
    add("--twice-every", type=int, default=50, help="run each n-th seed twice (0 = never)")
    add("--stop-after", type=int, default=0, help="stop after this number of failures (0 = never)")
    add("--within-s", type=int, default=0, help="seconds after which no seed is started (0 = all)")
    return parser.parse_args()


def first_seed(text: str) -> int:
    """Parse a seed as people type it: a number, or `fresh`.

    Raises ValueError for any other text.
    """
    if text == "fresh":
        return fresh_seed()
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no seed: say a number, or 'fresh'")
    return int(text)


def _first_seed(text: str) -> int:
    try:
        return first_seed(text)
    except (ValueError, FileNotFoundError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _setting(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    return name, int(value)


def _one(seed: int, trace: str | None, focus: Focus) -> int:
    if trace is None:
        result = simulate(seed, focus=focus)
    else:
        with open(trace, "w", encoding="utf-8") as file:
            result = simulate(seed, trace=file.write, focus=focus)
    _print(result.story or f"seed {seed}: {result.outcome.value}")
    for line in (*result.findings[:20], *result.reasons):
        _print(f"  {line}")
    _print("  " + ", ".join(f"{count} {name}" for name, count in result.counts.items()))
    speed = result.virtual_s / max(result.cpu_s, 1e-9)
    _print(
        f"  {result.virtual_s:.1f} s simulated in {result.cpu_s:.2f} s ({speed:.0f} s a second), "
        f"trace {result.trace_hash}"
    )
    failed = result.outcome is Outcome.BROKEN
    _print(f"1 seeds, {int(failed)} failed")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(failed))


class Campaign:
    """Runs many seeds and collects their results."""

    def __init__(
        self,
        seeds: Iterable[int],
        jobs: int,
        twice_every: int,
        stop_after: int,
        within_s: int,
        play: Callable[[int], Result] = simulate,
    ) -> None:
        self._play = play
        self._seeds = list(seeds)
        self._jobs = jobs
        self._twice_every = twice_every
        self._stop_after = stop_after
        self._within_s = within_s
        self._hashes: dict[int, str] = {}
        self._failed: dict[int, tuple[str, ...]] = {}
        self._unknown: Counter[str] = Counter()
        self._unknown_seeds: list[int] = []
        self._counts: Counter[str] = Counter()
        self._done = self._again = 0
        self._virtual_s = 0.0
        self._started = self._reported_s = time.monotonic()

    def run(self) -> int:
        """Run all seeds and return the exit status."""
        results = forked(self._schedule(), self._jobs, self._play)
        for result in results:
            self._take(result)
            self._report_progress()
            if self._stop_after and len(self._failed) >= self._stop_after:
                results.close()
                break
        return self._end()

    def _schedule(self) -> Iterable[int]:
        for number, seed in enumerate(self._seeds):
            if self._within_s and time.monotonic() - self._started >= self._within_s:
                return
            yield seed
            if self._twice_every and number % self._twice_every == 0:
                yield seed

    def _take(self, result: Result) -> None:
        seed = result.seed
        if seed in self._hashes:
            self._again += 1
            if self._hashes[seed] != result.trace_hash:
                self._fail(seed, ("replay",), f"seed {seed}: two runs differ: it is no simulation")
            return
        self._hashes[seed] = result.trace_hash
        self._done += 1
        self._virtual_s += result.virtual_s
        self._counts.update(result.counts)
        if result.outcome is Outcome.BROKEN:
            self._fail(seed, result.broken, result.story)
        elif result.outcome is Outcome.UNKNOWN:
            self._unknown_seeds.append(seed)
            self._unknown.update({_kind_of(reason) for reason in result.reasons})

    def _fail(self, seed: int, broken: tuple[str, ...], story: str) -> None:
        self._failed[seed] = broken
        self._clear()
        if len(self._failed) <= _STORIES:
            _print(f"\n{story}\n")
        else:
            _print(f"seed {seed} failed, too: {', '.join(broken)}")

    def _report_progress(self) -> None:
        now = time.monotonic()
        whole = len(self._seeds)
        line = (
            f"{self._done}/{whole} seeds, {len(self._failed)} failed, "
            f"{len(self._unknown_seeds)} unknown, {self._speed():.0f} simulated s a second"
        )
        if sys.stderr.isatty():
            filled = 30 * self._done // max(1, whole)
            sys.stderr.write(f"\r[{'#' * filled}{'.' * (30 - filled)}] {line}\x1b[K")
            sys.stderr.flush()
        elif now - self._reported_s >= _EVERY_S:
            self._reported_s = now
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    def _clear(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _speed(self) -> float:
        return self._virtual_s / max(time.monotonic() - self._started, 1e-9)

    def _end(self) -> int:
        self._clear()
        took_s = time.monotonic() - self._started
        counts = ", ".join(f"{self._counts[name]} {name}" for name in self._counts)
        _print(counts)
        _print(
            f"{self._virtual_s:.0f} s simulated in {took_s:.0f} s: {self._speed():.0f} s a second; "
            f"{self._again} seeds ran twice"
        )
        for reason, count in self._unknown.most_common():
            _print(f"unknown in {count} seeds: {reason}")
        if self._unknown_seeds:
            _print(f"unknown: {_some(self._unknown_seeds)}")
        checks = Counter(check for broken in self._failed.values() for check in broken)
        if self._failed:
            _print(f"failed: {_some(sorted(self._failed))}; broken: {dict(checks.most_common())}")
        status = 1 if self._failed else 0
        if not status and len(self._unknown_seeds) > UNKNOWN_SHARE * max(1, self._done):
            _print(f"not green: over {UNKNOWN_SHARE:.0%} of the seeds showed nothing")
            status = 2
        _print(f"{self._done} seeds, {len(self._failed)} failed")
        return status


def _kind_of(reason: str) -> str:
    words = reason.split(", at least")[0].split()
    return " ".join(word for word in words if not word.isdigit())


def _some(seeds: list[int]) -> str:
    more = f" and {len(seeds) - 30} more" if len(seeds) > 30 else ""
    return ", ".join(map(str, seeds[:30])) + more


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
