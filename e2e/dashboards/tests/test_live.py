"""Every panel of the brokers' dashboards, and every alert about brokers, on a real Prometheus.

Real brokers under load; each alert is caused and seen to fire, and seen silent before. Alerts wait
for `FOR_S` here, in calm times for `CALM_S`. What the operator reports: on kind.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import fmqclient
from e2e.dashboards.alert_causes import causes
from e2e.dashboards.chart import OF_BROKERS, eager_rules, panels
from e2e.dashboards.drawing import draw, series
from e2e.dashboards.prometheus import NEEDED, Prometheus, Target, available, prometheus
from e2e.dashboards.watched_cluster import (
    READERS,
    TOPIC,
    append_in_the_future,
    begin_groups,
    fill,
    join,
    load,
    watched,
)
from fmqcore.policy import AckPolicy, HowMany
from fmqdev.cluster_plan import ClusterOptions

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not available(), reason=NEEDED),
]

FOR_S = 2
CALM_S = 5  # a late scrape on a busy machine is no trouble
ONE = ClusterOptions(groups=1, slaves=1)
ALONE = ClusterOptions(groups=1, slaves=0, policy=AckPolicy(how_many=HowMany.NONE))
OF_OPERATOR = {"FmqOperatorAway"}
"""Alerts that fire where no operator runs."""


@asynccontextmanager
async def scraped(
    folder: Path, targets: Sequence[Target], for_s: int = FOR_S
) -> AsyncIterator[Prometheus]:
    """A Prometheus that has scraped every target, and shows no alert."""
    (folder / "p").mkdir()
    rules = eager_rules(folder / "p" / "rules.yaml", for_s)
    with prometheus(folder / "p", targets, rules) as found:
        names = {target.name for target in targets}
        await found.until(lambda: found.up() >= names, "every broker is scraped")
        yield found


def fires(found: Prometheus, name: str, **labels: str) -> bool:
    return any(labels.items() <= a["labels"].items() for a in found.alerts().get(name, ()))


async def silent(found: Prometheus, *names: str) -> None:
    """Wait until none of them fires, within the usual patience."""
    await found.until(lambda: not found.alerts().keys() & set(names), f"{names} are silent")


async def test_healthy_cluster_then_panels_have_data_and_alerts_rest(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path / "c", ClusterOptions()) as cluster, load(cluster):
        async with scraped(tmp_path, cluster.targets(), CALM_S) as found:
            for board in OF_BROKERS:
                for panel in panels(board):
                    look = partial(found.query, panel.query)
                    await found.until(look, f"{panel.board}: {panel.title} shows something")
                    named = set(re.findall(r"{{(\w+)}}", panel.legend))
                    for result in await asyncio.to_thread(look):
                        assert named <= result["metric"].keys(), panel
            start_s = float(found.query("time()")[1])
            await asyncio.sleep(2 * CALM_S)
            assert set(await asyncio.to_thread(found.alerts)) - OF_OPERATOR == set()
            shown = [
                (p, series(found, p, start_s, start_s + 2 * CALM_S)) for p in panels("overview")
            ]
            assert [panel.title for panel, lines in shown if not lines] == []
    draw("overview", shown, [(1.0, "start")], tmp_path / "overview.png")
    assert (tmp_path / "overview.png").read_bytes().startswith(b"\x89PNG")


@causes("FmqNoSlaveInSync", "FmqPolicyUnmet", "FmqGroupTakesNoWrites")
async def test_a_slave_is_lost_and_then_its_master(tmp_path: Path) -> None:
    async with watched(tmp_path / "c", ONE) as cluster:
        async with scraped(tmp_path, cluster.targets()) as found:
            await silent(found, "FmqNoSlaveInSync", "FmqGroupTakesNoWrites", "FmqPolicyUnmet")
            cluster.kill("g1-1")
            wanted = partial(fires, found, "FmqNoSlaveInSync", cluster="dev", group="g1")
            await found.until(wanted, "the slave is missed")
            wanted = partial(fires, found, "FmqPolicyUnmet", cluster="dev", group="g1")
            await found.until(wanted, "its policy asks for it")
            cluster.start_broker("g1-1")
            await cluster.wait_healthy()
            await silent(found, "FmqNoSlaveInSync")
            cluster.kill("g1-0")
            wanted = partial(fires, found, "FmqGroupTakesNoWrites", group="g1")
            await found.until(wanted, "no broker takes messages")
            served = partial(found.query, 'fmq_serves{operation="read"} == 1')
            await found.until(served, "its slave serves reads")
            await silent(found, "FmqGroupServesNoReads")


@causes("FmqBrokersNotScraped", "FmqGroupTakesNoWrites")
async def test_lone_master_running_but_not_scraped(tmp_path: Path) -> None:
    """The alert that the broker serves nothing fires once it is gone, and not before."""
    async with watched(tmp_path / "c", ONE) as cluster:
        (slave,) = [target for target in cluster.targets() if target.name == "g1-1"]
        async with scraped(tmp_path, [slave]) as found:
            wanted = partial(fires, found, "FmqBrokersNotScraped", cluster="dev", group="g1")
            await found.until(wanted, "the master is missed")
            firing = await asyncio.to_thread(found.alerts)
            assert set(firing) - OF_OPERATOR == {"FmqBrokersNotScraped"}
            cluster.kill("g1-0")
            wanted = partial(fires, found, "FmqGroupTakesNoWrites", group="g1")
            await found.until(wanted, "no broker takes messages")
            await silent(found, "FmqBrokersNotScraped", "FmqGroupServesNoReads")


@causes("FmqSlaveLags")
async def test_a_slave_is_far_behind(tmp_path: Path) -> None:
    async with watched(tmp_path / "c", replace(ALONE, slaves=1)) as cluster:
        async with scraped(tmp_path, cluster.targets()) as found:
            await silent(found, "FmqSlaveLags")
            cluster.pause("g1-1")
            await fill(cluster, 75, 1_000_000)
            wanted = partial(fires, found, "FmqSlaveLags", group="g1", slave="g1-1")
            await found.until(wanted, "it is seen to be behind")
            cluster.resume("g1-1")
            await silent(found, "FmqSlaveLags")


@causes("FmqZooKeeperAway", "FmqGroupServesNoReads", "FmqGroupTakesNoWrites")
async def test_no_zookeeper_and_no_slave_then_no_broker_may_serve(tmp_path: Path) -> None:
    """A master whose slave is away, too, has no broker to grant it a lease."""
    async with watched(tmp_path / "c", ONE) as cluster:
        async with scraped(tmp_path, cluster.targets()) as found:
            await silent(found, "FmqZooKeeperAway", "FmqGroupServesNoReads")
            cluster.kill("zookeeper")
            wanted = partial(fires, found, "FmqZooKeeperAway", broker="g1-0")
            await found.until(wanted, "its absence is seen")
            cluster.kill("g1-1")
            wanted = partial(fires, found, "FmqGroupServesNoReads", group="g1")
            await found.until(wanted, "no broker serves")
            await found.until(partial(fires, found, "FmqGroupTakesNoWrites"), "nor takes messages")


@causes("FmqDiskFull")
async def test_a_disk_is_full(tmp_path: Path) -> None:
    """The broker must keep more space free than any disk has."""
    async with watched(tmp_path / "c", ALONE) as cluster:
        async with scraped(tmp_path, cluster.targets()) as found:
            await silent(found, "FmqDiskFull")
            plan = cluster.brokers["g1-0"]
            script = plan.under[2] + " --set min_free_bytes=1000000000000000"
            plan.under = (*plan.under[:2], script, *plan.under[3:])
            await cluster.restart("g1-0")
            wanted = partial(fires, found, "FmqDiskFull", group="g1", broker="g1-0")
            await found.until(wanted, "it is seen")


@causes("FmqClockInDoubt")
async def test_a_journal_holds_store_times_of_the_future(tmp_path: Path) -> None:
    async with watched(tmp_path / "c", ALONE) as cluster:
        async with scraped(tmp_path, cluster.targets()) as found:
            await silent(found, "FmqClockInDoubt")
            await cluster.stop_broker("g1-0")
            await append_in_the_future(cluster.brokers["g1-0"].data)
            await cluster.restart("g1-0")
            wanted = partial(fires, found, "FmqClockInDoubt", group="g1", broker="g1-0")
            await found.until(wanted, "it is seen")


@causes("FmqStateNearlyFull")
async def test_many_consumer_groups_fill_their_room(tmp_path: Path) -> None:
    """A quarter of a small segment."""
    small = replace(ALONE, settings={"segment_bytes": 65536})
    async with watched(tmp_path / "c", small) as cluster:
        async with scraped(tmp_path, cluster.targets()) as found:
            await silent(found, "FmqStateNearlyFull")
            await begin_groups(cluster, 0.9)
            wanted = partial(fires, found, "FmqStateNearlyFull", group="g1", table="progress")
            await found.until(wanted, "it is seen")


@causes("FmqConsumersLag")
async def test_consumers_are_far_behind(tmp_path: Path) -> None:
    async with watched(tmp_path / "c", replace(ALONE, groups=2)) as cluster:
        await join(cluster)
        async with scraped(tmp_path, cluster.targets()) as found:
            await silent(found, "FmqConsumersLag")
            async with (  # the alert counts only groups that had members
                fmqclient.connect(cluster.url) as client,
                client.consumer(TOPIC, group=READERS, start="earliest"),
            ):
                members = partial(found.query, "fmq_consumer_members > 0")
                await found.until(members, "a member is scraped")
            await fill(cluster, 1_000_100, 1)
            wanted = partial(fires, found, "FmqConsumersLag", topic="orders")
            await found.until(wanted, "they are seen to be behind")


@causes("FmqOrderedUnavailable", "FmqOrderedEndUnknown", "FmqOrderedConsumersBlocked")
async def test_an_ordered_topic_loses_its_sending_group(tmp_path: Path) -> None:
    """Sends wait while no group is whole, then go on without the end of the lost segment."""
    alerts = "FmqOrderedUnavailable", "FmqOrderedEndUnknown", "FmqOrderedConsumersBlocked"
    async with watched(tmp_path / "c", replace(ONE, groups=2)) as cluster:
        async with (
            scraped(tmp_path, cluster.targets()) as found,
            fmqclient.connect(cluster.url) as client,
        ):
            await client.admin().ordered.create("changes", ["g1", "g2"])
            async with client.ordered_producer("changes", name="copier") as producer:
                await producer.send(b"1")
                async with client.consumer("changes", group=READERS, start="earliest") as consumer:
                    assert [m.value for m in await consumer.fetch(1)] == [b"1"]
                await silent(found, *alerts)
                cluster.kill("g2-1")  # so that no other group may take the sends
                for broker in ("g1-0", "g1-1"):  # a slave alive would give the segment's end
                    cluster.kill(broker)
                wanted = partial(fires, found, "FmqOrderedUnavailable", topic="changes")
                await found.until(wanted, "no group may take the sends")
            cluster.start_broker("g2-1")
            async with client.ordered_producer("changes", accept_unknown_end=True) as producer:
                await producer.send(b"2")
                for alert in ("FmqOrderedEndUnknown", "FmqOrderedConsumersBlocked"):
                    wanted = partial(fires, found, alert, topic="changes")
                    await found.until(wanted, "the end of segment 1 is missed")
                for broker in ("g1-0", "g1-1"):
                    cluster.start_broker(broker)
                await cluster.wait_healthy()
                await silent(found, *alerts)


@causes("FmqTwoMasters")
async def test_two_groups_of_one_name(tmp_path: Path) -> None:
    """Each is right in its own ensemble; reported as one group they have two masters."""
    async with watched(tmp_path / "a", ALONE) as one, watched(tmp_path / "b", ALONE) as other:
        targets = [*one.targets("a-"), *other.targets("b-")]
        async with scraped(tmp_path, targets) as found:
            wanted = partial(fires, found, "FmqTwoMasters", cluster="dev", group="g1")
            await found.until(wanted, "two masters are seen")
            other.kill("g1-0")
            await silent(found, "FmqTwoMasters")
