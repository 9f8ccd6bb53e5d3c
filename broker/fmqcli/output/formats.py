r"""How `fmq consume` prints a message: `--format` with these codes, and JSON.

    %t topic          %o offset              %k key      %K key's length
    %g broker group   %T stored at (ms)      %v value    %V value's length
    %q queue          %I stored at (ISO)     %h headers, name=value, separated by commas
    %a tag            %c delivery count      %% a percent sign

Backslash escapes: \n \t \r \0 \\ \xHH. Keys and values are printed as they are: bytes.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from fmqclient.consumer.message import Message
from fmqcore.errors import InvalidArgument

DEFAULT: Final = r"%v\n"

_CODES: Final[dict[str, Callable[[Message], bytes]]] = {
    "t": lambda m: m.topic.encode(),
    "g": lambda m: m.group.encode(),
    "q": lambda m: b"%d" % m.queue,
    "o": lambda m: b"%d" % m.offset,
    "k": lambda m: m.key or b"",
    "K": lambda m: b"%d" % len(m.key or b""),
    "v": lambda m: m.value,
    "V": lambda m: b"%d" % len(m.value),
    "T": lambda m: b"%d" % m.store_ms,
    "I": lambda m: iso(m.store_ms).encode(),
    "h": lambda m: b",".join(n.encode() + b"=" + v for n, v in m.headers.items()),
    "a": lambda m: m.tag or b"",
    "c": lambda m: b"%d" % m.delivery_count,
    "%": lambda _: b"%",
}
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN: Final = re.compile(r"%(.?)|\\x([0-9A-Fa-f]{2})|\\(.?)|([^%\\]+)", re.DOTALL)


def formatter(text: str) -> Callable[[Message], bytes]:
    """Compile a format; raise `InvalidArgument` naming an unknown code."""
    parts: list[bytes | Callable[[Message], bytes]] = []
    for code, hexadecimal, escape, plain in _TOKEN.findall(text):
        if plain:
            parts.append(plain.encode())
        elif hexadecimal:
            parts.append(bytes.fromhex(hexadecimal))
        elif escape in _ESCAPES:
            parts.append(_ESCAPES[escape])
        elif code in _CODES:
            parts.append(_CODES[code])
        else:
            wrong = f"%{code}" if not escape else f"\\{escape}"
            known = " ".join(f"%{c}" for c in _CODES)
            raise InvalidArgument(f"--format: {wrong!r} is no code; there are {known}")

    def format_one(message: Message) -> bytes:
        return b"".join(p if isinstance(p, bytes) else p(message) for p in parts)

    return format_one


def as_json(message: Message) -> bytes:
    """Return one line of JSON. Bytes that are not UTF-8 become `<name>_base64`."""
    fields: dict[str, Any] = {
        "topic": message.topic,
        "group": message.group,
        "queue": message.queue,
        "offset": message.offset,
        "store_ms": message.store_ms,
        "delivery_count": message.delivery_count,
    }
    if message.born_ms is not None:
        fields["born_ms"] = message.born_ms
    for name, raw in (("key", message.key), ("tag", message.tag), ("value", message.value)):
        if raw is not None:
            fields |= _text(name, raw)
    if headers := message.headers:
        fields["headers"] = texts(headers)
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def iso(ms: int) -> str:
    """Return a time in UTC; the number itself if it is beyond the calendar."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(ms)


def texts(headers: Mapping[str, bytes]) -> dict[str, str]:
    """Return headers for JSON, sorted by name."""
    return {n: text for name in sorted(headers) for n, text in _text(name, headers[name]).items()}


def _text(name: str, raw: bytes) -> dict[str, str]:
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(raw).decode()}
