"""Names of groups that a person removed: the data of node `groups`."""

import json
from collections.abc import Collection

from fmqcore.ids import GroupName
from fmqcore.zk.codec import Decoding, dump_json, read_name


def removed_to_json(groups: Collection[GroupName]) -> bytes:
    """Encode the names of removed groups; empty if there are none."""
    return dump_json({"removed": sorted(groups)}) if groups else b""


def removed_from_json(raw: bytes) -> frozenset[GroupName]:
    """Decode the names of removed groups; raise `Malformed` naming the field."""
    if not raw:
        return frozenset()
    with Decoding("names of removed groups"):
        return frozenset(GroupName(read_name(name)) for name in json.loads(raw).get("removed", ()))
