"""`fmq journal ls` and `dump`, and all three commands on a real broker's files."""

import asyncio
import json
from pathlib import Path
from typing import Any

from fmqbroker.tests import journal_kit
from fmqclient.tests.journal_directory import FIRST, directory, flip, run, verify, write, writer
from fmqcore.batch.columns import encode, encode_headers
from fmqcore.batch.header import BatchType
from fmqcore.tests.journal.writer import JournalWriter

__all__ = ["directory", "writer"]  # fixtures


# ---- ls and dump
def test_ls(directory: Path, writer: JournalWriter) -> None:
    rows = json.loads(run("ls", directory, "-o", "json")[1])
    assert [row["base"] for row in rows] == list(writer.segments)
    assert [row["state"] for row in rows] == ["sealed"] * (len(rows) - 1) + ["open"]
    assert [row["index"] for row in rows] == ["ok"] * (len(rows) - 1) + ["-"]
    assert sum(row["batches"] for row in rows) == len(writer.headers)
    assert rows[-1]["used"] == writer.end - writer.last_base
    assert rows[0]["first_ms"] == writer.headers[0].store_ms
    assert rows[-1]["last_ms"] == writer.headers[-1].store_ms
    code, out, _ = run("ls", directory)
    assert code == 0
    assert len(out.splitlines()) == 1 + len(rows)


def dumped(*arguments: object) -> list[dict[str, Any]]:
    code, out, _ = run("dump", *arguments, "-o", "json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def test_dump_has_a_line_for_every_batch(directory: Path, writer: JournalWriter) -> None:
    rows = dumped(directory)
    assert [row["position"] for row in rows] == [h.position for h in writer.headers]
    assert [row["type"] for row in rows] == [BatchType(h.type).name for h in writer.headers]
    out = run("dump", directory)[1]
    assert len(out.splitlines()) == len(rows)
    assert "orders/1" in out
    epochs = [row["content"] for row in rows if row["type"] == "EPOCH"]
    assert epochs == [{"master": "g1-0"}] * 2
    topic = next(row for row in rows if row["type"] == "CONFIG")
    assert topic["content"] == {"topic_id": 7, "name": "orders", "queues": 4}


def test_dump_filters(directory: Path, writer: JournalWriter) -> None:
    expected = [h for h in writer.headers if h.type == BatchType.DATA and h.queue_id == 2]
    for topic in ("orders", "7"):
        rows = dumped(directory, "--topic", topic, "--queue", 2)
        assert [row["position"] for row in rows] == [h.position for h in expected]
    assert dumped(directory, "--topic", "7", "--queue", 99) == []
    start = writer.headers[50].position
    rows = dumped(directory, "--from", start, "--limit", 3)
    assert [row["position"] for row in rows] == [h.position for h in writer.headers[50:53]]
    rows = dumped(directory, "--from", start + 1, "--limit", 1)
    assert rows[0]["position"] == writer.headers[51].position


def test_dump_of_an_unknown_topic_is_refused(directory: Path) -> None:
    for topic in ("other", "8"):
        code, out, err = run("dump", directory, "--topic", topic)
        assert (code, out) == (1, "")
        assert f"no topic {topic!r} in this journal; its topics: orders" in err


def test_dump_values(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.data(7, 0, ["grüße".encode(), b"\xff\x00"])
    directory = write(tmp_path / "data", writer.files())
    (row,) = dumped(directory, "--queue", 0, "--values")
    assert [value["offset"] for value in row["values"]] == [0, 1]
    assert row["values"][0]["value"] == "grüße"
    assert row["values"][1]["value_base64"] == "/wA="
    assert row["values"][1]["key"] == "k2"
    out = run("dump", directory, "--values")[1]
    assert "'grüße'" in out


def test_dump_shows_headers_that_are_not_text(tmp_path: Path) -> None:
    writer = JournalWriter()
    attrs, payload = encode([b"v"], headers=[encode_headers({"a": "1", "b": b"\x80"})])
    writer.append(
        BatchType.DATA, payload, attrs=attrs, topic_id=7, queue_id=0, record_count=1, base_offset=0
    )
    (row,) = dumped(write(tmp_path / "data", writer.files()), "--queue", 0, "--values")
    assert row["values"][0]["headers"] == {"a": "1", "b_base64": "gA=="}


def test_dump_continues_after_damage(directory: Path, writer: JournalWriter) -> None:
    victim = writer.headers[4]
    flip(directory / FIRST, victim.position + 3)
    code, out, err = run("dump", directory, "-o", "json")
    assert code == 2
    assert f"{FIRST}, position {victim.position}" in err
    assert f"{victim.total_len} bytes are not shown, up to {victim.end}" in err
    positions = [json.loads(line)["position"] for line in out.splitlines()]
    assert positions == [h.position for h in writer.headers if h != victim]


# ---- files of a real broker
async def test_broker_directory_is_clean_running_crashed_or_stopped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "data"
    for crash in (False, True, False):
        async with journal_kit.running(path, crash=crash) as journal:
            journal.append(journal_kit.epoch(journal.epoch + 1))
            for number in range(100):
                journal.append(journal_kit.records(b"x" * 992, queue=number % 3))
            await journal.wait_durable(journal.end)
            end = journal.end
            code, found = await asyncio.to_thread(verify, path)
            assert (code, found["live"], found["findings"]) == (0, True, [])
            assert found["coverage"]["bytes_read"] == end
        code, found = verify(path)
        assert (code, found["findings"]) == (0, [])
        assert found["coverage"]["bytes_read"] == end
        assert found["coverage"]["segments"] > 1
