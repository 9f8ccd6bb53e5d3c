"""The lease: how long after an answer from ZooKeeper a broker may still serve.

A renewal is a timed, synced read of the group's state. It holds for 2/3 of the session timeout
from the moment the read was *sent*, if the live node stood in the same session throughout and the
state still names this broker's term. The last third covers clocks that run at other speeds, and an
ensemble in which the session's touch reaches the leader up to half a tick after the answer left (a
session lasts at least two ticks). The server ends the session no earlier than its timeout after the
read, so a broker that waits for this live node to go away waits for longer than this one serves.

Renewals are gated on the progress of the event loop: ZooKeeper's client keeps the session alive
from its own thread, so a wedged broker looks healthy until the coordination port gives the
session up (`fmqport/coordination.py`). A renewal in whose window the loop stalled for longer than
`loop_stall_ms` does not count.

Order of effects: the state is read, cached and checked, then the lease is extended.
Leaves nothing behind.
"""

import asyncio
from typing import Final

import structlog

from fmqbroker.runtime.notifier import Signal, wait_any
from fmqbroker.runtime.settings import BrokerSettings
from fmqbroker.serving.broker_group_state import GroupStore
from fmqbroker.serving.gate import LEASE_OVER, Gate
from fmqcore.errors import Unavailable
from fmqcore.failover.term_rules import Tenure
from fmqport.clock import Clock
from fmqport.wakeup_alignment import together, together_s

_log = structlog.get_logger()

RENEWALS_PER_SESSION: Final = 4
TRIES_PER_SESSION: Final = 10  # after one that failed: four more are sent before a lease ends
_LONG_MS: Final = 3_600_000


def lease_ms(session_timeout_ms: int) -> int:
    """Return for how many milliseconds a read holds, from the moment it was sent."""
    return session_timeout_ms * 2 // 3


class Lease:
    """Renews the lease in `gate` during a tenure. Runs in failover's task group."""

    def __init__(
        self, gate: Gate, group: GroupStore, settings: BrokerSettings, clock: Clock
    ) -> None:
        self._gate = gate
        self._group = group
        self._settings = settings
        self._clock = clock
        self._tenure: Tenure | None = None
        self._held: Tenure | None = None  # whose lease `_watch_expiry` has reported to hold
        self._moved = Signal()  # another tenure
        self._recheck = Signal()  # the lease may hold again
        self._stalled_at_ms = -(1 << 62)
        self._beat_ms = clock.monotonic_ms()  # by then the loop should be seen to turn
        group.on_lost(self._session_over)

    def hold(self, tenure: Tenure | None) -> None:
        """Renew for this tenure from now on (None: for none)."""
        if tenure != self._tenure:
            self._tenure = tenure
            self._moved.notify()
            self._recheck.notify()

    def recheck(self) -> None:
        """Check again: the grants may now hold or end at another time."""
        self._recheck.notify()

    def _session_over(self) -> None:
        """End ZooKeeper's lease: the live node is gone, so others may claim by now.

        A server ends a session only after a full timeout of silence, which outlasts any lease (F7).
        But an administrator, or a client with its number and password, can end it at any moment.
        """
        self._gate.end_lease()
        self._recheck.notify()

    async def renew(self) -> bool:
        """Renew once now; return False if it did not count. Never raises `Unavailable`."""
        tenure = self._tenure
        if tenure is None:
            return False
        sent_ms = self._clock.monotonic_ms()  # F7: it counts from here, not from its answer
        try:
            proof = await self._group.prove()
        except Unavailable:
            return False
        good = (
            proof.standing == tenure.standing
            and self._group.state.value.epoch == tenure.epoch
            and self._tenure == tenure
            and not self._stalled_since(sent_ms)
        )
        if good:
            self._gate.extend_lease(proof.sent_ms + lease_ms(self._group.session_timeout_ms))
            if self._held != tenure:  # else `_watch_expiry` finds it when the old one would end
                self._recheck.notify()
        return good

    async def run(self) -> None:
        """Renew, watch the loop, and signal when the lease runs out, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renewals())
            tasks.create_task(self._watch_loop())
            tasks.create_task(self._watch_expiry())

    async def _renewals(self) -> None:
        while True:
            while self._tenure is None:
                await self._moved.wait()
            if self._group.standing:
                renewed = await self.renew()
                often = RENEWALS_PER_SESSION if renewed else TRIES_PER_SESSION
                every_ms = self._group.session_timeout_ms // often
                rest_s = together_s(self._clock.monotonic_ms(), every_ms)
                await wait_any(self._moved, timeout_s=rest_s)
            else:
                await wait_any(self._moved, self._group.changed)

    def _stalled_since(self, sent_ms: int) -> bool:
        """Return whether the loop stalled since `sent_ms`; its watch may not have run yet."""
        return self._stalled_at_ms >= sent_ms or self._late_ms() > self._settings.loop_stall_ms

    def _late_ms(self) -> int:
        return self._clock.monotonic_ms() - self._beat_ms

    async def _watch_loop(self) -> None:
        """Notice a loop that stood still: a sleep that ended far too late."""
        limit_ms = self._settings.loop_stall_ms
        while True:
            now_ms = self._clock.monotonic_ms()
            self._beat_ms = together(now_ms + limit_ms // 2, limit_ms // 2)
            await self._clock.sleep((self._beat_ms - now_ms) / 1000)
            if self._late_ms() > limit_ms:
                self._stalled_at_ms = self._clock.monotonic_ms()
                _log.warning("loop_stalled", late_ms=self._late_ms())

    async def _watch_expiry(self) -> None:
        """Notify when the lease ends or holds again: `gate` checks the clock only when asked."""
        while True:
            left_ms = self._gate.leased_until_ms() - self._clock.monotonic_ms()
            holds, held = self._tenure if left_ms > 0 else None, self._held
            if holds != held:
                if holds is None and held == self._tenure:
                    _log.warning("lease_over", epoch=held.epoch if held else 0, reason=LEASE_OVER)
                self._held = holds
                self._gate.changed.notify()
            timeout_s = min(left_ms + 1, _LONG_MS) / 1000 if left_ms > 0 else None
            await wait_any(self._recheck, timeout_s=timeout_s)
