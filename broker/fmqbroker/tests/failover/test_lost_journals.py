"""Members of a group lose their data directories: the group is filled again, or waits."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import fmqclient
from fmqbroker.tests.failover.test_restored_zookeeper import fmq
from fmqbroker.tests.restored_kit import G1, M, Restorable, S, T, restorable
from fmqcore.consume.offsets.side_journal import NAME
from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_state import GroupState, Mode, state_to_json
from fmqcore.zk.layout import state_node
from fmqproto.v1 import admin_pb2

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

VALUES = [b"%d" % n for n in range(20)]


async def store(cluster: Restorable) -> GroupState:
    """Store messages that are acknowledged, and stop all brokers; return the state."""
    async with fmqclient.connect(cluster.url) as client:
        await client.admin().create_topic("salaries", queues=2)
    await cluster.send("salaries", *VALUES)
    state = await cluster.whole()
    await cluster.stop()
    return await cluster.groups.state(G1) or state


def empty(cluster: Restorable, *brokers: BrokerId) -> None:
    """Lose the volumes of these brokers; empty ones replace them."""
    for broker in brokers:
        shutil.rmtree(cluster.brokers[broker].data)


async def waits_for_a_person(cluster: Restorable, broker: BrokerId) -> Epoch:
    """Wait until the broker serves nothing and names the command; return its epoch."""
    command = "`fmq cluster begin-again g1 --epoch {}`"
    status = await cluster.until_status(broker, lambda s: command.format(s.epoch) in s.reason)
    assert (status.permission, status.remedy) == (0, admin_pb2.REMEDY_BEGIN_AGAIN)
    return Epoch(status.epoch)


async def begin_again(cluster: Restorable, epoch: Epoch) -> tuple[int, str]:
    return await fmq(cluster, "cluster", "begin-again", "g1", "--epoch", str(epoch))


async def begin_as_asked(cluster: Restorable, broker: BrokerId) -> Epoch:
    """Begin again as the broker asks; look again if the epoch has moved: a slave has claimed."""
    while True:
        epoch = await waits_for_a_person(cluster, broker)
        code, printed = await begin_again(cluster, epoch)
        if code == 0:
            return epoch
        assert "check it with fmq status" in printed


async def test_an_emptied_group_serves_after_begin_again(tmp_path: Path) -> None:
    async with restorable(tmp_path) as cluster:
        before = await store(cluster)
        empty(cluster, M, S)
        await cluster.start()
        assert await waits_for_a_person(cluster, M) >= before.epoch
        await cluster.until_status(S, lambda s: s.permission == 0)
        await cluster.stop()  # it waits after each restart, in whatever order they start
        await cluster.start(M)
        await waits_for_a_person(cluster, M)
        await cluster.start(S)
        epoch = await begin_as_asked(cluster, M)
        assert (await cluster.whole()).epoch == epoch + 1
        (sent, *_) = await cluster.send("salaries", b"again")
        assert sent.offset == 0
        assert set(await cluster.read("salaries", 1, "readers")) == {b"again"}


async def test_begin_again_waits_for_a_slave_that_starts_later(tmp_path: Path) -> None:
    """The person meant the master's journal: the slave's is not given up unseen."""
    async with restorable(tmp_path) as cluster:
        await store(cluster)
        empty(cluster, M)
        await cluster.start(M)
        await begin_as_asked(cluster, M)
        await cluster.until_status(M, lambda s: "waits to hear every configured slave" in s.reason)
        await cluster.start(S)
        await cluster.whole()
        assert set(await cluster.read("salaries", 20, "readers")) == set(VALUES)


async def test_progress_beyond_a_restored_journal_hides_no_new_message(tmp_path: Path) -> None:
    """A former reader opens the term, over an older copy of that journal."""
    async with restorable(tmp_path) as cluster:
        await store(cluster)
        data = cluster.brokers[S].data
        shutil.copytree(data, older := tmp_path / "older")
        await cluster.start()
        await cluster.whole()
        more = [b"more %d" % number for number in range(20)]
        await cluster.send("salaries", *more)
        await cluster.stop(M)  # the slave serves the reads, and keeps the progress
        assert set(await cluster.read("salaries", 40, "readers")) == {*VALUES, *more}
        await cluster.stop(S)
        shutil.copy(data / NAME, older / NAME)
        shutil.rmtree(data)
        older.rename(data)
        empty(cluster, M)
        state = replace(await cluster.groups.state(G1), master=S)  # it was promoted, and waits
        session = await cluster.groups.session()
        found = await session.get(state_node("c", G1))
        assert found is not None
        await session.set(state_node("c", G1), state_to_json(state), found.version)
        code, printed = await begin_again(cluster, state.epoch)
        assert code == 0, printed
        await cluster.start()
        await cluster.whole()
        new = [b"new %d" % number for number in range(20)]
        await cluster.send("salaries", *new)
        assert set(await cluster.read("salaries", 20, "readers")) == set(new)


async def test_a_restart_after_begin_again_opens_one_term(tmp_path: Path) -> None:
    """ZooKeeper holds the decision: no process has to live on for it."""
    async with restorable(tmp_path) as cluster:
        await store(cluster)
        empty(cluster, M, S)
        await cluster.start()
        await waits_for_a_person(cluster, M)
        await cluster.stop()
        state = await cluster.groups.state(G1)
        code, printed = await begin_again(cluster, state.epoch)
        assert code == 0, printed
        assert (await cluster.groups.state(G1)).mode is Mode.NEW
        await cluster.start(S)  # it cannot take over from a master that has never opened
        await cluster.until_status(S, lambda s: "has never opened" in s.reason)
        await cluster.start(M)
        assert (await cluster.whole()).epoch == state.epoch + 1
        await cluster.send("salaries", *VALUES)
        await cluster.stop()
        await cluster.start()
        await cluster.whole()
        assert set(await cluster.read("salaries", 20, "readers")) == set(VALUES)


@pytest.mark.parametrize("lost", [M, S])
async def test_one_emptied_member_of_two_is_filled_again(tmp_path: Path, lost: BrokerId) -> None:
    async with restorable(tmp_path) as cluster:
        await store(cluster)
        empty(cluster, lost)
        await cluster.start()
        await cluster.whole()
        assert set(await cluster.read("salaries", 20, "readers")) == set(VALUES)


async def test_an_emptied_slave_stays_known_when_its_master_restarts(tmp_path: Path) -> None:
    """Both got the journal of a third member: the slave is not empty any more."""
    async with restorable(tmp_path, brokers=3) as cluster:
        await store(cluster)
        empty(cluster, M, S)
        await cluster.start(M, S)
        await waits_for_a_person(cluster, M)
        await cluster.start(T)
        await cluster.brokers[M].says("suffix_pulled")
        await cluster.until_status(S, lambda s: s.end > 0)
        await cluster.stop(M)
        await cluster.start(M)
        await begin_as_asked(cluster, M)
        await cluster.whole()
        assert set(await cluster.read("salaries", 20, "readers")) == set(VALUES)


async def test_a_disk_that_comes_back_needs_no_person(tmp_path: Path) -> None:
    async with restorable(tmp_path) as cluster:
        await store(cluster)
        kept = cluster.brokers[S].data.rename(tmp_path / "kept")
        empty(cluster, M)
        await cluster.start()
        await waits_for_a_person(cluster, M)
        await cluster.stop(S)
        empty(cluster, S)
        kept.rename(cluster.brokers[S].data)
        await cluster.start(S)
        await cluster.whole()
        assert set(await cluster.read("salaries", 20, "readers")) == set(VALUES)
