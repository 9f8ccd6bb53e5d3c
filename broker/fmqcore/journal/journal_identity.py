"""The identity of a data directory: its group, its brokers, and their promises. Pure.

On disk: the file `incarnations`, one item a line, in any order: the group and cluster that the
directory belongs to (`cluster/group`), for how long its brokers promised their master to claim
nothing (`grant_ms=`), and its last brokers' incarnations (16 hexadecimal digits).
`fmqbroker.serving.identity` maintains it.
"""

import re
from typing import Final

from fmqcore.errors import Malformed

INCARNATIONS: Final = "incarnations"
"""The file's name."""
GRANT: Final = "grant_ms="

_HOME: Final = re.compile(r"[!-.0-~]+/[!-.0-~]+")
_OTHER: Final = re.compile(r"grant_ms=[0-9]{1,12}|[0-9a-f]{16}")


def homes_of(raw: bytes) -> list[str]:
    """Return the groups named in the file. A broker that starts refuses if the first one is not its
    own."""
    return [line for line in raw.decode("ascii", "replace").split() if "/" in line]


def is_home(line: str) -> bool:
    """Whether a line may name a group."""
    return _HOME.fullmatch(line) is not None


def decode_home(raw: bytes) -> str:
    """Return the group of the directory; "" if the file names none. Raise `Malformed` if a line is
    not a broker's, or if the file is empty: each start leaves at least one line.
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
