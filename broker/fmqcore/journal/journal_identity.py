"""What a data directory remembers of its brokers: whose it is, and what they promised. Pure.

On disk: the file `incarnations`, a line each, in any order: which group of which cluster the
directory is of (`cluster/group`), for how long its brokers promised their master to claim nothing
(`grant_ms=`), and who its last brokers were (16 hexadecimal digits). `fmqbroker.serving.identity`
keeps it.
"""

import re
from typing import Final

from fmqcore.errors import Malformed

INCARNATIONS: Final = "incarnations"
"""Its file name."""
GRANT: Final = "grant_ms="

_HOME: Final = re.compile(r"[!-.0-~]+/[!-.0-~]+")
_OTHER: Final = re.compile(r"grant_ms=[0-9]{1,12}|[0-9a-f]{16}")


def homes_of(raw: bytes) -> list[str]:
    """What a broker takes for the group that the directory is of: one that begins refuses if the
    first is another than its own."""
    return [line for line in raw.decode("ascii", "replace").split() if "/" in line]


def is_home(line: str) -> bool:
    """Whether it may name a group."""
    return _HOME.fullmatch(line) is not None


def decode_home(raw: bytes) -> str:
    """The group; "" if it does not say. Raises `Malformed` if a line is none of a broker's, or if
    there is none: each start leaves at least one.
    """
    if not raw.split():
        raise Malformed("it is empty")
    for number, line in enumerate(raw.decode("ascii", "replace").splitlines(), 1):
        if not (is_home(line) or _OTHER.fullmatch(line)):
            raise Malformed(
                f"line {number} is neither a group (cluster/group), a promise ({GRANT}) nor an "
                "incarnation"
            )
    homes = homes_of(raw)
    if len(homes) > 1:
        raise Malformed(f"it names {len(homes)} groups")
    return homes[0] if homes else ""
