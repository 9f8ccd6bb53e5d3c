"""A master's answer to a slave's Hello. Pure.

C is where the two journals part (`epoch_history.py`), `floor` is what the slave must never lose:
its newest known commit end, or, if it served reads in slave-consume, its durable end. *Chain* is
the header CRC of the batch that ends at the slave's end: both must have the same one.
In the table M is the master and S the slave.

| # | S and M                                                 | decision                         |
|---|---------------------------------------------------------|----------------------------------|
| 1 | other cluster or group, S is no member, M is not the    | REJECT                           |
|   | configured master, S has M's own name, the name of S    |                                  |
|   | lives twice, fields that make no sense                  |                                  |
| 2 | S is empty, its end is M's log start                    | APPEND_FROM its end              |
| 3 | S is empty, its end is elsewhere                        | RESET_TO M's log start           |
| 4 | no term opened, M is empty, S is not                    | SEND_SUFFIX from S's log start;  |
|   |                                                         | if that came and is no journal:  |
|   |                                                         | REJECT, alarm                    |
| 5 | S is a prefix (C = its end), M still has what follows   | APPEND_FROM its end              |
|   | there, the chain agrees                                 |                                  |
| 6 | S is a prefix and ends below M's log start              | RESET_TO M's log start           |
| 7 | S is a prefix but the chain does not agree              | cut to the start of C's epoch    |
| 8 | S is ahead (C = M's end), no term opened                | SEND_SUFFIX from M's end         |
| 9 | as 8, but S's log start lies beyond M's end             | REJECT, alarm: bytes are missing |
|10 | as 8, but S's suffix does not chain to M's journal      | cut to the start of C's epoch    |
|11 | they part at C, or S is ahead in an opened term         | cut to C                         |
|12 | no common epoch                                         | cut to 0                         |
|13 | 9, 11 or 12, but M's journal is a copy from the first   | SEND_SUFFIX from S's log start,  |
|   | slave that came after M lost its disk, no term is open, | in place of all that M holds     |
|   | and S is one of those that have all, and more advanced  |                                  |

*Cut to P*: the slave has epochs that the master has never heard of → REJECT, alarm (the master is
stale). P < floor → REJECT, alarm (R5). P below the master's log start, or not above the slave's →
RESET_TO the master's log start (its SNAP restores the state); but after rows 7 and 10, where it is
unknown how far back the difference goes, only if the slave holds nothing committed. Else
TRUNCATE_TO P.

Rows 4 and 8 are why a master never truncates its own journal and pulls *before* it opens a term:
what a slave may have served is never lost. Rows 7 and 10 need two terms with one number, which only
a master that lost an unacknowledged EPOCH batch can make; they go back one epoch with each Hello.
Row 13 (ADR 0043): the master's journal gets more advanced each time, so no two slaves alternate
for ever.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from enum import IntEnum

from fmqcore.ids import BrokerId, Epoch, GroupName, Position
from fmqcore.replication.epoch_history import Common, EpochStart, common_end, is_history
from fmqcore.zk.group_config import GroupConfig


class Action(IntEnum):
    """What the slave must do; the numbers are those on the wire."""

    APPEND_FROM = 1
    TRUNCATE_TO = 2
    RESET_TO = 3
    SEND_SUFFIX = 4
    REJECT = 5


@dataclass(frozen=True, slots=True)
class SlaveView:
    """A slave as its Hello describes it."""

    cluster: str
    group: GroupName
    broker: BrokerId
    epochs: Sequence[EpochStart]
    journal_start: Position
    end: Position
    durable_end: Position
    commit_end: Position = Position(0)
    reader: bool = False
    last_header_crc: int = 0
    tail_lost: bool = False  # what it had fsynced may be gone: its disk is another, or was damaged
    whole: bool = False  # it lacks nothing of what it ever acknowledged to hold
    emptied: bool = False  # its disk was lost, and no master has made it whole since

    @property
    def empty(self) -> bool:
        """Whether no batch is stored."""
        return self.end == self.journal_start

    @property
    def floor(self) -> Position:
        """The position below which the slave must never lose anything (R5)."""
        served = self.durable_end if self.reader else Position(0)
        return min(max(self.commit_end, served), self.end)


@dataclass(frozen=True, slots=True)
class MasterView:
    """The master's own journal and knowledge, at the time of the decision."""

    cluster: str
    config: GroupConfig
    me: BrokerId
    epoch: Epoch  # newest term known: of the group's state and of the journal
    epochs: Sequence[EpochStart]
    journal_start: Position
    end: Position
    opening: bool  # no term of this broker is open: what it lacks may still be pulled
    chain: int | None  # header CRC of the batch that ends where the slave ends; None: none does
    twin: str = ""  # another process that lives under the slave's name
    suffix_fits: bool = True  # False: its suffix came and did not chain to this journal
    yields_to: Set[BrokerId] = frozenset()  # whose journals go before what this master was given


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer. `alarm`: a person must look; `reason` says what to do."""

    action: Action
    position: Position = Position(0)
    reason: str = ""
    alarm: bool = False
    instead: bool = False  # SEND_SUFFIX: in the place of all that the master holds


def reconcile(slave: SlaveView, master: MasterView) -> Decision:
    """Decide what a slave must do first; see the table."""
    if refusal := _refusal(slave, master):
        return Decision(Action.REJECT, reason=refusal)
    if slave.empty:
        same = slave.end == master.journal_start
        action = Action.APPEND_FROM if same else Action.RESET_TO
        return Decision(action, master.journal_start, "" if same else "it is empty")
    if master.opening and master.end == master.journal_start:
        return _empty(slave, master)
    common = common_end(master.epochs, master.end, slave.epochs, slave.end)
    if _goes_before(slave, master) and not _continues(slave, master, common):
        reason = "the slave holds more than this emptied master was refilled with"
        return Decision(Action.SEND_SUFFIX, slave.journal_start, reason, instead=True)
    if common is None:
        return _cut(slave, master, Position(0), "no epoch is common: another journal's data")
    if common.end == slave.end:
        return _prefix(slave, master, common)
    if common.end == master.end and master.opening:
        return _ahead(slave, master, common)
    return _cut(slave, master, common.end, f"the journals part at {common.end}")


def _empty(slave: SlaveView, master: MasterView) -> Decision:
    if master.suffix_fits:
        return Decision(Action.SEND_SUFFIX, slave.journal_start, "the master's journal is empty")
    reason = (
        f"{master.me} is empty, and what {slave.broker} gives it is damaged from "
        f"{slave.journal_start} "
        f"on: bring back another slave first, or replace the data directory of {slave.broker}"
    )
    return Decision(Action.REJECT, reason=reason, alarm=True)


def _goes_before(slave: SlaveView, master: MasterView) -> bool:
    if slave.broker not in master.yields_to or not master.suffix_fits:
        return False
    return (_newest(slave.epochs), slave.end) > (_newest(master.epochs), master.end)


def _continues(slave: SlaveView, master: MasterView, common: Common | None) -> bool:
    return common is not None and common.end == master.end and slave.journal_start <= master.end


def _newest(epochs: Sequence[EpochStart]) -> Epoch:
    return epochs[-1][0] if epochs else Epoch(0)


def _prefix(slave: SlaveView, master: MasterView, common: Common) -> Decision:
    if slave.end < master.journal_start:
        reason = f"its end {slave.end} is below the master's log start {master.journal_start}"
        return Decision(Action.RESET_TO, master.journal_start, reason)
    if slave.last_header_crc == master.chain:
        return Decision(Action.APPEND_FROM, slave.end)
    reason = (
        f"its last batch before {slave.end} differs from the master's, though both are of epoch "
        f"{common.epoch}"
    )
    return _cut(slave, master, common.start, reason, known=False)


def _ahead(slave: SlaveView, master: MasterView, common: Common) -> Decision:
    if slave.journal_start > master.end:
        reason = (
            f"{slave.broker} begins at {slave.journal_start}, beyond the master's journal end "
            f"{master.end}: the bytes between are in neither; start {master.me} with its own data "
            f"directory, or bring back another in-sync slave first"
        )
        return Decision(Action.REJECT, reason=reason, alarm=True)
    if not master.suffix_fits:
        reason = "its suffix does not chain to the master's journal"
        return _cut(slave, master, common.start, reason, known=False)
    return Decision(Action.SEND_SUFFIX, master.end, f"it is ahead by {slave.end - master.end}")


def _cut(
    slave: SlaveView, master: MasterView, position: Position, cause: str, *, known: bool = True
) -> Decision:
    newest = _newest(slave.epochs)
    if newest > master.epoch:
        reason = (
            f"{slave.broker} holds epoch {newest}, newer than the master's {master.epoch}: "
            f"{master.me} has an old state or another group's data; compare both directories"
        )
        return Decision(Action.REJECT, reason=reason, alarm=True)
    reset = position < master.journal_start or position <= slave.journal_start
    lost_from = slave.journal_start if reset and not known else position
    if lost_from < slave.floor:  # R5: never below a known commit end
        reason = (
            f"{cause}; to follow {master.me} {slave.broker} would lose committed bytes "
            f"from {lost_from} to {slave.floor}; if they are really not wanted, "
            "empty its data directory"
        )
        return Decision(Action.REJECT, reason=reason, alarm=True)
    if reset:
        return Decision(Action.RESET_TO, master.journal_start, cause)
    return Decision(Action.TRUNCATE_TO, position, cause)


def _refusal(slave: SlaveView, master: MasterView) -> str:
    """Row 1: return why the slave is not served at all; "" if it is."""
    config, broker = master.config, slave.broker
    rows = (
        (
            slave.cluster != master.cluster,
            f"this is cluster {master.cluster!r}, not {slave.cluster!r}",
        ),
        (slave.group != config.group, f"this is group {config.group!r}, not {slave.group!r}"),
        (
            config.master != master.me,
            f"{master.me} is not the configured master: that is {config.master}",
        ),
        (broker == master.me, f"{broker} is the master's own name: give each broker its own"),
        (
            config.member(broker) is None,
            f"{broker} is no member of group {config.group}: add it to the configuration",
        ),
        (
            bool(master.twin),
            f"another process lives under the name {broker}: {master.twin}; stop one of the two",
        ),
        (
            not slave.journal_start <= slave.durable_end <= slave.end
            or not is_history(slave.epochs, slave.end),
            f"the Hello of {broker} makes no sense: log start {slave.journal_start}, durable end "
            f"{slave.durable_end}, end {slave.end}, epochs {list(slave.epochs)[-5:]}",
        ),
    )
    return next((reason for holds, reason in rows if holds), "")
