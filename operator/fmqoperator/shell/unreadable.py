"""Report a resource that cannot be read, as an older schema let it in; leave it alone."""

from pydantic import ValidationError

from fmqoperator.core.status.unreconciled import unreadable
from fmqoperator.shell.clock import wall_ms
from fmqoperator.shell.events import Events
from fmqoperator.shell.keeper import Outcome
from fmqoperator.shell.kube import Json


async def report_unreadable(events: Events, body: Json, error: ValidationError) -> Outcome:
    """Report an object that cannot be read: a condition and an Event, in the same words."""
    status = unreadable(body, error, wall_ms())
    await events.emit(body, "Warning", "Invalid", status["message"])
    return Outcome(status)
