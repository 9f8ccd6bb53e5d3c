"""Batches, records and findings as plain data for JSON, and as lines for people. Pure."""

import base64
from datetime import UTC, datetime
from typing import Any

from fmqcli.output.formats import texts
from fmqcore.batch import columns
from fmqcore.batch.crc import Buffer
from fmqcore.batch.header import BatchHeader, BatchType, kind_name
from fmqcore.journal.findings import Finding
from fmqcore.journal.kinds import kind_of
from fmqcore.verify.directory import SegmentReport
from fmqcore.verify.small_files import Note

Row = dict[str, Any]


def batch_row(header: BatchHeader, topic: str) -> Row:
    """Return a header as plain data."""
    row: Row = {
        "position": header.position,
        "type": kind_name(header.type),
        "epoch": header.epoch,
        "bytes": header.total_len,
        "store_ms": header.store_ms,
    }
    if header.type == BatchType.DATA:
        row |= {
            "topic": topic,
            "topic_id": header.topic_id,
            "queue": header.queue_id,
            "offset": header.base_offset,
            "records": header.record_count,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "sequence": header.base_sequence,
        }
        if header.deliver_at_ms:
            row["deliver_at_ms"] = header.deliver_at_ms
    return row


def batch_line(row: Row) -> str:
    """Return a batch row as one line for people."""
    what = f"{row['position']:>14}  {row['type']:<7}  e{row['epoch']:<4}  {row['bytes']:>9} B"
    what += f"  {moment(row['store_ms'])}"
    if "queue" in row:
        last = row["offset"] + row["records"] - 1
        what += f"  {row['topic']}/{row['queue']}  {row['offset']}..{last}"
        if row["producer_id"]:
            what += f"  producer {row['producer_id']:x}#{row['sequence']}"
    elif "content" in row:
        what += "  " + ", ".join(f"{key} {value}" for key, value in row["content"].items())
    return what


def control_content(header: BatchHeader, payload: Buffer) -> Row:
    """Return the content of a control batch; raise `Malformed`."""
    return dict(kind_of(header.type).show(header, payload))


def record_rows(header: BatchHeader, payload: Buffer) -> list[Row]:
    """Return the records of a DATA batch; raise `BadColumns`."""
    records = columns.decode(header.attrs, header.record_count, payload)
    rows: list[Row] = []
    for number, value in enumerate(records.values):
        row: Row = {"offset": header.base_offset + number}
        if records.keys is not None:
            row |= _text("key", records.keys[number])
        row |= _text("value", value)
        if records.tags is not None:
            row |= _text("tag", records.tags[number])
        if records.headers is not None:
            headers = columns.decode_headers(records.headers[number])
            row["headers"] = texts(headers)
        if records.born_ms is not None:
            row["born_ms"] = records.born_ms[number]
        rows.append(row)
    return rows


def record_line(row: Row) -> str:
    """Return a record as one line for people."""
    parts = [f"{'':>16}{row['offset']}"]
    for name in ("key", "tag", "value"):
        if name in row:
            parts.append(f"{name}={row[name]!r}")
        elif f"{name}_base64" in row:
            parts.append(f"{name}_base64={row[f'{name}_base64']}")
    if row.get("headers"):
        parts.append(f"headers={row['headers']}")
    return "  ".join(parts)


def finding_row(finding: Finding) -> Row:
    """Return a finding as plain data."""
    return {
        "code": finding.code.name,
        "about": finding.code.value,
        "severity": finding.severity.value,
        "file": finding.file,
        "position": finding.position,
        "sentence": finding.sentence,
        "remedy": finding.remedy,
    }


def note_row(note: Note) -> Row:
    """Return the note of a small file as plain data."""
    return {
        "file": note.file,
        "segment": note.segment,
        "position": note.position,
        "fits": note.fits,
        "says": note.says,
    }


def report_row(report: SegmentReport) -> Row:
    """Return a segment's report as plain data."""
    return {
        "base": report.file.base,
        "file": report.file.name,
        "bytes": report.file.size,
        "used": report.used,
        "unread": report.unread_bytes,
        "batches": report.batches,
        "records": report.records,
        "first_ms": report.first_ms or None,
        "last_ms": report.last_ms or None,
        "sealed": report.sealed,
        "index": report.index.value,
        "moving": report.moving,
    }


def moment(ms: int | None) -> str:
    """Return a time in UTC, for people."""
    if not ms:
        return "-"
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def size(count: int) -> str:
    """Return a number of bytes, for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def _text(name: str, raw: bytes) -> Row:
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode()}
