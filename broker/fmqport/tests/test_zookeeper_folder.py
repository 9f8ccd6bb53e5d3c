"""The embedded ZooKeeper keeps its data in the given folder."""

from pathlib import Path

import pytest

from fmqadapters.process.free_ports import free_port
from fmqadapters.zookeeper.embedded import EmbeddedZooKeeper


@pytest.mark.processes
@pytest.mark.parametrize("name", ["jürgen", "数据 😀", "back\\slash"])
def test_a_folder_whose_name_is_not_ascii(tmp_path: Path, name: str) -> None:
    """Java reads the file in Latin-1.

    The data went to `jÃ¼rgen`, outside of the cluster's folder, where no `--wipe` removed them; in
    some home directories it could not be created.
    """
    server = EmbeddedZooKeeper(tmp_path / name, free_port(), fsync=False)
    server.start()
    try:
        server.wait_ready()
    finally:
        server.stop()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name / "data" / "version-2").is_dir()
