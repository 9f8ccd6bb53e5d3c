"""One log line for each change of a broker's part in its group, with the reason.

A broker decides again at every signal, mostly with the same result. While part, permission and
epoch stay the same, a reason that comes back after another one is logged once a minute at most:
the last line has the present state, and reasons that alternate make no flood.
"""

from typing import Final

import structlog

from fmqcore.failover.evidence import Decision, Part, Remedy
from fmqcore.ids import Epoch, Permission

_log = structlog.get_logger()

REPEAT_MS: Final = 60_000
"""Time after which a reason that was logged, and then another one, is logged again."""


class StateLog:
    """Remembers what it logged last."""

    def __init__(self) -> None:
        self._state: tuple[Part, Permission, Epoch] | None = None
        self._last = ""
        self._logged_ms: dict[str, int] = {}  # by reason

    def note(self, decision: Decision, epoch: Epoch, now_ms: int) -> None:
        """Log the decision unless it is logged already. Without a reason nothing is logged."""
        state, reason = (decision.part, decision.permission, epoch), decision.reason
        if state != self._state and reason:
            self._state, self._last, self._logged_ms = state, "", {}
        before_ms = self._logged_ms.get(reason, now_ms - REPEAT_MS)
        if not reason or reason == self._last or now_ms - before_ms < REPEAT_MS:
            return
        self._last = reason
        self._logged_ms[reason] = now_ms
        for_a_person = decision.part is Part.STRANGER or decision.remedy is not Remedy.NONE
        log = _log.warning if for_a_person else _log.info
        log(
            "part",
            part=decision.part.name.lower(),
            permission=decision.permission.name,
            epoch=epoch,
            reason=decision.reason,
        )
