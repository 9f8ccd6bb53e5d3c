"""A group's nodes on a real ZooKeeper: deleted by version, and not restored by a broker."""

import pytest

from fmqcore.errors import Unavailable
from fmqcore.ids import BrokerId, GroupName
from fmqcore.zk import layout
from fmqcore.zk.group_config import GroupConfig, Member, config_to_json
from fmqcore.zk.group_state import GroupState, state_to_json
from fmqcore.zk.removed_groups import removed_to_json
from fmqport.coordination import Coordination, NoNode
from fmqport.group_nodes import create_group, delete_group, make_live_parent, was_removed
from fmqport.tests.coordination_kit import Harness

pytestmark = pytest.mark.processes

G1, ME = GroupName("g1"), BrokerId("g1-0")
CONFIG = GroupConfig(G1, ME, (Member(ME, "h:1"),))
ROOT = layout.group_node("c", G1)
LIVE = layout.live_broker_node("c", G1, ME)


async def served(session: Coordination) -> None:
    """Set up a configured group with a state and a broker's live node."""
    await create_group(session, "c", CONFIG)
    await session.create(layout.state_node("c", G1), state_to_json(GroupState()))
    assert await make_live_parent(session, "c", G1)


async def test_a_deleted_group_leaves_its_name_alone(harness: Harness) -> None:
    one = await harness.session()
    await served(one)
    assert not await was_removed(one, "c", G1)
    await delete_group(one, "c", G1, 0)
    assert await one.children(layout.groups_node("c")) == []
    node = await one.get(layout.groups_node("c"))
    assert node is not None
    assert node.data == removed_to_json([G1])
    assert await was_removed(one, "c", G1)
    assert not await was_removed(one, "c", GroupName("g2"))


async def test_another_version_and_a_live_broker_are_refused(harness: Harness) -> None:
    one, two = await harness.session(), await harness.session()
    await served(one)
    await two.create(LIVE, b"{}", ephemeral=True)
    with pytest.raises(Unavailable, match="its broker g1-0 still lives: stop it first"):
        await delete_group(one, "c", G1, 0)
    await two.delete(LIVE)
    await one.set(layout.config_node("c", G1), config_to_json(CONFIG), 0)
    for version in (0, -1):
        with pytest.raises(Unavailable, match="was changed by another writer"):
            await delete_group(one, "c", G1, version)
    assert await one.children(ROOT) == ["config", "live", "state"]
    await delete_group(one, "c", G1, 1)
    assert await one.get(ROOT) is None


@pytest.mark.parametrize("left", [(), ("state",), ("live", "state")])
async def test_interrupted_deletion_resumes(harness: Harness, left: tuple[str, ...]) -> None:
    one = await harness.session()
    await served(one)
    await one.set(layout.groups_node("c"), removed_to_json([G1]), -1)
    for name in {"config", "live", "state"} - set(left):
        await one.delete(f"{ROOT}/{name}")
    assert not await make_live_parent(one, "c", G1)
    assert await one.children(ROOT) == list(left), "a broker adds nothing"
    await delete_group(one, "c", G1, -1)
    assert await one.get(ROOT) is None


async def test_recreated_group_has_nothing_of_the_removed_one(harness: Harness) -> None:
    one = await harness.session()
    await served(one)
    await one.set(layout.groups_node("c"), removed_to_json([G1]), -1)
    await one.delete(layout.config_node("c", G1))
    await create_group(one, "c", CONFIG)
    assert await one.children(ROOT) == ["config"]
    node = await one.get(layout.groups_node("c"))
    assert node is not None
    assert node.data == b""
    assert await make_live_parent(one, "c", G1)


async def test_a_broker_stands_in_an_ensemble_that_lost_its_data(harness: Harness) -> None:
    """The group was not removed: there is no note, and no group has a configuration."""
    one = await harness.session()
    assert await make_live_parent(one, "c", G1)
    await one.create(LIVE, b"{}", ephemeral=True)
    assert await one.children(ROOT) == ["live"]


async def test_a_group_deleted_just_now_gets_no_live_node(harness: Harness) -> None:
    """Between the read of the configuration and the creation: no parent is created for it."""
    one = await harness.session()
    await served(one)

    class Late:
        """Delete the group after its configuration was read."""

        def __getattr__(self, name: str) -> object:
            return getattr(one, name)

        async def get(self, path: str, *, synced: bool = False) -> object:
            found = await one.get(path, synced=synced)
            await delete_group(one, "c", G1, 0)
            return found

    with pytest.raises(NoNode):
        await make_live_parent(Late(), "c", G1)  # type: ignore[arg-type]
    assert await one.get(ROOT) is None


@pytest.mark.parametrize("garbage", [b"7", b"{", b'{"removed": [7]}', b"\xff"])
async def test_garbage_in_the_note_is_reported_and_kept(harness: Harness, garbage: bytes) -> None:
    one = await harness.session()
    await served(one)
    await one.set(layout.groups_node("c"), garbage, -1)
    with pytest.raises(Unavailable, match="/fmq/c/groups in ZooKeeper does not decode"):
        await delete_group(one, "c", G1, 0)
    assert await one.children(ROOT) == ["config", "live", "state"]
