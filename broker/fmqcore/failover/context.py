"""The input of the failover table: a case, and the guards that ask questions about it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass

from fmqcore.failover.evidence import Evidence, Params, Remedy
from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState, Mode


@dataclass(frozen=True, slots=True)
class Case:
    """The input of one decision."""

    me: BrokerId
    config: GroupConfig
    state: GroupState
    evidence: Evidence
    now_ms: int
    params: Params


@dataclass(frozen=True, slots=True)
class Guard:
    """A named question about a case, and the sentence to report while it does not hold."""

    name: str
    holds: Callable[[Case], bool]
    unmet: str
    remedy: Remedy = Remedy.NONE  # if `unmet` names it


def next_epoch(case: Case) -> Epoch:
    """Return the epoch of the next term: one more, or for a NEW group past its journal's epoch.

    A NEW group has records if ZooKeeper lost its data; their epochs must not be reused.
    """
    if case.state.mode is Mode.NEW and case.evidence.has_records:
        return Epoch(max(case.state.epoch, case.evidence.journal_epoch) + 1)
    return Epoch(case.state.epoch + 1)


def newer_journals(case: Case) -> list[BrokerId]:
    """Return members, this broker included, whose journals have an epoch that the state lacks.

    A member counts while it is live, and afterwards if this process has seen it so: that it ends
    does not make an older state the newest one.
    The master may have the next epoch: its EPOCH batch is durable before the state is set, and
    leaves the master only afterwards. Without a session neither state nor members are known.
    """
    evidence, state = case.evidence, case.state
    if not evidence.session_live:
        return []
    epochs = dict(evidence.newer_gone)
    epochs |= {broker: live.epoch for broker, live in evidence.live.items()}
    epochs[case.me] = evidence.journal_epoch
    master = state.master or case.config.master
    return [
        m.id
        for m in case.config.members
        if epochs.get(m.id, 0) > (next_epoch(case) if m.id == master else state.epoch)
    ]
