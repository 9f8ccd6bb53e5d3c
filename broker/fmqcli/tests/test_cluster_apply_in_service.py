"""`fmq cluster apply` on a serving group: the file has wishes, ZooKeeper the facts."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fmqcli import common, main
from fmqcli.cluster_file import is_current, version_of
from fmqcli.cluster_registry import registry
from fmqcli.tests.test_cluster import G1, TOML, spec_of
from fmqcore.errors import InvalidArgument
from fmqcore.ids import BrokerId, Epoch
from fmqcore.policy import AckPolicy
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState, Mode, state_to_json
from fmqcore.zk.layout import state_node


async def in_service(zookeeper: str, master: str, slave: str, lost: str = "") -> None:
    """Make g1 serve in epoch 3 with this master, which is also the wanted one."""
    async with registry(zookeeper, "prod") as groups:
        state = GroupState(
            Mode.MASTER, Epoch(3), BrokerId(master), BrokerId(master), frozenset({BrokerId(slave)})
        )
        await groups._coordination.create(state_node("prod", G1), state_to_json(state))
        await groups.request_master(G1, BrokerId(master), BrokerId(lost))


async def config_of_g1(zookeeper: str) -> GroupConfig:
    async with registry(zookeeper, "prod") as groups:
        found = await groups.group(G1)
        assert found is not None
        return found.value


@pytest.mark.processes
def test_apply_after_failover_keeps_master_and_lost_broker(
    tmp_path: Path, zookeeper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Printed before a failover and applied after it, with another change."""
    named = ("-z", zookeeper, "-c", "prod")
    (file := tmp_path / "cluster.toml").write_text(TOML.partition("[groups.g2]")[0])
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    capsys.readouterr()
    assert main.run(("cluster", "show", "-o", "json", *named)) == 0
    shown = json.loads(capsys.readouterr().out)
    asyncio.run(in_service(zookeeper, "g1-1", "g1-0", lost="g1-0"))
    shown["groups"]["g1"]["strict_takeover"] = True
    (printed := tmp_path / "shown.json").write_text(json.dumps(shown))

    code = main.run(("cluster", "apply", "-f", str(printed), *named))
    message = capsys.readouterr().err
    assert (code, "fmq failover g1 --to g1-0" in message) == (0, True), message
    assert "group g1: group: strict_takeover False -> True" in message
    after = asyncio.run(config_of_g1(zookeeper))
    assert (after.master, after.declared_lost, after.strict_takeover) == ("g1-1", "g1-0", True)

    # The first file names no master: nothing to report. The printed one is stale now.
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    assert "fmq failover" not in capsys.readouterr().err
    assert main.run(("cluster", "apply", "-f", str(printed), *named)) == 0
    assert main.run(("broker", "permit", "g1-1", "FULL", *named)) == 0
    assert main.run(("cluster", "apply", "-f", str(printed), *named)) == common.USAGE


@pytest.mark.processes
def test_apply_does_not_remove_the_wanted_master(
    tmp_path: Path, zookeeper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("-z", zookeeper, "-c", "prod")
    members = """members = [
  {id = "g1-0", address = "10.0.0.1:9876", zone = "a"},
  {id = "g1-1", address = "10.0.0.2:9876", zone = "b"},
]
"""
    (file := tmp_path / "cluster.toml").write_text(f"[groups.g1]\n{members}")
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    asyncio.run(in_service(zookeeper, "g1-1", "g1-0"))
    file.write_text(f"[groups.g1]\n{members}".replace("g1-1", "g1-2"))
    capsys.readouterr()
    code = main.run(("cluster", "apply", "-f", str(file), *named))
    message = capsys.readouterr().err
    assert code == common.USAGE, message
    assert "the file lacks g1-1, which is wanted as its master" in message
    assert [m.id for m in asyncio.run(config_of_g1(zookeeper)).members] == ["g1-0", "g1-1"]


@pytest.mark.processes
def test_apply_checks_the_policy_with_the_master_it_keeps(
    tmp_path: Path, zookeeper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The policy needs a slave in the master's own zone: g1-0 has one, g1-2 has none."""
    named = ("-z", zookeeper, "-c", "prod")
    (file := tmp_path / "cluster.toml").write_text("""
[groups.g1]
members = [
  {id = "g1-0", address = "10.0.0.1:9876", zone = "a"},
  {id = "g1-1", address = "10.0.0.2:9876", zone = "a"},
  {id = "g1-2", address = "10.0.0.3:9876", zone = "b"},
]
""")
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    asyncio.run(in_service(zookeeper, "g1-2", "g1-0"))
    file.write_text(file.read_text() + 'policy = {how_many = "zones"}\n')
    capsys.readouterr()
    code = main.run(("cluster", "apply", "-f", str(file), *named))
    message = capsys.readouterr().err
    assert (code, "never be met with g1-2 as master" in message) == (common.USAGE, True), message
    assert asyncio.run(config_of_g1(zookeeper)).policy == AckPolicy()


@pytest.mark.processes
def test_the_master_is_a_wish_until_the_first_epoch(
    tmp_path: Path, zookeeper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ("-z", zookeeper, "-c", "prod")
    (file := tmp_path / "cluster.toml").write_text(TOML)
    assert main.run(("cluster", "apply", "-f", str(file), *named)) == 0
    capsys.readouterr()
    assert main.run(("cluster", "show", "-o", "json", *named)) == 0
    shown = capsys.readouterr().out
    (old := tmp_path / "old.json").write_text(shown)
    (new := tmp_path / "new.json").write_text(shown.replace('"master": "g1-0"', '"master": "g1-1"'))
    assert main.run(("cluster", "apply", "-f", str(new), *named)) == 0
    assert "group g1: group: master g1-0 -> g1-1" in capsys.readouterr().err
    assert main.run(("cluster", "apply", "-f", str(old), *named)) == common.USAGE
    assert asyncio.run(config_of_g1(zookeeper)).master == "g1-1"


def test_a_version_counts_as_a_number_of_the_node_too(tmp_path: Path) -> None:
    """As printed by `fmq cluster show` before it distinguished wishes from facts."""
    found = Versioned(spec_of(tmp_path, TOML).groups[0], 4)
    assert is_current(4, found, in_service=True)
    assert not is_current(3, found, in_service=True)
    printed = version_of(found.value)
    moved = replace(found, value=replace(found.value, master=BrokerId("g1-1")))
    assert is_current(printed, moved, in_service=True)
    assert not is_current(printed, moved, in_service=False)
    strict = replace(found, value=replace(found.value, strict_takeover=True))
    assert not is_current(printed, strict, in_service=True)
    with pytest.raises(InvalidArgument, match=r"groups\.g1\.version: 'x' is none that"):
        spec_of(tmp_path, TOML.replace("[groups.g1]", '[groups.g1]\nversion = "x"'))
