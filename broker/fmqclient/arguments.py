"""Checks of what a program passes in: each raises `InvalidArgument` before anything is sent.

No state, nothing on disk.
"""

from collections.abc import Iterable, Mapping, Sequence
from inspect import iscoroutinefunction

from fmqcore.batch.columns import encode_headers
from fmqcore.errors import InvalidArgument
from fmqcore.ids import GroupName
from fmqcore.placement import Place

Headers = Mapping[str, str | bytes]


def _check_all(what: str, given: object) -> None:
    """Check a whole list before sending: bytes (or, for keys, None)."""
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise InvalidArgument(f"{what}s must be a list, not {type(given).__name__}")
    if set(map(type, given)) - {bytes}:
        for value in given:
            if value is not None or what == "value":
                as_bytes(what, value)


def check_batch(values: Sequence[bytes], keys: Sequence[bytes | None] | None) -> None:
    """Raise `InvalidArgument` unless these are values, with as many keys or none."""
    _check_all("value", values)
    _check_all("key", keys or ())
    if keys is not None and len(keys) != len(values):
        raise InvalidArgument(f"{len(keys)} keys for {len(values)} values")


def check_place(group: object, queue: object) -> None:
    """Check the place that the caller asks for, if any."""
    if group is not None and not isinstance(group, str):
        raise InvalidArgument(f"group={group!r} must be a broker group's name")
    if queue is not None and not isinstance(queue, int):
        raise InvalidArgument(f"queue={queue!r} must be a queue's number")


def check_fetch(max_messages: object, timeout: object) -> None:
    """Check the number of messages and the seconds to wait."""
    if not isinstance(max_messages, int) or max_messages < 1:
        raise InvalidArgument(f"max_messages={max_messages!r} must be a whole number from 1")
    if timeout is not None:
        check_seconds("timeout", timeout)


def check_seconds(what: str, given: object) -> None:
    """Check a number of seconds."""
    if not isinstance(given, int | float):
        raise InvalidArgument(f"{what}={given!r} must be a number of seconds")


def check_callback(what: str, given: object) -> None:
    """Require an ordinary function or None: the coroutine of an `async def` would never run."""
    if given is not None and (not callable(given) or iscoroutinefunction(given)):
        raise InvalidArgument(
            f"{what}={given!r} must be an ordinary function: let it set an asyncio.Event, or start "
            "a task, for more"
        )


def check_text(what: str, given: object) -> None:
    """Check that a name is a str; it may be unknown, or empty."""
    if not isinstance(given, str):
        raise InvalidArgument(f"{what}={given!r} must be a str")


def as_places(queues: Iterable[tuple[str, int]]) -> list[Place]:
    """Return queues, each with its broker group; raise `InvalidArgument` unless they are pairs."""
    try:
        found = [(GroupName(group), queue) for group, queue in queues]
    except (TypeError, ValueError):
        found = [(GroupName(""), None)]  # type: ignore[list-item]
    if not all(isinstance(group, str) and isinstance(queue, int) for group, queue in found):
        raise InvalidArgument(f"queues={queues!r} must be pairs, such as [('g1', 0)]")
    return found


def as_bytes(what: str, value: object) -> bytes:
    """Return a record's bytes, copied if they could change."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidArgument(f"{what} must be bytes, not {type(value).__name__}: encode it first")


def as_they_are(
    value: bytes, key: bytes | None, headers: Headers | None, tag: bytes | None
) -> tuple[bytes, bytes | None, Headers | None, bytes | None]:
    """Copy a record that may have to wait for room: its owner may then reuse its buffers."""
    return (
        as_bytes("value", value),
        None if key is None else as_bytes("key", key),
        dict(headers) if isinstance(headers, Mapping) else headers,
        None if tag is None else as_bytes("tag", tag),
    )


def as_headers(headers: Headers) -> bytes:
    """Return the headers encoded as a batch carries them."""
    try:
        return encode_headers(headers)
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidArgument(f"headers must map str to str or bytes: {error}") from None
