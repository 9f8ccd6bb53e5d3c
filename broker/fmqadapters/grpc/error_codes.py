"""The code of a handler's error in gRPC's trailing metadata, where both ends find it.

gRPC's own status of such a call is FAILED_PRECONDITION, which no failure of a connection has. A
broker of an older version sends no code: its text is all there is.
"""

from collections.abc import Iterable
from typing import Any, Final

from fmqcore.errors import FmqError, error_of

_KEY: Final = "fmq-error"
_LONGEST: Final = 9  # digits


def trailer_of(error: FmqError) -> tuple[tuple[str, str], ...]:
    """Return the trailing metadata of a call that ended with the error."""
    return ((_KEY, str(int(error.code))),)


def error_in(trailer: Iterable[tuple[str, Any]] | None, text: str) -> FmqError | None:
    """Return the handler's error that ended a call; None if the metadata holds no code."""
    for key, value in trailer or ():
        if key == _KEY and isinstance(value, str) and value.isdecimal() and len(value) <= _LONGEST:
            return error_of(int(value), text)
    return None
