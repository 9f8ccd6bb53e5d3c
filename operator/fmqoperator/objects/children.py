"""All children of one BrokerGroup. Pure, deterministic."""

from fmqcore.words import BrokerId
from fmqoperator.resources import BrokerGroup, Json
from fmqoperator.seen import Defaults


def children(
    group: BrokerGroup,
    defaults: Defaults,
    *,
    master: BrokerId,
    reader: BrokerId,
    replicas: int | None = None,
    claim_size: str | None = None,
) -> list[Json]:
    """Every object that a group consists of, with owner reference, labels and hash.

    `master`, `reader`: who the state names ("" = nobody yet: the Services select nothing).
    `replicas`: pods to run, if not what the spec says (hibernation, a scale-down that waits).
    `claim_size`: the size in the StatefulSet that is there; it cannot be changed in place.
    """
    raise NotImplementedError
