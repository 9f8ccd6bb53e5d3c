"""`python -m e2e.chaos`: hurt a cluster of real processes in every way there is, and judge it."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from e2e.chaos.fault import Fault
from e2e.chaos.faults import FAULTS
from e2e.chaos.ground import Ground, enter
from e2e.chaos.judge import Verdict
from e2e.chaos.report import last_line, table
from e2e.chaos.run import Options, Run


def main(arguments: list[str]) -> int:
    """0 if nothing failed."""
    enter(arguments)
    given = _parse(arguments)
    ground = Ground()
    if given.list:
        for fault in FAULTS:
            reason = fault.available(ground)
            print(f"{fault.name:24} {fault.what}" + (f" [not here: {reason}]" if reason else ""))
        return 0
    directory = Path(given.dir or tempfile.mkdtemp(prefix="fmq-chaos-")).absolute()
    options = Options(
        directory,
        seed=given.seed,
        seconds=given.seconds,
        groups=given.groups,
        slaves=given.slaves,
        zookeepers=given.zookeepers,
        say=_say,
    )
    where = "in network namespaces" if ground.namespaces is None else "on loopback"
    _say(f"{where}; seed {given.seed}; logs and data: {directory}")
    run = Run(options, ground)
    try:
        asyncio.run(run.play(_chosen(given.only)))
    except KeyboardInterrupt:
        _say("interrupted")
    print(table(run.outcomes))
    failed = any(o.verdict in (Verdict.FAILED, Verdict.UNKNOWN) for o in run.outcomes)
    if not failed and not given.dir:
        shutil.rmtree(directory, ignore_errors=True)
    elif failed:
        print(f"kept: {directory}; again: python -m e2e.chaos --seed {given.seed} --only NAME")
    print(last_line(run.outcomes))
    return 1 if failed else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos", description=__doc__)
    parser.add_argument("--list", action="store_true", help="the faults, and which can be made")
    parser.add_argument("--only", action="append", default=[], help="this fault (or many)")
    parser.add_argument("--seconds", type=float, default=10.0, help="each fault stands so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--slaves", type=int, default=1)
    parser.add_argument("--zookeepers", type=int, default=3)
    parser.add_argument("--dir", help="where logs and data lie; kept")
    return parser.parse_args(arguments)


def _chosen(names: list[str]) -> list[type[Fault]]:
    known = {fault.name: fault for fault in FAULTS}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no fault {', '.join(unknown)}; there are: {', '.join(known)}")
    return [known[name] for name in names] if names else list(FAULTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
