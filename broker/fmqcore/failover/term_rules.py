"""Small pure rules that the machine and the shell share: terms, grants, claimants (DESIGN §6).

A *tenure* is the right to serve one epoch: only who set the epoch itself has it, and only for as
long as nobody can have claimed unseen. A claim needs the holder's live node to be gone, so a
tenure is bound to one standing of that node. When it stands anew (a new session, or it had been
taken away) the tenure goes on only if, after it stood, every in-sync slave was still bound by a
grant: then no claim can be under way that looked while the node was gone. Otherwise the holder
opens a new term, and the compare-and-set decides.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from fmqcore.failover.evidence import Link
from fmqcore.ids import BrokerId, Epoch, Permission, Position
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.live_broker import LiveBroker

FOREVER: Final = 1 << 62
"""Later than any clock."""


class Tenure(NamedTuple):
    """The term that I opened, and the number of the standing live node that protects it."""

    epoch: Epoch
    standing: int


def after_announce(tenure: Tenure | None, standing: int, *, granted_now: bool) -> Tenure | None:
    """What is left of a tenure once my live node stands (again).

    `granted_now`: at this moment, after the node stood, every in-sync slave is bound by a grant
    to me as master (never true for a reader).
    """
    # F13: in a gap of the node somebody may have claimed, so the term is over unless nobody could.
    if tenure is None or tenure.standing == standing:
        return tenure
    return Tenure(tenure.epoch, standing) if granted_now else None


def granted_until(isr: Iterable[BrokerId], links: Mapping[BrokerId, Link]) -> int:
    """Until when every member of `isr` is bound. An empty set is unanimous."""
    # F5: every member, not any: one that did not grant may claim.
    return min((links.get(b, Link()).lease_until_ms for b in isr), default=FOREVER)


def promise_ms(grant_ms: int) -> int:
    """How long a slave keeps a promise that it grants for `grant_ms`: the clocks may differ."""
    return grant_ms + grant_ms // 16


def record_term(state: GroupState) -> Epoch:
    """The slave-consume term whose record is to be handed over; 0 = none."""
    if state.mode is Mode.SLAVE_CONSUME:
        return state.epoch
    return Epoch(state.epoch - 1) if state.mode is Mode.HANDOVER else Epoch(0)


def is_claim(state: GroupState, epoch: Epoch) -> bool:
    """That number certainly belongs to a takeover: no master ever opened a term of it."""
    taken_over = state.mode in (Mode.SLAVE_CONSUME, Mode.HANDOVER)
    return taken_over and record_term(state) <= epoch <= state.epoch


def reads(config: GroupConfig, broker: BrokerId) -> bool:
    """Tell whether the administrator lets this broker serve reads at all."""
    member = config.member(broker)
    return member is not None and bool(member.permission & Permission.READ)


def is_best(
    me: BrokerId,
    mine: tuple[Epoch, Position],
    config: GroupConfig,
    state: GroupState,
    live: Mapping[BrokerId, LiveBroker],
) -> bool:
    """Tell whether no other live claimant has a longer journal (ties: the smaller name)."""
    rivals = [b for b in sorted(state.isr) if b != me and b in live and reads(config, b)]
    my_rank = (-mine[0], -mine[1], me)
    return all(my_rank < (-live[b].epoch, -live[b].end, b) for b in rivals)
