"""`fmq dev up` in a folder that holds a cluster from before."""

from pathlib import Path

import pytest

from fmqcli import common, main
from fmqcli.commands import dev
from fmqdev.cluster_plan import ClusterFile, ClusterOptions, write_file


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ([], (3, 0)),
        (["--groups", "2"], (2, 0)),
        (["--slaves", "2"], (3, 2)),
    ],
)
def test_shape_that_is_left_out_is_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], shape: tuple[int, int]
) -> None:
    asked: list[ClusterOptions] = []

    async def up(_: Path, options: ClusterOptions) -> None:
        asked.append(options)

    monkeypatch.setattr(dev, "_up", up)
    write_file(tmp_path, ClusterFile(ClusterOptions(groups=3, slaves=0), []))
    assert main.run(["dev", "up", "--dir", str(tmp_path), *given]) == 0
    assert [(options.groups, options.slaves) for options in asked] == [shape]
    assert main.run(["dev", "up", "--dir", str(tmp_path / "new")]) == 0
    assert (asked[1].groups, asked[1].slaves) == (2, 1)


def test_another_shape_is_refused_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_file(tmp_path, ClusterFile(ClusterOptions(groups=3, slaves=0), []))
    code = main.run(["dev", "up", "--dir", str(tmp_path), "--groups", "2"])
    assert code == common.UNAVAILABLE
    printed = capsys.readouterr().err
    assert "start it with --groups 3 --slaves 0" in printed
    assert "starting" not in printed
