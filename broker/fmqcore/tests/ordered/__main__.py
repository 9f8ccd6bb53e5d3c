"""Explore the large worlds of ordered topics, and print how many states each has.

python -m fmqcore.tests.ordered [--only NAME] [--limit STATES]
"""

import argparse
import sys
import time

from fmqcore.tests.ordered.ways import explore
from fmqcore.tests.ordered.worlds import LARGE, SMALL


def main(arguments: list[str]) -> int:
    """Return 1 if a property is broken; the shortest way to it is printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="worlds whose name has this text")
    parser.add_argument("--limit", type=int, default=3_000_000, help="most states of one world")
    given = parser.parse_args(arguments)
    total = 0
    for each in (*SMALL, *LARGE):
        if given.only not in each.name:
            continue
        since = time.monotonic()
        found = explore(each.world(), each.protocol, each.size, given.limit)
        total += found.states
        ending = "to the end" if found.complete else "not to the end"
        seconds = time.monotonic() - since
        print(
            f"{each.name}: {found.states:,} states, {ending}, depth {found.depth}, {seconds:.0f} s"
        )
        if found.way:
            print("\n".join(found.way))
            return 1
        sys.stdout.flush()
    print(f"{total:,} states in all, no property broken")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
