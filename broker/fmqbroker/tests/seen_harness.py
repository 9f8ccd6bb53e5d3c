"""A rig's parts as metrics and progress queries read them."""

from types import SimpleNamespace
from typing import Any

from fmqbroker.app.health import Running
from fmqbroker.produce.intake import Intake
from fmqbroker.tests.consume_harness import ME, Rig
from fmqcore.batch.offset_entry import OffsetKey
from fmqcore.ids import GroupName
from fmqcore.zk.group_config import GroupConfig, Member


def running_of(rig: Rig) -> Running:
    """Return what metrics read, without replication."""
    none: Any = ()  # no ordered topics
    nothing: Any = SimpleNamespace(links={}, sent_bytes=0, refused=0, forgotten=0)
    group: Any = rig.group
    group.connected = True
    group.config = GroupConfig(GroupName("g1"), ME, (Member(ME, "a:1"),))
    view: Any = rig.cluster
    intake = Intake(rig.gate, rig.commit, rig.journal)
    return Running(
        me=ME,
        gate=rig.gate,
        group=group,
        journal=rig.journal,
        commit=rig.commit,
        view=view,
        offsets=rig.offsets,
        fetch=rig.fetch,
        master=nothing,
        slave=nothing,
        segments=nothing,
        clock=rig.clock,
        intake=intake,
        idle_groups=nothing,
        ordered=none,
    )


def known(rig: Rig) -> list[OffsetKey]:
    """Return the sorted keys of the store's progress, without deleted ones."""
    offsets = rig.offsets
    found = [(g, t) for t in offsets.topics() for g in offsets.groups_in(t)]
    return sorted(OffsetKey(g, t, q) for g, t in found for q in offsets.queues_of(g, t))
