"""The parts that all ZooKeeper nodes share: versioned values, JSON out, typed values in."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from fmqcore.errors import Malformed
from fmqcore.names import is_name, no_name

T = TypeVar("T")

_DECODE_ERRORS: Final = (
    *(KeyError, ValueError, TypeError, AttributeError),
    *(OverflowError, RecursionError),  # `Infinity` as a whole number; nested too deep
)

Extra = tuple[tuple[str, str], ...]
"""Unknown keys of a document with the JSON text of their values, sorted; they are written back."""


@dataclass(frozen=True, slots=True)
class Versioned(Generic[T]):
    """A value read from its node, with the node's version for compare-and-set; -1 = absent."""

    value: T
    version: int


def dump_json(data: Mapping[str, Any]) -> bytes:
    """Encode a node's JSON: sorted keys, no spaces."""
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def read_extra(data: Mapping[str, Any], known: Collection[str]) -> Extra:
    """Return the keys of `data` that this version does not know."""
    unknown = sorted(key for key in data if key not in known)
    return tuple((key, json.dumps(data[key], sort_keys=True)) for key in unknown)


def with_extra(known: Mapping[str, Any], extra: Extra) -> dict[str, Any]:
    """Return the known keys with the unknown ones beside them."""
    return {key: json.loads(text) for key, text in extra} | dict(known)


def load_json(raw: bytes, former: Mapping[str, str]) -> Any:
    """Decode a node's JSON. `former`: names that fields had before; one counts if alone."""
    data = json.loads(raw)
    for old, new in former.items():
        if old in data and new not in data:
            data[new] = data[old]
    return data


def read_text(value: Any) -> str:
    """Return `value` if it is a string; raise `TypeError`."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def read_name(value: Any) -> str:
    """Return `value` if it is a name (`fmqcore.names`); raise `TypeError` or `ValueError`."""
    text = read_text(value)
    if not is_name(text):
        raise ValueError(no_name("group, broker or topic", text))
    return text


class Decoding:
    """Context manager that turns the errors of an invalid document into one `Malformed`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _DECODE_ERRORS):
            raise Malformed(f"{self._what} does not decode: {error!r}") from error
