"""Properties of topics and subscriptions: a row for each; unknown ones stay as they came. Pure.

A property is a key of a topic's JSON node, or of a group's entry there. The rows below are the
properties that this version reads. A key without a row was written by a newer version: it is kept
in ZooKeeper and on the wire, and, for the topic as a whole, in CONFIG batches and SNAPs, whatever
this version changes beside it. Too large ones and names that are not Unicode text stay in ZooKeeper
only (`Properties.shared`). A new property is a row and the code that reads it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fmqcore.errors import Malformed
from fmqcore.ids import MAX_QUEUES

MAX_BYTES: Final = 4096
"""Most bytes of one topic's properties, as JSON: each journal and each SNAP holds them."""
_KNOWN_BYTES: Final = 256
"""The part of `MAX_BYTES` that is kept for the properties with a row."""


@dataclass(frozen=True, slots=True)
class PropertySpec:
    """One row. Bounds are inclusive; `unit` "": a plain number; `required`: without a default."""

    name: str
    type: type
    default: int
    minimum: int
    maximum: int
    unit: str
    text: str
    required: bool = False


QUEUES: Final = PropertySpec(
    "queues", int, 1, 1, MAX_QUEUES, "queues", "Number of queues in this group.", required=True
)
WEIGHT: Final = PropertySpec(
    "weight",
    int,
    1,
    0,
    1000,
    "",
    "The group's share of new messages; 0: none, but consumers still read it.",
)
ORDERED: Final = PropertySpec(
    "ordered",
    bool,
    0,
    0,
    1,
    "",
    "Strictly ordered over a chain of groups (`ordered/<t>`); fixed when the topic is created.",
)
TOPIC: Final[tuple[PropertySpec, ...]] = (ORDERED,)
"""Properties of a topic as a whole, besides its name, number and groups."""
TOPIC_GROUP: Final = (QUEUES, WEIGHT)
"""Properties of a group's share of a topic."""
SUBSCRIPTION: Final[tuple[PropertySpec, ...]] = ()
"""Properties of a consumer group on a topic: none is stored yet."""


class Properties(Mapping[str, Any]):
    """Properties without a row in this version: an immutable, hashable mapping of JSON values."""

    __slots__ = ("texts",)

    def __init__(self, texts: Iterable[tuple[str, str]] = ()) -> None:
        """`texts`: each name with the JSON text of the value."""
        self.texts = tuple(sorted(texts))

    @classmethod
    def unknown(
        cls, data: Mapping[str, Any], rows: Iterable[PropertySpec], *fields: str
    ) -> "Properties":
        """Return what is in a JSON object besides the rows and these fields."""
        known = {row.name for row in rows}.union(fields)
        return cls((name, _text(value)) for name, value in data.items() if name not in known)

    @classmethod
    def decode(cls, raw: bytes) -> "Properties":
        """Decode a JSON object; raise `Malformed`."""
        try:
            return cls((name, _text(value)) for name, value in json.loads(raw).items())
        except (ValueError, AttributeError, RecursionError) as error:
            raise Malformed(f"properties do not decode: {error!r}") from error

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "Properties":
        """Return properties with these JSON values."""
        return cls((name, _text(value)) for name, value in data.items())

    def size(self) -> int:
        """Return the number of bytes of the encoded properties."""
        return len(_text(dict(self)).encode())

    def encode(self) -> bytes:
        """Encode as a JSON object; equal properties give equal bytes. Raise `Malformed`."""
        raw = _text(dict(self)).encode()
        if len(raw) > MAX_BYTES:
            raise Malformed(f"properties of {len(raw)} bytes, at most {MAX_BYTES}: remove some")
        return raw

    def shared(self) -> "Properties":
        """Return what a broker passes on to clients and journals: a node may hold anything.

        None of them if they are too large as JSON; no name with half a surrogate pair, which is
        neither UTF-8 nor Protobuf.
        """
        texts = [(name, text) for name, text in self.texts if _is_unicode(name)]
        size = sum(len(_text(name)) + len(text) + len(":,") for name, text in texts)
        if size > MAX_BYTES - _KNOWN_BYTES:
            return NONE
        return self if len(texts) == len(self.texts) else Properties(texts)

    def __getitem__(self, name: str) -> Any:
        return json.loads(dict(self.texts)[name])

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __eq__(self, other: object) -> bool:
        return self.texts == other.texts if isinstance(other, Properties) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.texts)

    def __repr__(self) -> str:
        return f"Properties({dict(self)})"


NONE: Final = Properties()


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
