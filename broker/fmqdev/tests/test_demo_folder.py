"""The folder of a demo: what an earlier run left is removed, and nothing else."""

from pathlib import Path

import pytest

from fmqcore.errors import InvalidArgument
from fmqdev.cluster_plan import ClusterFile, ClusterOptions, write_file
from fmqdev.demo.folder import LOCK_FILE, clear_folder, lock_folder


def leave(folder: Path, *names: str) -> None:
    """Leave files, and folders (`name/`) with a file in each."""
    for name in names:
        path = folder / name / "file" if name.endswith("/") else folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("left")


@pytest.mark.parametrize(
    "names",
    [
        ("source.db", "target.db"),
        ("source.db", "source.db-journal"),
        ("zookeeper/",),
        ("zookeeper/", "cluster.json.new"),
    ],
)
def test_start_that_was_killed_does_not_block_the_next_demo(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    leave(tmp_path, LOCK_FILE, *names)
    with lock_folder(tmp_path):
        clear_folder(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]


def test_plain_demo_removes_the_tables_of_an_ordered_one(tmp_path: Path) -> None:
    leave(tmp_path, LOCK_FILE, "source.db", "target.db", "g1-0/")
    write_file(tmp_path, ClusterFile(ClusterOptions(), []))
    with lock_folder(tmp_path):
        clear_folder(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [LOCK_FILE]


def test_file_that_is_not_of_a_demo_keeps_all_that_is_there(tmp_path: Path) -> None:
    leave(tmp_path, LOCK_FILE, "source.db", "notes")
    with (
        pytest.raises(InvalidArgument, match="is not empty and holds no cluster"),
        lock_folder(tmp_path),
    ):
        clear_folder(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [LOCK_FILE, "notes", "source.db"]


def test_database_in_the_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """`fmq dev up --dir` made the cluster; the file is somebody's own."""
    leave(tmp_path, "source.db", "g1-0/")
    write_file(tmp_path, ClusterFile(ClusterOptions(), []))
    with (
        pytest.raises(InvalidArgument, match=r"holds source\.db, which a demo would remove"),
        lock_folder(tmp_path),
    ):
        clear_folder(tmp_path)
    assert (tmp_path / "source.db").read_text() == "left"
