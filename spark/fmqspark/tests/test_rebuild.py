"""`rebuild-index`: equal byte for byte, swapped at once, never of damage, never under a broker."""

import fcntl
import os
from pathlib import Path

import pytest

from fmqcore.errors import DirectoryLocked, InvalidArgument
from fmqcore.ids import Position
from fmqcore.journal.index import SegmentIndex
from fmqcore.journal.recovery import SegmentFile
from fmqcore.journal.segments import MIN_SEGMENT, index_name, segment_name
from fmqspark.engines.engines import LocalEngine
from fmqspark.rebuild import job as subject
from fmqspark.rebuild.job import Done, rebuild
from fmqspark.source.files import LOCK, inspect_directory
from fmqspark.tests.kit import check, codes, data_batch, flip, journal, write

INDEXES = [index_name(base) for base in sorted(journal().segments)[:-1]]


def indexes(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.glob("*.index*")}


def test_rebuilt_indexes_equal_the_brokers(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    right = indexes(a)
    assert sorted(right) == INDEXES
    (a / INDEXES[0]).unlink()
    (a / INDEXES[1]).write_bytes(b"nonsense")
    (a / INDEXES[2]).write_bytes(right[INDEXES[3]])
    found = rebuild([a], LocalEngine())
    assert indexes(a) == right
    done = [result.done for result in found]
    assert done[:3] == [Done.REBUILT] * 3
    assert set(done[3:-1]) == {Done.SAME}
    assert done[-1] is Done.OPEN
    assert codes(check(a)) == []


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    (a / INDEXES[1]).unlink()
    before = {p: p.stat().st_mtime_ns for p in a.iterdir()}
    assert Done.WOULD in [result.done for result in rebuild([a], LocalEngine(), dry=True)]
    assert before == {p: p.stat().st_mtime_ns for p in a.iterdir()}


@pytest.mark.parametrize("byte", [2, 20, 44, 64])
def test_damaged_segment_keeps_its_old_index(tmp_path: Path, byte: int) -> None:
    a = write(tmp_path / "a")
    victim = data_batch(20)
    name = index_name(Position(victim.position // MIN_SEGMENT * MIN_SEGMENT))
    flip(a, victim.position + byte)
    (a / name).write_bytes(b"old")
    found = {result.name: result for result in rebuild([a], LocalEngine())}
    assert found[name].done is Done.DAMAGED
    assert str(victim.position) in found[name].why
    assert (a / name).read_bytes() == b"old"


def test_zeros_in_a_full_segment_are_damage(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    path = a / segment_name(Position(MIN_SEGMENT))
    path.write_bytes(path.read_bytes()[:96] + bytes(MIN_SEGMENT - 96))
    found = {result.name: result.done for result in rebuild([a], LocalEngine())}
    assert found[INDEXES[1]] is Done.DAMAGED


@pytest.mark.parametrize("base", [MIN_SEGMENT, journal().last_base])
def test_a_segment_file_without_a_byte_is_damage(tmp_path: Path, base: int) -> None:
    a = write(tmp_path / "a")
    index = a / index_name(Position(base))
    index.write_bytes(b"old")
    (a / segment_name(Position(base))).write_bytes(b"")
    found = [result.done for result in rebuild([a], LocalEngine()) if result.base == base]
    assert Done.DAMAGED in found
    assert set(found) <= {Done.DAMAGED, Done.MISSING}
    assert index.read_bytes() == b"old"


@pytest.mark.parametrize("step", ["fsync", "read_back", "rename"])
def test_a_killed_run_leaves_the_old_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    a = write(tmp_path / "a")
    right = indexes(a)[INDEXES[0]]
    (a / INDEXES[0]).write_bytes(b"old")

    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if step == "fsync":
            patched.setattr(os, "fsync", die)
        elif step == "read_back":
            patched.setattr(SegmentIndex, "decode", die)
        else:
            patched.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            rebuild([a], LocalEngine())
    assert (a / INDEXES[0]).read_bytes() == b"old"
    rebuild([a], LocalEngine())
    assert indexes(a)[INDEXES[0]] == right
    assert sorted(indexes(a)) == INDEXES


def test_under_a_broker_only_if_asked_and_never_its_newest(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    right = indexes(a)
    (a / INDEXES[0]).unlink()
    (a / INDEXES[-1]).unlink()
    with (a / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DirectoryLocked, match="--live"):
            rebuild([a], LocalEngine())
        rebuild([a], LocalEngine(), live=True)
    assert (a / INDEXES[0]).read_bytes() == right[INDEXES[0]]
    assert not (a / INDEXES[-1]).exists()


def test_segment_deleted_meanwhile_keeps_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = write(tmp_path / "a")
    (a / INDEXES[0]).unlink()
    swap = subject._swap

    def cut_and_swap(folder: Path, name: SegmentFile, raw: bytes) -> None:
        (folder / segment_name(Position(0))).unlink()
        swap(folder, name, raw)

    monkeypatch.setattr(subject, "_swap", cut_and_swap)
    with (a / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rebuild([a], LocalEngine(), live=True)
    assert not (a / INDEXES[0]).exists()


def test_no_broker_starts_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = write(tmp_path / "a")
    seen = []
    work = subject.rebuild_index

    def look_and_work(task: subject.IndexTask) -> subject.IndexResult:
        with (a / LOCK).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                seen.append("free")
            except BlockingIOError:
                seen.append("held")
        return work(task)

    monkeypatch.setattr(subject, "rebuild_index", look_and_work)
    rebuild([a], LocalEngine())
    assert set(seen) == {"held"}


@pytest.mark.parametrize("gone", [[0], [3], [3, 4], [1, 5], [-1]])
@pytest.mark.parametrize("known", [True, False])
def test_missing_segment_is_reported_and_others_are_rebuilt(
    tmp_path: Path, gone: list[int], known: bool
) -> None:
    bases = sorted(journal().segments)
    a = write(tmp_path / "a") if known else write(tmp_path / "a", bases=())
    right = indexes(a)
    for number in gone:
        (a / segment_name(bases[number])).unlink()
        (a / index_name(bases[number])).unlink(missing_ok=True)
    (a / INDEXES[2]).unlink()
    found = rebuild([a], LocalEngine())
    missing = [result.base for result in found if result.done is Done.MISSING]
    joined = [bases[gone[0]]] if gone == [3, 4] and not known else [bases[n] for n in gone]
    assert missing == joined
    assert (a / INDEXES[2]).read_bytes() == right[INDEXES[2]]
    assert check(a).exit_code == 2


def test_a_torn_end_is_no_damage_and_a_torn_middle_is(tmp_path: Path) -> None:
    last = journal().headers[-1]
    a = write(tmp_path / "a", durable_end=last.position)
    flip(a, last.position + 20)
    assert rebuild([a], LocalEngine())[-1].done is Done.OPEN
    a = write(tmp_path / "a")  # the checkpoint knows that it was stored
    flip(a, last.position + 20)
    assert rebuild([a], LocalEngine())[-1].done is Done.DAMAGED
    path = a / segment_name(sorted(journal().segments)[-1])
    path.write_bytes(path.read_bytes()[:96] + bytes(MIN_SEGMENT - 96))
    assert rebuild([a], LocalEngine())[-1].done is Done.DAMAGED
    a = write(tmp_path / "a", durable_end=last.position)
    os.truncate(path, last.position % MIN_SEGMENT)
    assert rebuild([a], LocalEngine())[-1].done is Done.OPEN


def test_segment_to_be_truncated_gets_no_index(tmp_path: Path) -> None:
    base = sorted(journal().segments)[4]
    a = write(tmp_path / "a", drop_from=base + 200)
    for name in INDEXES[4:]:
        (a / name).unlink()
    assert Done.REBUILT not in {result.done for result in rebuild([a], LocalEngine())}
    assert sorted(indexes(a)) == INDEXES[:4]


def test_two_rebuilds_beside_a_broker_do_not_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = write(tmp_path / "a")
    right = indexes(a)
    (a / INDEXES[0]).unlink()
    sync, others = os.fsync, [True]

    def meanwhile(fd: int) -> None:
        sync(fd)
        if others.pop() if others else False:
            assert Done.REBUILT in {r.done for r in rebuild([a], LocalEngine(), live=True)}

    monkeypatch.setattr(os, "fsync", meanwhile)
    with (a / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert Done.UNREAD not in {r.done for r in rebuild([a], LocalEngine(), live=True)}
    assert indexes(a) == right


def test_segment_deleted_by_retention_meanwhile_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = write(tmp_path / "a")
    work = subject.rebuild_index

    def late(task: subject.IndexTask) -> subject.IndexResult:
        (a / segment_name(Position(0))).unlink(missing_ok=True)
        return work(task)

    monkeypatch.setattr(subject, "rebuild_index", late)
    with (a / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = rebuild([a], LocalEngine(), live=True)
    assert found[0].done is Done.RETIRED


def test_segment_missing_under_a_broker_is_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, name = write(tmp_path / "a"), segment_name(Position(0))
    with (a / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        view = inspect_directory(a)
        late = view._replace(listing=tuple(pair for pair in view.listing if pair[0] != name))
        monkeypatch.setattr(subject, "inspect_directories", lambda _: [late])
        assert Done.MISSING not in {r.done for r in rebuild([a], LocalEngine(), live=True)}


def test_a_full_disk_leaves_the_old_index_and_no_shadow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = write(tmp_path / "a")
    (a / INDEXES[0]).write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        found = rebuild([a], LocalEngine())
    assert (found[0].done, found[0].why) == (Done.UNREAD, "No space left on device")
    assert (a / INDEXES[0]).read_bytes() == b"old"
    assert sorted(indexes(a)) == INDEXES


def test_one_directory_twice_is_wrong_usage(tmp_path: Path) -> None:
    a = write(tmp_path / "a")
    with pytest.raises(InvalidArgument, match="twice"):
        rebuild([a, tmp_path / "x" / ".." / "a"], LocalEngine())


def test_rebuilt_index_has_the_brokers_owner_and_mode(tmp_path: Path) -> None:
    """As root with a strict umask: an index that the broker may not read would look like a failing
    disk, and it could not lock its directory.
    """
    a = write(tmp_path / "a")
    a.chmod(0o750)
    for segment in a.glob("*.journal"):
        segment.chmod(0o640)
    broker = 12345 if os.geteuid() == 0 else os.geteuid()
    for path in (a, *a.iterdir()):
        os.chown(path, broker, -1)
    (a / INDEXES[1]).unlink()
    before = os.umask(0o077)
    try:
        assert Done.REBUILT in [result.done for result in rebuild([a], LocalEngine())]
    finally:
        os.umask(before)
    made = [(a / name).stat() for name in (INDEXES[1], LOCK)]
    assert [(s.st_uid, s.st_mode & 0o777) for s in made] == [(broker, 0o640)] * 2


def test_rebuild_works_without_the_right_to_chown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", refuse)
    a = write(tmp_path / "a")
    (a / INDEXES[1]).unlink()
    assert Done.REBUILT in [result.done for result in rebuild([a], LocalEngine())]
    assert (a / INDEXES[1]).stat().st_mode & 0o044
