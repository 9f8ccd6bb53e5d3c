"""Small pure rules that the machine and the shell share: terms, grants, claimants.

A *tenure* is the right to serve one epoch. Only the broker that set the epoch has it, and only as
long as no other broker can have claimed unseen. A claim needs the holder's live node to be gone, so
a tenure is bound to one standing of that node. When the node stands again (a new session, or it was
removed), the tenure continues only if, after the node stood, every in-sync slave was still bound by
a grant: then no claim is in progress that looked while the node was gone. Otherwise the holder
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
    """The term that this broker opened, and the standing of the live node that protects it."""

    epoch: Epoch
    standing: int


def after_announce(tenure: Tenure | None, standing: int, *, granted_now: bool) -> Tenure | None:
    """Return what is left of a tenure once the broker's live node stands (again).

    `granted_now`: at this moment, after the node stood, every in-sync slave is bound by a grant
    to this broker as master (never true for a reader).
    """
    # F13: a broker may have claimed while the node was gone: the term is over unless none could.
    if tenure is None or tenure.standing == standing:
        return tenure
    return Tenure(tenure.epoch, standing) if granted_now else None


def granted_until(isr: Iterable[BrokerId], links: Mapping[BrokerId, Link]) -> int:
    """Return until when (ms) every member of `isr` is bound; `FOREVER` for an empty set."""
    # F5: every member, not any: a member that did not grant may claim.
    return min((links.get(b, Link()).lease_until_ms for b in isr), default=FOREVER)


def promise_ms(grant_ms: int) -> int:
    """How long a slave keeps a promise granted for `grant_ms`: 1/16 longer, for clock drift."""
    return grant_ms + grant_ms // 16


def record_term(state: GroupState) -> Epoch:
    """Return the slave-consume term whose record must be handed over; 0 = none."""
    if state.mode is Mode.SLAVE_CONSUME:
        return state.epoch
    return Epoch(state.epoch - 1) if state.mode is Mode.HANDOVER else Epoch(0)


def is_claim(state: GroupState, epoch: Epoch) -> bool:
    """Whether `epoch` certainly belongs to a takeover: no master has opened a term with it."""
    taken_over = state.mode in (Mode.SLAVE_CONSUME, Mode.HANDOVER)
    return taken_over and record_term(state) <= epoch <= state.epoch


def reads(config: GroupConfig, broker: BrokerId) -> bool:
    """Whether the configuration lets this broker serve reads at all."""
    member = config.member(broker)
    return member is not None and bool(member.permission & Permission.READ)


def is_best(
    me: BrokerId,
    own: tuple[Epoch, Position],
    config: GroupConfig,
    state: GroupState,
    live: Mapping[BrokerId, LiveBroker],
) -> bool:
    """Whether no other live claimant has a longer journal (on a tie the smaller name wins)."""
    rivals = [b for b in sorted(state.isr) if b != me and b in live and reads(config, b)]
    my_rank = (-own[0], -own[1], me)
    return all(my_rank < (-live[b].epoch, -live[b].end, b) for b in rivals)
