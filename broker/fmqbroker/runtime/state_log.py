"""One log line for each change of a broker's part in its group, with the reason.

A broker decides again at every signal, mostly with the same result. A reason is logged once for as
long as part, permission and epoch stay the same: reasons that alternate make no flood.
"""

import structlog

from fmqcore.failover.evidence import Decision, Part, Remedy
from fmqcore.ids import Epoch, Permission

_log = structlog.get_logger()


class StateLog:
    """Remembers what it logged last."""

    def __init__(self) -> None:
        self._state: tuple[Part, Permission, Epoch] | None = None
        self._reasons: set[str] = set()

    def note(self, decision: Decision, epoch: Epoch) -> None:
        """Log the decision unless it is logged already. Without a reason nothing is logged."""
        state = (decision.part, decision.permission, epoch)
        if not decision.why or (state == self._state and decision.why in self._reasons):
            return
        if state != self._state:
            self._state, self._reasons = state, set()
        self._reasons.add(decision.why)
        for_a_person = decision.part is Part.STRANGER or decision.remedy is not Remedy.NONE
        log = _log.warning if for_a_person else _log.info
        log(
            "part",
            part=decision.part.name.lower(),
            permission=decision.permission.name,
            epoch=epoch,
            reason=decision.why,
        )
