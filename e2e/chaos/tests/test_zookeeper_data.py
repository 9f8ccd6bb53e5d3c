"""ZooKeeper comes back empty, or from an older backup, under a group with two slaves."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from e2e.chaos.report import OUTCOMES

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[3]
FAULTS = ("zookeeper-empty", "zookeeper-older")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Both faults on one cluster, once."""
    directory = tmp_path_factory.mktemp("chaos") / "run"
    chosen = [word for name in FAULTS for word in ("--only", name)]
    shape = ["--zookeepers", "1", "--groups", "1", "--slaves", "2", "--seconds", "1"]
    command = [sys.executable, "-m", "e2e.chaos", "--dir", str(directory), *shape, *chosen]
    with (directory.parent / "chaos.log").open("w") as log:
        subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False)
    printed = (directory.parent / "chaos.log").read_text()
    found = json.loads((directory / OUTCOMES).read_text())
    return {outcome["name"]: {**outcome, "printed": printed} for outcome in found}


@pytest.mark.parametrize("name", FAULTS)
def test_runbook_brings_everything_back(outcomes: dict[str, dict[str, Any]], name: str) -> None:
    """The judge finds nothing: no loss, no epoch below a served one, no other topic's messages."""
    outcome = outcomes[name]
    assert outcome["verdict"] == "passed", (outcome["findings"], outcome["printed"])
