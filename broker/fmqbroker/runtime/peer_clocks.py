"""Compares the clocks of the group's other members with this broker's.

The master compares at each acknowledgement of a slave, and sends the slave the difference. The last
result counts until the next comparison or until that broker is no longer a member: a broker that
is down cannot report that its clock is right again. Older brokers send no times: they are not
compared.
"""

from collections.abc import Container
from typing import Final, Protocol

import structlog

from fmqcore.clocks import Base, base_of, disagreement
from fmqcore.ids import BrokerId

_EVERY_MS: Final = 1000
"""Minimum milliseconds between comparisons of two brokers; messages may be more frequent."""

_log = structlog.get_logger()


class Times(Protocol):
    """The part of a clock that is needed here."""

    def monotonic_ms(self) -> int:
        """See `Clock`."""
        ...

    def wall_ms(self) -> int:
        """See `Clock`."""
        ...


class PeerClocks:
    """The known clock differences; `doubt` names a clock that is too far from this one."""

    def __init__(self, clock: Times) -> None:
        self._clock = clock
        self._bases: dict[BrokerId, Base] = {}
        self._noted_ms: dict[BrokerId, int] = {}
        self._members: Container[BrokerId] | None = None  # None: not known yet
        self._apart = False  # as the log has it

    def heard(self, broker: BrokerId, wall_ms: int, asked_ms: int) -> None:
        """Take an answer to a message sent at `asked_ms` (this broker's monotonic clock)."""
        now_ms = self._clock.monotonic_ms()
        if self._is_due(broker, now_ms) and (base := base_of(wall_ms, asked_ms, now_ms)):
            self._note(broker, base, now_ms)

    def report_clock(self, broker: BrokerId, ahead_ms: int) -> None:
        """Take a comparison made by `broker`: this broker's clock is `ahead_ms` ahead."""
        now_ms = self._clock.monotonic_ms()
        if self._is_due(broker, now_ms):
            base_ms = self._my_base_ms() - ahead_ms
            self._note(broker, Base(base_ms, base_ms), now_ms)

    def keep(self, members: Container[BrokerId]) -> None:
        """Forget brokers that are not among the members, and ignore them from now on.

        The stream of a removed broker ends a moment after its removal; its acks until then must
        not bring it back.
        """
        self._members = members
        for broker in [b for b in self._bases if b not in members]:
            del self._bases[broker], self._noted_ms[broker]
        self._note_change()

    def ahead_ms(self, broker: BrokerId) -> int | None:
        """Return how far that broker's clock is ahead of this one, at least; None if unknown."""
        base = self._bases.get(broker)
        return None if base is None else base.ahead_ms(self._my_base_ms())

    @property
    def doubt(self) -> str | None:
        """Which clock is too far from this broker's; None if none is."""
        my_base_ms = self._my_base_ms()
        return disagreement({b: base.ahead_ms(my_base_ms) for b, base in self._bases.items()})

    def _is_due(self, broker: BrokerId, now_ms: int) -> bool:
        noted_ms = self._noted_ms.get(broker)
        return noted_ms is None or now_ms - noted_ms >= _EVERY_MS

    def _note(self, broker: BrokerId, base: Base, now_ms: int) -> None:
        if self._members is not None and broker not in self._members:
            return
        self._bases[broker], self._noted_ms[broker] = base, now_ms
        self._note_change()

    def _note_change(self) -> None:
        """Log once when a difference appears, and once when it is over."""
        reason = self.doubt
        if (reason is not None) is self._apart:
            return
        self._apart = reason is not None
        if reason is not None:
            _log.error("clocks_differ", reason=reason)
        else:
            _log.warning("clocks_agree")

    def _my_base_ms(self) -> int:
        return self._clock.wall_ms() - self._clock.monotonic_ms()
