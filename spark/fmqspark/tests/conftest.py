"""Fixtures: two replicas of one journal, in two directories."""

from pathlib import Path

import pytest

from fmqspark.tests.kit import write


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return write(tmp_path / "a")


@pytest.fixture
def b(tmp_path: Path) -> Path:
    return write(tmp_path / "b")
