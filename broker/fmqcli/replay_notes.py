"""What is noted of a replay's sender, for both kinds of topic: its checks. Pure."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from fmqcore.errors import InvalidArgument
from fmqcore.zk.topic import TopicConfig

ORDINARY: Final = "ordinary"
ORDERED: Final = "ordered"


class Archived(Protocol):
    """One record, as the archive has it."""

    @property
    def queue(self) -> int: ...  # noqa: D102
    @property
    def key(self) -> bytes | None: ...  # noqa: D102
    @property
    def value(self) -> bytes: ...  # noqa: D102
    @property
    def tag(self) -> bytes | None: ...  # noqa: D102
    @property
    def headers(self) -> dict[str, bytes] | None: ...  # noqa: D102


def undecodable(error: Exception) -> InvalidArgument:
    """Return the error for a noted plan that is none."""
    return InvalidArgument(
        f"the stored progress of the replay cannot be decoded ({error!r}): choose another --name "
        "to send everything again"
    )


def require_kind(state: Mapping[str, Any], kind: str) -> None:
    """Raise `InvalidArgument` if a plan of another kind of topic was noted."""
    noted = state.get("kind", ORDINARY)
    if noted != kind:
        raise InvalidArgument(
            f"the replay of this name sends to a topic that is {noted}, not {kind}: choose another "
            "--name"
        )


def require_same(topic: TopicConfig, noted_id: int, noted_same: bool, same: bool) -> None:
    """Raise `InvalidArgument` if a replay started with another topic or setting."""
    if noted_id != topic.id:
        raise InvalidArgument(
            f"topic {topic.name} was recreated since this replay started: choose another --name"
        )
    if noted_same != same:
        raise InvalidArgument(
            "this replay started with the other setting of --same-queue: keep "
            "it, or choose another --name"
        )


def noted_number(value: object, bits: int = 32) -> int:
    """Return a noted number. Raises `ValueError`."""
    if not isinstance(value, int) or not 0 <= value < 1 << bits:
        raise ValueError(f"{value!r} is not a number of {bits} bits")
    return value
