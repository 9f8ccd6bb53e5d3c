"""Who serves a group, decided purely (DESIGN §6): evidence in, at most one step out."""

from fmqcore.failover.evidence import (
    Action,
    Decision,
    Evidence,
    LeaseRule,
    Link,
    Params,
    Part,
    Record,
)
from fmqcore.failover.machine import decide

__all__ = [
    "Action",
    "Decision",
    "Evidence",
    "LeaseRule",
    "Link",
    "Params",
    "Part",
    "Record",
    "decide",
]
