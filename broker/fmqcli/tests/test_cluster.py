"""`fmq cluster` and `fmq broker permit`: invalid files, and two writers on one ZooKeeper."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqcli import common, main
from fmqcli.cluster_file import ClusterSpec, differences
from fmqcli.cluster_registry import Registry, registry
from fmqcli.commands import failover
from fmqcore.errors import InvalidArgument, NotFound
from fmqcore.ids import BrokerId, Epoch, GroupName, Permission
from fmqcore.policy import AckPolicy, Flush, HowMany
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState, Mode, state_to_json
from fmqcore.zk.layout import state_node

G1 = GroupName("g1")
TOML = """
cluster = "prod"
policy = {how_many = "all"}

[groups.g1]
members = [
  {id = "g1-0", address = "10.0.0.1:9876", zone = "a"},
  {id = "g1-1", address = "10.0.0.2:9876", zone = "b", permission = "READ"},
]

[groups.g2]
master = "g2-0"
members = [{id = "g2-0", address = "[::1]:9877"}]
policy = {flush = "os-cache", how_many = "none"}
"""


def spec_of(tmp_path: Path, text: str, name: str = "cluster.toml") -> ClusterSpec:
    path = tmp_path / name
    path.write_text(text)
    return ClusterSpec(path)


def test_a_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, TOML)
    one, two = spec.groups
    assert (spec.cluster, one.master, two.master) == ("prod", "g1-0", "g2-0")
    assert [m.permission for m in one.members] == [Permission.FULL, Permission.READ]
    assert one.policy == AckPolicy(how_many=HowMany.ALL)
    assert two.policy == AckPolicy(Flush.OS_CACHE, how_many=HowMany.NONE)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[groups.g2]", "[groups.'g 2']", "groups.g 2: is no name: 1 to 128 letters"),
        ("zone", "zome", "groups.g1.members.0.zome: there is no field of that name"),
        ('id = "g1-0", ', "", "groups.g1.members.0.id: must be given"),
        ("10.0.0.2:9876", "10.0.0.2", "members.1.address: '10.0.0.2' is not host:port"),
        ("10.0.0.2:9876", "10.0.0.2:99999", "members.1.address: '10.0.0.2:99999' is not host:port"),
        ("10.0.0.2:9876", "fd00::2:9876", "'fd00::2:9876' is not host:port"),
        ("10.0.0.2:9876", "my host:9876", "'my host:9876' is not host:port"),
        ("10.0.0.2:9876", "h:" + "9" * 5000, "is not host:port"),
        ("10.0.0.2", "10.0.0.1", "the address 10.0.0.1:9876 is given twice"),
        ('id = "g2-0"', 'id = "g1-0"', "groups.g2.master: 'g2-0' is no member; g1-0 are"),
        ('id = "g1-1"', 'id = "g1-0"', "groups.g1.members: g1-0 is listed twice"),
        ('"READ"', '"read-only"', "'read-only' is none of FULL, WRITE, READ, NONE"),
        ('"os-cache"', '"never"', "groups.g2.policy.flush: Input should be 'os-cache'"),
        ('how_many = "none"', 'how_many = "one"', "groups.g2.policy: can never be met"),
        ("[groups.g2]", "[groups.g2", "cluster.toml: "),
    ],
)
def test_mistake_is_reported_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in TOML
    with pytest.raises(InvalidArgument) as caught:
        spec_of(tmp_path, TOML.replace(old, new, 1))
    assert str(caught.value).startswith(str(tmp_path / "cluster.toml"))
    assert message in str(caught.value)


def test_a_file_of_another_kind_or_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"ends in \.toml or \.json"):
        spec_of(tmp_path, TOML, "cluster.yaml")
    with pytest.raises(InvalidArgument, match="No such file"):
        ClusterSpec(tmp_path / "none.toml")


def test_changes_are_reported(tmp_path: Path) -> None:
    old = spec_of(tmp_path, TOML).groups[0]
    slave = old.members[1]
    new = replace(
        old,
        members=(old.members[0], replace(slave, zone="c"), replace(slave, id=BrokerId("g1-2"))),
        policy=AckPolicy(),
    )
    assert differences(old, new) == [
        "g1-1: zone b -> c",
        "+ g1-2 at 10.0.0.2:9876",
        "policy: how_many all -> one",
    ]
    assert differences(new, old)[1] == "- g1-2"
    assert differences(old, old) == []


async def test_unknown_group_is_reported_before_its_master() -> None:
    class NoRegistry:
        async def state(self, _: object) -> GroupState:
            return GroupState()

        async def group(self, _: object) -> None:
            return None

        async def request_master(self, *_: object) -> GroupState:
            raise NotFound("cluster c has no group 'g9'")

    no_registry: Any = NoRegistry()
    with pytest.raises(NotFound, match="no group"):
        await failover._move(no_registry, GroupName("g9"), BrokerId("b"), BrokerId("a"), 0)


@pytest.mark.processes
def test_apply_show_permit_and_a_second_writer(
    tmp_path: Path,
    zookeeper: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fmq(*arguments: str) -> tuple[int, Any, str]:
        code = main.run(arguments)
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if captured.out else None, captured.err

    file = tmp_path / "cluster.toml"
    file.write_text(TOML)
    at = ("-z", zookeeper)
    named = (*at, "-c", "prod")
    code, _, err = fmq("cluster", "apply", "-f", str(file), "--dry-run", *at)
    assert (code, "group g1: new" in err) == (0, True)
    assert fmq("cluster", "show", "-o", "json", *named)[1]["groups"] == {}
    assert fmq("cluster", "apply", "-f", str(file), *at)[0] == 0
    assert "group g1: no change" in fmq("cluster", "apply", "-f", str(file), *at)[2]

    shown = fmq("cluster", "show", "-o", "json", *named)[1]
    assert shown["groups"]["g1"]["members"][1]["permission"] == "READ"
    code, _, err = fmq("broker", "permit", "g1-1", "full", *named)
    assert (code, err) == (0, "fmq: g1-1: permission READ -> FULL\n")
    assert fmq("broker", "permit", "g1-1", "FULL", *named)[2].endswith("FULL already\n")
    code, _, err = fmq("broker", "permit", "g1-9", "FULL", *named)
    assert (code, "there are: g1-0, g1-1, g2-0" in err) == (1, True)

    # A file shown before the permission changed may not undo the change.
    stale = tmp_path / "stale.json"
    stale.write_text(json.dumps(shown))
    code, _, err = fmq("cluster", "apply", "-f", str(stale), *at)
    assert (code, "was changed by another command" in err) == (common.USAGE, True)
    shown = fmq("cluster", "show", "-o", "json", *named)[1]
    assert shown["groups"]["g1"]["members"][1]["permission"] == "FULL"
    stale.write_text(json.dumps(shown))
    assert fmq("cluster", "apply", "-f", str(stale), *at)[0] == 0

    file.write_text(TOML.partition("[groups.g2]")[0].replace("g1", "g3"))
    code, _, err = fmq("cluster", "apply", "-f", str(file), *at)
    assert (code, "belongs to another group" in err) == (common.USAGE, True)
    assert fmq("cluster", "show", *at)[0] == common.USAGE
    assert fmq("cluster", "show", "-c", "prod")[0] == common.USAGE


async def with_registry(
    zookeeper: str, tmp_path: Path, work: Callable[[Registry, GroupConfig], Awaitable[None]]
) -> None:
    config = spec_of(tmp_path, TOML).groups[0]
    async with registry(zookeeper, "prod") as groups:
        await groups.write(config, -1)
        await work(groups, config)


@pytest.mark.processes
async def test_reading_command_creates_no_root(zookeeper: str) -> None:
    """A mistyped root would stay for ever, and hide the intended one."""
    server, _, root = zookeeper.partition("/")
    async with registry(zookeeper, "prod") as groups:
        assert await groups.groups() == {}
    session = ZooKeeperSession(server, timeout_ms=10_000)
    await session.start(20)
    try:
        assert root not in await session.children("/")
    finally:
        await session.close()


@pytest.mark.processes
async def test_two_writers_do_not_overwrite_each_other(zookeeper: str, tmp_path: Path) -> None:
    async def work(groups: Registry, config: GroupConfig) -> None:
        with pytest.raises(InvalidArgument, match="changed by another command"):
            await groups.write(config, -1)
        await groups.write(replace(config, strict_takeover=True), 0)
        with pytest.raises(InvalidArgument, match="changed by another command"):
            await groups.write(config, 0)

        def zone(broker: str, to: str) -> Callable[[GroupConfig], GroupConfig]:
            return lambda c: replace(
                c, members=tuple(replace(m, zone=to) if m.id == broker else m for m in c.members)
            )

        edits = [groups.edit(BrokerId(b), zone(b, f"new {b}")) for b in ("g1-0", "g1-1")]
        await asyncio.gather(*edits)
        now = await groups.group(G1)
        assert now is not None
        assert [m.zone for m in now.value.members] == ["new g1-0", "new g1-1"]

    await with_registry(zookeeper, tmp_path, work)


@pytest.mark.processes
async def test_changes_refused_for_a_serving_group(zookeeper: str, tmp_path: Path) -> None:
    async def work(groups: Registry, config: GroupConfig) -> None:
        master, slave = config.members
        state = GroupState(Mode.MASTER, Epoch(3), master.id, master.id, frozenset({slave.id}))
        await groups._coordination.create(state_node("prod", G1), state_to_json(state))
        with pytest.raises(InvalidArgument, match="mastership"):
            await groups.write(replace(config, master=slave.id), 0)
        with pytest.raises(InvalidArgument, match="mastership"):
            await groups.check(replace(config, master=slave.id))
        alone = replace(config, members=(master,), policy=AckPolicy(how_many=HowMany.NONE))
        with pytest.raises(InvalidArgument, match="g1-1 is in sync or serves"):
            await groups.write(alone, 0)
        out = state_to_json(replace(state, isr=frozenset()))
        await groups._coordination.set(state_node("prod", G1), out, 0)
        await groups.write(alone, 0)

    await with_registry(zookeeper, tmp_path, work)


@pytest.mark.processes
def test_show_output_restores_an_empty_ensemble(
    tmp_path: Path, zookeeper: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """ZooKeeper lost its data: the file printed before is applied, versions and all."""
    lost, new = ("-z", zookeeper, "-c", "prod"), ("-z", f"{zookeeper}b", "-c", "prod")
    file, printed = tmp_path / "cluster.toml", tmp_path / "shown.json"
    file.write_text(TOML)
    assert main.run(("cluster", "apply", "-f", str(file), *lost)) == 0
    assert main.run(("broker", "permit", "g1-1", "FULL", *lost)) == 0
    capsys.readouterr()
    assert main.run(("cluster", "show", "-o", "json", *lost)) == 0
    printed.write_text(capsys.readouterr().out)
    assert json.loads(printed.read_text())["groups"]["g1"]["version"].startswith("wishes-")
    code = main.run(("cluster", "apply", "-f", str(printed), *new))
    assert code == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main.run(("cluster", "show", "-o", "json", *new)) == 0
    assert list(json.loads(capsys.readouterr().out)["groups"]) == ["g1", "g2"]


def test_a_file_of_another_cluster_than_asked_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any connection: there is no ZooKeeper at that address."""
    (file := tmp_path / "staging.toml").write_text(TOML.replace('"prod"', '"staging"'))
    monkeypatch.setenv("FMQ_CLUSTER", "prod")
    code = main.run(("cluster", "apply", "-f", str(file), "-z", "127.0.0.1:1"))
    message = capsys.readouterr().err
    assert (code, "cluster staging, but --cluster or FMQ_CLUSTER names prod" in message) == (
        common.USAGE,
        True,
    )


@pytest.mark.processes
async def test_group_starts_again_above_its_epoch(zookeeper: str) -> None:
    session = ZooKeeperSession(zookeeper, timeout_ms=10_000)
    await session.start(30)
    state = GroupState(Mode.MASTER, Epoch(7), BrokerId("g1-1"), isr=frozenset({BrokerId("g1-0")}))
    await session.create(state_node("prod", G1), state_to_json(state), make_parents=True)
    await session.close()
    async with registry(zookeeper, "prod") as groups:
        with pytest.raises(InvalidArgument, match="is in epoch 7, not 6"):
            await groups.begin_again(G1, at=6)
        assert await groups.state(G1) == state
        after = await groups.begin_again(G1, at=7)
        assert await groups.state(G1) == after
        assert (after.mode, after.epoch, after.master) == (Mode.NEW, 7, "g1-1")
        with pytest.raises(NotFound, match="it is new"):
            await groups.begin_again(GroupName("g2"), at=1)
