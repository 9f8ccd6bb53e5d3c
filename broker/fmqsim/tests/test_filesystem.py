"""The simulated file system is as harsh as a real one may be: unsynced data can be lost.

The suite shared with real disks cannot require that: a real disk may keep everything. A simulated
one that always did would make every seed green.
"""

import errno
from random import Random

import pytest

from fmqsim.engine.filesystem import PAGE, SECTOR, FileSystem, Inode

SEEDS = range(60)
OLD, NEW = b"o", b"n"


def a_file(files: FileSystem, size: int = 4 * PAGE) -> Inode:
    """A file that is wholly on the disk, with its name."""
    inode = files.create("a")
    inode.write(OLD * size, 0)
    inode.sync()
    files.sync_names()
    return inode


def sectors(inode: Inode) -> str:
    """Return the first byte of each sector."""
    return bytes(inode.data[::SECTOR]).decode()


def test_any_part_of_unsynced_bytes_survives_a_power_cut() -> None:
    seen: list[str] = []
    for seed in SEEDS:
        files = FileSystem("/sim")
        inode = a_file(files)
        inode.write(NEW * 4 * PAGE, 0)
        files.cut_power(Random(seed))
        seen.append(sectors(inode))
    whole = 4 * PAGE // SECTOR
    torn = {text for text in seen if len(set(text)) > 1}
    assert {"o" * whole, "n" * whole} < set(seen), "nothing, and everything"
    assert len({text for text in torn if "on" not in text}) > 2, "its beginning"
    assert {text for text in torn if "on" in text}, "any sector"
    assert {text for text in torn if "on" in text[: PAGE // SECTOR]}, "within a page, too"


def test_unsynced_growth_may_revert_to_the_old_length() -> None:
    lengths: set[int] = set()
    for seed in SEEDS:
        files = FileSystem("/sim")
        inode = a_file(files, PAGE)
        inode.write(NEW * PAGE, PAGE)
        files.cut_power(Random(seed))
        lengths.add(len(inode.data))
    assert lengths == {PAGE, 2 * PAGE}


def test_prefix_of_unsynced_names_survives_a_power_cut() -> None:
    """Even of files whose bytes were synced."""
    seen: set[str] = set()
    for seed in SEEDS:
        files = FileSystem("/sim")
        for name in "ab":
            files.create(name).write(b"x", 0)
            files.find(name).sync()
        files.rename("a", "c")
        files.unlink("b")
        files.cut_power(Random(seed))
        seen.add("".join(sorted(files.names)))
    assert seen == {"", "a", "ab", "bc", "c"}


def test_failed_sync_loses_its_pages_though_the_next_succeeds() -> None:
    seen: set[bytes] = set()
    for seed in SEEDS:
        files = FileSystem("/sim")
        inode = a_file(files)
        inode.write(NEW, 0)
        inode.fail_sync()
        inode.sync()
        assert inode.data[:1] == NEW, "who reads sees it still"
        files.lose_process(Random(seed))
        seen.add(bytes(inode.data[:1]))
        files.cut_power(Random(seed))
        assert inode.data[:1] == OLD
    assert seen == {OLD, NEW}, "until the page is dropped, some time"


def test_rewritten_bytes_after_a_failed_sync_are_kept() -> None:
    for seed in SEEDS:
        files = FileSystem("/sim")
        inode = a_file(files)
        inode.write(b"x", 0)
        inode.fail_sync()
        inode.write(NEW, 0)
        files.lose_process(Random(seed))
        assert inode.data[:1] == NEW
        inode.sync()
        files.cut_power(Random(seed))
        assert inode.data[:1] == NEW


def test_failing_syncs_include_those_of_the_directory() -> None:
    left: set[int] = set()
    for seed in SEEDS:
        files = FileSystem("/sim")
        files.create("a")
        files.failing_syncs = 2
        for sync in (files.check_sync, files.sync_names):
            with pytest.raises(OSError, match="input/output"):
                sync()
        files.cut_power(Random(seed))
        left.add(len(files.names))
    assert left == {0, 1}


def test_truncated_file_may_be_long_until_synced() -> None:
    lengths: set[int] = set()
    for seed in SEEDS:
        files = FileSystem("/sim")
        inode = a_file(files)
        inode.truncate(PAGE)
        files.cut_power(Random(seed))
        lengths.add(len(inode.data))
        inode.truncate(10)
        inode.sync()
        files.cut_power(Random(seed))
        assert len(inode.data) == 10
    assert lengths == {PAGE, 4 * PAGE}


def test_a_bit_flips_in_the_cache_and_on_the_disk() -> None:
    files = FileSystem("/sim")
    inode = a_file(files)
    files.flip_bit("a", 7, 3)
    flipped = bytes([OLD[0] ^ 8])
    assert inode.data[7:8] == flipped
    files.cut_power(Random(0))
    assert inode.data[7:8] == flipped


def test_room_is_taken_until_it_is_given_back() -> None:
    """Even by an unlinked file, as long as it is open."""
    files = FileSystem("/sim", capacity=4 * PAGE)
    inode = files.create("a")
    inode.opens = 1
    assert files.write(inode, [b"x" * 3 * PAGE, b"y" * 3 * PAGE], 0) == 4 * PAGE, "what fits"
    assert len(inode.data) == 4 * PAGE
    other = files.create("b")
    other.opens = 1
    full: list[object] = []
    for work in (
        lambda: files.write(inode, [b"x"], 4 * PAGE),
        lambda: files.write(other, [b"x"], 0),
        lambda: files.allocate(other, 1),
    ):
        with pytest.raises(OSError, match="no space") as caught:
            work()
        full.append(caught.value.errno)
    assert full == [errno.ENOSPC] * 3
    files.rename("b", "a")
    assert not files.free
    files.closed(inode)
    assert files.free == 4 * PAGE
    files.allocate(other, PAGE)
    files.unlink("a")
    assert files.free == 3 * PAGE
    files.closed(other)
    assert files.free == 4 * PAGE
