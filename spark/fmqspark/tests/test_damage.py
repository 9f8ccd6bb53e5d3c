"""Damage drawn at random, in every kind of file: never clean, at the right place and replica.

What may pass unseen is named: `KEEPS_NOTHING`, and what a level does not promise to read.
"""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from fmqcore.batch.control import encode_offsets
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey
from fmqcore.consume.offsets.side_journal import NAME as SIDE_JOURNAL
from fmqcore.consume.offsets.side_journal import encode_frame, encode_head
from fmqcore.ids import Epoch, Offset, TopicId
from fmqcore.journal.resume_file import RESUME, encode_resume
from fmqcore.journal.segments import CHECKPOINT, MIN_SEGMENT, segment_base
from fmqspark.check.rows import Level
from fmqspark.tests.kit import check, write
from fmqspark.tests.test_code_limits import resume

KEEPS_NOTHING = (RESUME, SIDE_JOURNAL)
"""Transient files: a missing one is no finding."""
TIMES = 6
Damage = Callable[[random.Random, bytearray], bytearray]


def directory(path: Path) -> Path:
    """Write a directory with each kind of file."""
    write(path)
    (path / RESUME).write_bytes(encode_resume(resume()))
    entry = {OffsetKey("billing", TopicId(7), 1): OffsetEntry(1 << 40, Offset(2))}
    frame = encode_frame(encode_offsets(entry))
    (path / SIDE_JOURNAL).write_bytes(encode_head(Epoch(2)) + frame)
    return path


def flipped(draw: random.Random, data: bytearray) -> bytearray:
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return data


def overwritten(draw: random.Random, data: bytearray) -> bytearray:
    begin = draw.randrange(len(data))
    end = min(begin + draw.randint(1, 5000), len(data))
    data[begin:end] = draw.randbytes(end - begin)
    return data


def cut(draw: random.Random, data: bytearray) -> bytearray:
    return data[: draw.randrange(len(data) - 8)]  # the last bytes may be padding


def longer(draw: random.Random, data: bytearray) -> bytearray:
    return data + draw.randbytes(draw.choice([1, 8, 96, 5000]))


def kinds(path: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for file in sorted(path.iterdir()):
        small = file.name in (CHECKPOINT, *KEEPS_NOTHING)
        found.setdefault(file.name if small else file.suffix, []).append(file)
    return found


@pytest.mark.parametrize("damage", [flipped, overwritten, cut, longer])
@pytest.mark.parametrize("kind", [".journal", ".index", CHECKPOINT, RESUME, SIDE_JOURNAL])
def test_bytes_that_changed_are_never_clean(tmp_path: Path, kind: str, damage: Damage) -> None:
    good, a = directory(tmp_path / "good"), directory(tmp_path / "a")
    assert check(good, a).exit_code == 0
    draw = random.Random(f"{kind} {damage.__name__}")
    for _ in range(TIMES):
        file = draw.choice(kinds(a)[kind])
        before = file.read_bytes()
        after = damage(draw, bytearray(before))
        file.write_bytes(after)
        outcome = check(*draw.sample([good, a], 2))
        context = f"{file.name}, {damage.__name__}: {outcome.findings}"
        assert outcome.exit_code in (1, 2), context
        assert {found.replica for found in outcome.findings} == {str(a)}, context
        alone = check(a, level=draw.choice([Level.STANDARD, Level.DEEP]))
        if kind != ".journal" and kind != RESUME:  # only deep reads payloads and the resume file
            assert alone.exit_code in (1, 2), context
        if kind == ".journal" and damage is flipped:
            at = next(
                i for i, pair in enumerate(zip(before, after, strict=True)) if len({*pair}) > 1
            )
            at += segment_base(file.name) or 0
            last = (at // MIN_SEGMENT + 1) * MIN_SEGMENT
            assert any((f.begin or 0) <= at < (f.end or last) for f in outcome.findings), (
                f"{at} is not in {context}"
            )
        file.write_bytes(before)
    assert check(good, a).exit_code == 0


@pytest.mark.parametrize("kind", [".journal", ".index", CHECKPOINT])
@pytest.mark.parametrize("level", Level)
def test_files_that_are_not_where_they_were_are_never_clean(
    tmp_path: Path, kind: str, level: Level
) -> None:
    good, a = directory(tmp_path / "good"), directory(tmp_path / "a")
    draw = random.Random(f"{kind} {level}")
    for _ in range(TIMES):
        files = kinds(a)[kind]
        file = draw.choice(files)
        before = {path: path.read_bytes() for path in a.iterdir()}
        other = draw.choice([path for path in before if path != file])
        match draw.choice(["gone", "renamed", "empty", "swapped", "another's"]):
            case "gone":
                file.unlink()
            case "renamed":
                file.rename(
                    a / draw.choice([f"{file.name}.bak", f"{77 * MIN_SEGMENT:020d}.journal"])
                )
            case "empty":
                file.write_bytes(b"")
            case "swapped":
                file.write_bytes(before[other])
                other.write_bytes(before[file])
            case "another's":
                file.write_bytes(before[other])
        outcome = check(good, a, level=level)
        assert outcome.exit_code in (1, 2), f"{file.name}, {other.name}"
        assert {found.replica for found in outcome.findings} == {str(a)}, outcome.findings
        for path in a.iterdir():
            path.unlink()
        for path, data in before.items():
            path.write_bytes(data)
    assert check(good, a, level=level).exit_code == 0
