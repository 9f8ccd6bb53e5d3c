"""The snapshots of a rig, for metrics and calls, and the keys of stored progress."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from fmqbroker.admin.served_periods import ServedPeriods
from fmqbroker.admin.snapshot_source import SnapshotSource
from fmqbroker.produce.intake import Intake
from fmqbroker.replication.view import LinkView, UpstreamView
from fmqbroker.tests.consume_harness import ME, Rig
from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.ids import BrokerId, GroupName
from fmqcore.zk.group_config import GroupConfig, Member
from fmqport.clock import Clock


def snapshots_of(
    rig: Rig,
    *,
    links: Mapping[BrokerId, LinkView] | None = None,
    clock: Clock | None = None,
    slaves: Sequence[Member] = (),
) -> SnapshotSource:
    """Return where the rig's snapshots come from, with `links` for all replication."""
    none: Any = ()  # no ordered topics
    others: Any = SimpleNamespace(
        links={} if links is None else links, sent_bytes=0, refused=0, forgotten=0,
        upstream=UpstreamView(),
    )  # fmt: skip
    group: Any = rig.group
    group.connected, group.standing = True, 1
    group.config = GroupConfig(GroupName("g1"), ME, (Member(ME, "a:1"), *slaves))
    view: Any = rig.cluster
    intake, clock = Intake(rig.gate, rig.commit, rig.journal), clock or rig.clock
    return SnapshotSource(
        settings=rig.settings,
        clock=clock,
        started_ms=clock.monotonic_ms(),
        gate=rig.gate,
        group=group,
        journal=rig.journal,
        commit=rig.commit,
        view=view,
        offsets=rig.offsets,
        fetch=rig.fetch,
        master=others,
        slave=others,
        segments=others,
        intake=intake,
        idle_groups=others,
        periods=ServedPeriods(ME, clock, rig.gate, intake, group, others, others),
        ordered=none,
    )


def known(rig: Rig) -> list[OffsetKey]:
    """Return the sorted keys of the store's progress, without deleted ones."""
    offsets = rig.offsets
    found = [(g, t) for t in offsets.topics() for g in offsets.groups_in(t)]
    return sorted(OffsetKey(g, t, q) for g, t in found for q in offsets.queues_of(g, t))
