"""`fmq cluster apply` of several groups: all are checked first, and an error names what is done."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from fmqcli.cluster_file import ClusterSpec
from fmqcli.cluster_registry import Changed, Registry, _check_running, changed
from fmqcli.commands.cluster import _apply
from fmqcli.group_removal import GroupRemoval
from fmqcli.tests.test_cluster import TOML, spec_of
from fmqcore.errors import InvalidArgument, Unavailable
from fmqcore.ids import BrokerId, Epoch, GroupName
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, Removal
from fmqcore.zk.group_state import GroupState, Mode

G1, G2 = GroupName("g1"), GroupName("g2")
SERVING = GroupState(
    Mode.MASTER, Epoch(3), BrokerId("g2-0"), BrokerId("g2-0"), frozenset({BrokerId("g2-1")})
)


class Groups:
    """Both groups of the file as they are configured now; g2 is in service with a slave more."""

    def __init__(self, file: ClusterSpec) -> None:
        g1, g2 = file.groups
        slave = replace(g2.members[0], id=BrokerId("g2-1"), address="10.0.0.9:1")
        self.now = {G1: Versioned(g1, 0), G2: Versioned(g2, 0)}
        self.bigger = replace(g2, members=(*g2.members, slave))
        self.written: list[GroupName] = []
        self.meanwhile: set[GroupName] = set()  # changed by another command

    async def groups(self) -> dict[GroupName, Versioned[GroupConfig]]:
        return self.now

    async def group(self, name: GroupName) -> Versioned[GroupConfig]:
        return self.now[name]

    async def state(self, name: GroupName) -> GroupState:
        return SERVING if name == G2 else GroupState()

    async def check(self, config: GroupConfig) -> None:
        _check_running(self.now[config.group].value, config, await self.state(config.group))

    async def write(self, config: GroupConfig, _: int) -> None:
        await self.check(config)
        if config.group in self.meanwhile:
            raise changed(config.group)
        self.written.append(config.group)


def changed_file(tmp_path: Path) -> ClusterSpec:
    """Change both groups: g1's zone, and g2's strict_takeover."""
    text = TOML.replace('zone = "b"', 'zone = "c"')
    return spec_of(tmp_path, text.replace("[groups.g2]", "[groups.g2]\nstrict_takeover = true"))


@pytest.mark.parametrize("dry_run", [False, True])
async def test_refused_group_leaves_the_others_unwritten(tmp_path: Path, dry_run: bool) -> None:
    groups: Any = Groups(spec_of(tmp_path, TOML))
    groups.now[G2] = Versioned(groups.bigger, 0)
    with pytest.raises(InvalidArgument, match="g2-1 is in sync or serves"):
        await _apply(groups, changed_file(tmp_path), dry_run=dry_run)
    assert groups.written == []


async def test_error_names_the_groups_that_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups: Any = Groups(spec_of(tmp_path, TOML))
    groups.meanwhile = {G2}
    with pytest.raises(Changed, match=r"g2 was changed by another .* and is not written"):
        await _apply(groups, changed_file(tmp_path), dry_run=False)
    assert groups.written == [G1]
    message = capsys.readouterr().err
    assert "group g1: g1-1: zone b -> c\n" in message
    assert "stopped at group g2: written are g1; apply again for the rest" in message


async def test_removal_beside_another_command_runs_again(tmp_path: Path) -> None:
    """It has no file that could be compared with ZooKeeper."""
    groups = Groups(spec_of(tmp_path, TOML))
    groups.meanwhile = {G1}
    removal = GroupRemoval(cast(Registry, groups), G1, 0)
    draining = replace(groups.now[G1].value, removal=Removal.DRAINING)
    with pytest.raises(Unavailable, match=r"was changed by another .*: run this again"):
        await removal._put(draining, 0)
