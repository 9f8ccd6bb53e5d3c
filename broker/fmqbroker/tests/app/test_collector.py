"""Collections of cycles visit few objects of a broker, since each one holds the event loop."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from fmqadapters.disk.files import FileDisk
from fmqbroker.app.collector import FreezingProbe, tune
from fmqbroker.tests.journal_kit import Clock, Life, settings

MOST: Final = 35_000
"""Objects visited in at most 5 ms, at 0.15 microseconds each."""


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_collections_visit_few_objects_while_many_are_made() -> None:
    visited: list[tuple[int, int]] = []

    def watch(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations = range(info["generation"] + 1)
            objects = sum(len(gc.get_objects(generation)) for generation in generations)
            visited.append((info["generation"], objects))

    gc.collect()
    tune()
    gc.callbacks.append(watch)
    try:
        kept: list[list[int]] = [[] for _ in range(400_000)]
    finally:
        gc.callbacks.remove(watch)
    assert len(kept) == 400_000
    assert {generation for generation, _ in visited} == {0, 1}
    assert max(objects for _, objects in visited) <= MOST


async def test_loaded_tables_are_left_out_of_collections(tmp_path: Path) -> None:
    probe, disk = FreezingProbe(), FileDisk(str(tmp_path))
    journal = await probe.open_journal(disk, settings(tmp_path), Clock(), Life())
    try:
        assert not any(each is journal.state.offsets for each in gc.get_objects())
    finally:
        await journal.close()
        await disk.close()
