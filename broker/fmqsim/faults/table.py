"""The weight and the targets of each fault: the table behind `faults/schedule.py`."""

from typing import Final

from e2e.history.cluster_events import FaultKind
from fmqsim.faults import acts, power
from fmqsim.faults import disk_damage as damage
from fmqsim.faults.api import Entry

_ANY: Final = ("reader", "master", "slave", "any")
_SERVING: Final = ("reader", "reader", "master")

TABLE: Final = (
    Entry("kill", FaultKind.KILL, 4, ("reader", *_ANY), acts.kill),
    Entry("stop", FaultKind.STOP, 2, ("reader", *_ANY), acts.stop),
    Entry("cut the power", FaultKind.POWER, 2, _ANY, power.cut_power),
    Entry("cut the group's power", FaultKind.POWER, 1, _ANY, power.cut_power_of_group),
    Entry("cut all power", FaultKind.POWER, 0.7, _ANY, power.cut_power_of_all),
    Entry("cut the power at a step", FaultKind.POWER, 2, _ANY, power.cut_power_at_step),
    Entry("pause", FaultKind.PAUSE, 3, ("reader", *_ANY), acts.pause),
    Entry("wedge", FaultKind.WEDGE, 2, ("reader", *_ANY), acts.wedge),
    Entry("kill client", FaultKind.CLIENT, 1.5, (), acts.kill_client),
    Entry("pause client", FaultKind.CLIENT, 1, (), acts.pause_client),
    Entry("cut from zookeeper", FaultKind.CUT, 2, _ANY, acts.cut_from_zookeeper),
    Entry("isolate", FaultKind.CUT, 2, ("reader", *_ANY), acts.isolate),
    Entry("expire", FaultKind.EXPIRE, 1.5, _ANY, acts.expire),
    Entry("lose zookeeper's answer", FaultKind.ZOOKEEPER, 1.5, _SERVING, acts.lose_answer),
    Entry("stop zookeeper", FaultKind.ZOOKEEPER, 1, (), acts.stop_zookeeper),
    Entry("late zookeeper", FaultKind.ZOOKEEPER, 1, (), acts.late_zookeeper),
    Entry("cut from group", FaultKind.CUT, 3, ("slave", "master", "any"), acts.cut_from_group),
    Entry("cut from clients", FaultKind.CUT, 1, _SERVING, acts.cut_from_clients),
    Entry("reset", FaultKind.RESET, 1.5, _ANY, acts.reset),
    Entry("lose reply", FaultKind.RESET, 1.5, _ANY, acts.lose_reply),
    Entry("stall", FaultKind.STALL, 1.5, _ANY, acts.stall),
    Entry("slow network", FaultKind.DELAY, 1, _ANY, acts.slow_network),
    Entry("failing fsync", FaultKind.DISK_ERROR, 1.5, _ANY, acts.failing_sync),
    Entry("failing write", FaultKind.DISK_ERROR, 0.7, _ANY, acts.failing_write),
    Entry("flip a bit", FaultKind.DISK_DAMAGE, 0.5, _ANY, damage.flip_a_bit),
    Entry("empty the disk", FaultKind.DISK_EMPTY, 0.5, _ANY, damage.empty_the_disk),
    Entry("full disk", FaultKind.DISK_FULL, 1, _ANY, acts.full_disk),
    Entry("slow disk", FaultKind.DISK_SLOW, 1.5, _ANY, acts.slow_disk),
    Entry("set clock", FaultKind.CLOCK, 1, _ANY, acts.set_clock),
    Entry("permit", FaultKind.OPERATOR, 1.5, _ANY, acts.permit),
    Entry("remove member", FaultKind.OPERATOR, 0.8, ("slave",), acts.remove_member),
)
TAKEOVERS: Final = frozenset({"kill", "stop", "cut the power", "pause", "wedge", "isolate"})
"""Faults that make another broker the reader, if they last."""
