"""`fmq journal` on a next version's journal: it shows what it skips, and names what it cannot."""

import json
from pathlib import Path

from fmqclient.tests.journal_directory import run, write
from fmqcore.tests.journal.writer import SKIPPED, UNKNOWN, newer


def test_skipped_kinds_are_verified_listed_and_shown(tmp_path: Path) -> None:
    writer = newer()
    directory = write(tmp_path / "data", writer.files(writer.checkpoint()))
    assert run("verify", directory)[0] == 0
    rows = json.loads(run("ls", directory, "-o", "json")[1])
    assert sum(row["batches"] for row in rows) == len(writer.headers)
    code, out, _ = run("dump", directory, "-o", "json")
    assert code == 0
    shown = [json.loads(line) for line in out.splitlines()]
    skipped = [row for row in shown if row["type"] == f"KIND_{SKIPPED}"]
    assert len(skipped) == 21
    length = len(b"at a segment's begin")
    assert skipped[-1]["content"] == {"skipped": "a newer FMQ wrote it", "payload_bytes": length}
    assert "skipped a newer FMQ wrote it" in run("dump", directory)[1]


def test_unknown_kind_is_named_with_file_and_remedy(tmp_path: Path) -> None:
    writer = newer(UNKNOWN)
    directory = write(tmp_path / "data", writer.files(writer.checkpoint()))
    at = writer.headers[-1].position
    for command in ("verify", "dump"):
        code, out, err = run(command, directory)
        assert code == 2
        assert "J006 " in out + err
        assert f".journal, position {at}: FMQ" in out + err
        assert "kind 9 and must not skip them: upgrade this broker or tool" in out + err
