"""Track since when, and until when, this broker served the reads and writes of clients.

The operator measures outages by these periods, as it learns of a change later than clients do. A
write counts as served only while a `send` would be acknowledged. A broker that stood still keeps
the last check before. Times are ages on the monotonic clock, so that no other clock matters.
Nothing is written to disk.
"""

from dataclasses import dataclass

from fmqbroker.admin.snapshot import Served
from fmqbroker.produce.intake import Cause, Intake
from fmqbroker.replication.view import MasterReplication, SlaveReplication
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.gate import Gate
from fmqcore.ids import BrokerId, Permission
from fmqcore.policy import HowMany, can_meet
from fmqcore.zk.group_state import Mode
from fmqport.clock import Clock


@dataclass(slots=True)
class Period:
    """One kind of service: its current period, and the last moment when it was seen served."""

    since_ms: int | None = None
    until_ms: int | None = None

    def note(self, now_ms: int, *, served: bool) -> None:
        """Record whether the service is given now."""
        if not served:
            self.since_ms = None
            return
        if self.since_ms is None:
            self.since_ms = now_ms
        self.until_ms = now_ms

    def served_ms(self, now_ms: int) -> int | None:
        """Return how long it has been given; None: it is not given now."""
        return None if self.since_ms is None else now_ms - self.since_ms

    def ended_ago_ms(self, now_ms: int) -> int | None:
        """Return how long ago it was last seen served; None: it is given now, or never was."""
        if self.since_ms is not None or self.until_ms is None:
            return None
        return now_ms - self.until_ms


class ServedPeriods:
    """The served periods of one broker since its start."""

    def __init__(
        self,
        me: BrokerId,
        clock: Clock,
        gate: Gate,
        intake: Intake,
        group: GroupStore,
        master: MasterReplication,
        slave: SlaveReplication,
    ) -> None:
        self._me = me
        self._clock = clock
        self._gate = gate
        self._intake = intake
        self._group = group
        self._master = master
        self._slave = slave
        self.reads, self.writes = Period(), Period()

    def note(self) -> None:
        """Check now; the intake's watch calls this at each change and several times a second."""
        now_ms, permission = self._clock.monotonic_ms(), self._gate.permission()
        self.reads.note(now_ms, served=bool(permission & Permission.READ))
        self.writes.note(now_ms, served=self.unanswered_reason() is None)

    def unanswered_reason(self) -> str | None:
        """Return why no `send` would be acknowledged now; None if one would be."""
        refusal = self._intake.refusal()
        return self._unconnected() if refusal is None else refusal.reason

    def report(self) -> Served:
        """Check now, and return the periods for the broker snapshot."""
        self.note()
        now_ms, upstream = self._clock.monotonic_ms(), self._slave.upstream
        refusal = self._intake.refusal()
        judged = refusal is None or refusal.cause is not Cause.ROLE
        return Served(
            self.reads.served_ms(now_ms),
            self.writes.served_ms(now_ms),
            self.reads.ended_ago_ms(now_ms),
            self.writes.ended_ago_ms(now_ms),
            followed_master=upstream.heard_master,
            master_silent_ms=now_ms - upstream.heard_ms if upstream.heard_master else 0,
            unacknowledged_reason=(self.unanswered_reason() or "") if judged else "",
        )

    def _unconnected(self) -> str | None:
        """Return which lost links keep batches from being acknowledged; None if none do.

        A dead slave stays in the in-sync set until its link is given up: messages are taken, but
        none that needs that slave is acknowledged.
        """
        state, config = self._group.state.value, self._group.config
        if state.mode is not Mode.MASTER or state.master != self._me:
            return None
        linked = frozenset(b for b in state.isr if self._is_linked(b))
        if config.policy.how_many is HowMany.ALL and linked != state.isr:
            lacking = ", ".join(sorted(state.isr - linked))
            return f"in-sync slaves are not connected: {lacking}"
        me = config.member(self._me)
        zones = {member.id: member.zone for member in config.slaves}
        reason = can_meet(config.policy, zones, "" if me is None else me.zone, linked)
        return f"in-sync slaves are not connected: {reason}" if reason else None

    def _is_linked(self, broker: BrokerId) -> bool:
        link = self._master.links.get(broker)
        return link is not None and link.connected
