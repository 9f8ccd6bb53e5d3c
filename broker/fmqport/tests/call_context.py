"""A call's context for tests that call a handler without a transport."""

from typing import Final

from fmqport.transport import CallContext
from fmqwire.methods import STATUS

CALL: Final = CallContext(STATUS, "test")
"""Of handlers that do not look at it."""
