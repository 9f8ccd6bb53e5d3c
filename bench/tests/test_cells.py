import asyncio
import os
from pathlib import Path

import pytest

from bench import raw
from bench.cells import Cpu, Raw, Run, all_cells, chosen, median_cpu, median_run, row, run_of

KEYS = {
    "topics",
    "size_bytes",
    "flush",
    "replication",
    "consume",
    "messages_per_s",
    "p50_ms",
    "p99_ms",
    "p999_ms",
    "client_cpu_us",
    "master_cpu_us",
    "slave_cpu_us",
    "raw_fdatasync_per_s",
    "raw_stream_messages_per_s",
}


def test_every_combination_of_cells_exists_once() -> None:
    cells = all_cells()
    assert len(cells) == len(set(cells)) == 3 * 2 * 3 * 2
    assert len({cell.name for cell in cells}) == len(cells)


def test_cells_are_selected_by_name_prefix() -> None:
    cells = chosen(all_cells(), ["fsync+sync/1024/1"])
    assert [cell.name for cell in cells] == ["fsync+sync/1024/1/produce", "fsync+sync/1024/1/both"]
    assert chosen(all_cells(), []) == all_cells()
    assert chosen(all_cells(), ["nonsense"]) == []


def test_summary_takes_the_median_run() -> None:
    run = run_of([n / 1000 for n in range(1000, 0, -1)], 2.0)
    assert run == Run(500.0, 501.0, 991.0, 1000.0)
    assert run_of([0.004], 1.0) == Run(1.0, 4.0, 4.0, 4.0)
    runs = [Run(rate, rate, 0, 0) for rate in (3.0, 1.0, 2.0)]
    assert median_run(runs) == runs[2]


def test_cpu_is_the_median_of_each_process_by_itself() -> None:
    runs = [Cpu(1.0, 30.0, 200.0), Cpu(2.0, 10.0, 300.0), Cpu(3.0, 20.0, 100.0)]
    assert median_cpu(runs) == Cpu(2.0, 20.0, 200.0)


def test_a_row_has_the_keys_that_were_agreed() -> None:
    made = row(all_cells()[0], Run(1.23456, 1.0, 2.0, 3.0), Cpu(6.0, 9.0, 7.0), Raw(4.0, 5.0))
    assert set(made) == KEYS
    assert made["messages_per_s"] == 1.235


@pytest.mark.processes
async def test_raw_measurements_are_available_per_cell(tmp_path: Path) -> None:
    async with asyncio.timeout(60):
        machine = await raw.measure(all_cells()[0], tmp_path, 0.1)
    assert machine.raw_fdatasync_per_s > 0
    assert machine.raw_stream_messages_per_s > 0
    assert os.listdir(tmp_path) == []
