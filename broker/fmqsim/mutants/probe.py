"""Runs in a copy of the sources, as a separate process: seeds, until one fails.

Writes a line of JSON for each seed to standard output, e.g.
`{"seed": 7, "broken": ["I2"], "reason": …}`.
"""

import json
import sys
from collections.abc import Iterable
from functools import partial

from e2e.checks.verdict import Outcome
from fmqsim.mutants.table import MUTANTS
from fmqsim.report.run import forked, simulate


def main(name: str, seeds: Iterable[int]) -> None:
    """Run them in order, one at a time, with that mutant's focus; stop at the first broken one."""
    (focus,) = {mutant.focus for mutant in MUTANTS if mutant.name == name}
    for result in forked(seeds, 1, partial(simulate, focus=focus)):
        broken = list(result.broken) if result.outcome is Outcome.BROKEN else []
        reason = result.findings[0] if result.findings else ""
        sys.stdout.write(
            json.dumps({"seed": result.seed, "broken": broken, "reason": reason}) + "\n"
        )
        sys.stdout.flush()
        if broken:
            return


if __name__ == "__main__":
    main(sys.argv[1], [int(seed) for seed in sys.argv[2:]])
