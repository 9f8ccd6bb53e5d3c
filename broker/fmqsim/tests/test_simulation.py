"""The whole simulator: a seed shows events, is deterministic, and reports faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.checks.verdict import Outcome
from e2e.history.client_events import Sent, Stored
from e2e.history.cluster_events import PhaseName, Serves
from fmqcore.ids import Permission
from fmqsim.report.run import Result, forked
from fmqsim.scenario.scene import draw
from fmqsim.scenario.world import World

ROOT = Path(__file__).resolve().parents[3]
SEED = 7


def _run(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return subprocess.run(
        [sys.executable, "-m", "fmqsim", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=280,
    )


def _trace_of(output: str) -> str:
    return output.rpartition("trace ")[2].split()[0]


@pytest.mark.processes
def test_seed_is_independent_of_hash_seed_and_of_other_seeds() -> None:
    other = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    one = _run("--seed", str(SEED), hash_seed=other)
    assert one.returncode == 0, one.stdout
    assert one.stdout.endswith("1 seeds, 0 failed\n")
    (among,) = forked([SEED], 1)
    assert among.trace_hash == _trace_of(one.stdout)
    assert among.outcome is Outcome.OK
    assert among.counts["batches acknowledged"] >= 300
    assert among.counts["changes of reader"] >= 3


def test_results_come_from_own_processes_and_silence_is_failure() -> None:
    def run(seed: int) -> Result:
        if seed == 2:
            os._exit(3)
        if seed == 3:
            raise ValueError("a bug")
        return Result(seed, Outcome.OK, story=str(os.getpid()))

    results = {result.seed: result for result in forked(range(5), 2, run)}
    assert sorted(results) == list(range(5))
    assert [s for s, r in sorted(results.items()) if r.outcome is Outcome.BROKEN] == [2, 3]
    assert "a bug" in results[3].story
    assert len({results[s].story for s in (0, 1, 4)} | {str(os.getpid())}) == 4


class _Liar(World):
    """A world in which a lost broker had acknowledged a record that exists nowhere."""

    async def _end(self) -> None:
        await super()._end()
        sent = next(e for e in self.history.events if isinstance(e, Sent))
        stored = next(e for e in self.history.events if isinstance(e, Stored))
        serves = next(e for e in self.history.events if isinstance(e, Serves))
        at_ms = self.loop.now_ms
        self.history.add(Sent(at_ms, sent.who, 10**9, sent.topic, "replicated"))
        self.history.add(Stored(at_ms, sent.who, 10**9, stored.place, 10**6))
        other = self.brokers[serves.broker]
        slave = next(b for b in self.brokers.values() if b.group == other.group and b is not other)
        for name in (other.name, slave.name):
            self.history.add(Serves(at_ms, name, other.group, Permission.READ, 10**6))
        await self.until(lambda: False, 0.1)
        self.phase(PhaseName.OVER)


def test_faults_are_found_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int) -> Result:
        monkeypatch.setattr("fmqsim.report.run.World", _Liar)
        from fmqsim.report.run import simulate

        return simulate(seed)

    (result,) = forked([SEED], 1, run)
    assert result.outcome is Outcome.BROKEN
    assert {"I2", "I8"} <= set(result.broken)
    assert f"again: python -m fmqsim --seed {SEED}" in result.story
    assert "serves READ" in result.story


def test_seeds_draw_all_kinds_of_clusters_reproducibly() -> None:
    scenes = [draw(seed) for seed in range(300)]
    assert [draw(seed) for seed in range(300)] == scenes
    sizes = {len(g.members) for scene in scenes for g in scene.groups}
    assert sizes == {1, 2, 3, 4}
    policies = {(g.policy.how_many, g.policy.counts) for scene in scenes for g in scene.groups}
    assert len(policies) >= 8
    assert all(len(scene.groups[0].members) > 1 for scene in scenes), "somebody can take over"
