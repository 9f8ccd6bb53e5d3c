"""The request of `Admin.alter_topic`, checked before it is sent."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fmqclient.arguments import check_text
from fmqcore.errors import InvalidArgument
from fmqcore.ids import MAX_QUEUES
from fmqcore.names import require_name
from fmqproto.v1 import admin_pb2

_UINT32: Final = 2**32 - 1


def alter_request(
    name: str,
    queues: int | None,
    groups: Sequence[str] | Mapping[str, int | None] | None,
    *,
    all_groups: bool,
) -> admin_pb2.AlterTopicRequest:
    """Return the request to alter a topic. Raises `InvalidArgument`."""
    require_name("topic", name)
    if isinstance(groups, str) or not isinstance(groups, Iterable | None):
        raise InvalidArgument(f"groups={groups!r} must be a list of names, or have weights")
    if queues is None and not groups and not all_groups:
        raise InvalidArgument(f"nothing to change of topic {name}: give queues or groups")
    if queues is not None:
        check_number("queues", queues, 1, MAX_QUEUES)
    weights = groups if isinstance(groups, Mapping) else dict.fromkeys(groups or ())
    request = admin_pb2.AlterTopicRequest(name=name, queues=queues or 0, all_groups=all_groups)
    for group, weight in weights.items():
        check_text("group", group)
        if weight is not None:
            check_number(f"weight of {group}", weight, 0, _UINT32)
        request.groups.add(group=group, weight=weight)
    return request


def check_number(what: str, value: object, least: int, most: int) -> None:
    """Raise `InvalidArgument` unless it is a whole number within these limits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(f"{what}={value!r} must be a whole number from {least} to {most:,}")
