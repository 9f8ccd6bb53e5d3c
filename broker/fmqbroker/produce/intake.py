"""Whether this broker takes messages now: one definition for status, pages and metrics.

A broker takes messages if it would append a `send` with the policy's acknowledgement now: it holds
WRITE and its lease, it is not stopping, its journal has room, and enough slaves are in sync for the
group's policy. `produce/admission.py` checks the same four facts, each with its own error.

Each change is logged once, with its reason. Nothing is written to disk.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

import structlog

from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.notifier import wait_any
from fmqbroker.serving.gate import Gate
from fmqcore.ids import Permission

_log = structlog.get_logger()

_POLL_S: Final = 0.25
"""Polling interval: an expiring lease and a disk that fills up send no signal."""


class Cause(Enum):
    """The kind of reason why no message is taken."""

    STOPPING = "stopping"
    ROLE = "role"
    ROOM = "room"
    POLICY = "policy"


class Refusal(NamedTuple):
    """Why no message is taken; `reason` is a sentence for people."""

    cause: Cause
    reason: str


class Intake:
    """The intake of one broker. The produce service sets `stopping` before an orderly stop."""

    def __init__(self, gate: Gate, commit: CommitFrontier, journal: Journal) -> None:
        self.stopping = False
        self._gate = gate
        self._commit = commit
        self._journal = journal

    def refusal(self) -> Refusal | None:
        """Return why no message is taken now, or None if messages are taken."""
        if self.stopping:
            return Refusal(Cause.STOPPING, "this broker is stopping")
        if not self._gate.permission() & Permission.WRITE:
            return Refusal(Cause.ROLE, f"it may not serve writes: {self._gate.reason}")
        if full := self._journal.full:
            return Refusal(Cause.ROOM, full)
        if (unmet := self._commit.unwritable_reason) is not None:
            return Refusal(Cause.POLICY, unmet)
        return None

    def serves(self) -> Permission:
        """Return the granted permission, without WRITE while messages are refused."""
        granted = self._gate.permission()
        return granted if self.refusal() is None else granted & ~Permission.WRITE

    async def watch(self, note: Callable[[], None] = lambda: None) -> None:
        """Log each change until cancelled; call `note` at each check."""
        before: Cause | None = Cause.ROLE
        while True:
            note()
            refusal = self.refusal()
            cause = refusal.cause if refusal is not None else None
            if cause is not before:
                before = cause
                self._reply(refusal)
            signals = self._gate.changed, self._commit.policy_changed
            await wait_any(*signals, timeout_s=_POLL_S)

    def _reply(self, refusal: Refusal | None) -> None:
        epoch = self._gate.epoch
        if refusal is None:
            _log.info("messages_accepted", epoch=epoch)
        elif refusal.cause in (Cause.ROOM, Cause.POLICY):
            cause = refusal.cause.value
            _log.warning("messages_refused", epoch=epoch, cause=cause, reason=refusal.reason)
        else:
            cause = refusal.cause.value
            _log.info("messages_refused", epoch=epoch, cause=cause, reason=refusal.reason)
