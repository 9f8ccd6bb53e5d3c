"""What the failover table is asked: a case, and the shape of a question about it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from fmqcore.failover.evidence import Evidence, Params
from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState, Mode


@dataclass(frozen=True, slots=True)
class Case:
    """One decision's input."""

    me: BrokerId
    config: GroupConfig
    state: GroupState
    evidence: Evidence
    now_ms: int
    params: Params


@dataclass(frozen=True, slots=True)
class Guard:
    """A question about a case."""

    name: str
    holds: Callable[[Case], bool]
    unmet: str


def next_epoch(case: Case) -> Epoch:
    """The epoch of the next term: one more. A NEW group also passes a journal that has records.

    (Those are left from a ZooKeeper whose data was lost: the number must not be given twice.)
    """
    if case.state.mode is Mode.NEW and case.evidence.has_records:
        return Epoch(max(case.state.epoch, case.evidence.journal_epoch) + 1)
    return Epoch(case.state.epoch + 1)


def newer_members(case: Case) -> list[BrokerId]:
    """Other members that are there, and whose journals have an epoch above the state's."""
    live, epoch = case.evidence.live, case.state.epoch
    others = (m.id for m in case.config.members if m.id != case.me)
    return [b for b in others if b in live and live[b].epoch > epoch]
