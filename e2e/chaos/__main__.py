"""`python -m e2e.chaos`: hurt a cluster of real processes in every way there is, and judge it."""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from e2e.chaos.arena import Options, arena
from e2e.chaos.failovers import Failovers
from e2e.chaos.fault import Fault
from e2e.chaos.faults import FAULTS
from e2e.chaos.filling import Filling
from e2e.chaos.ground import Ground, enter
from e2e.chaos.report import OUTCOMES, last_line, table, whole_run, write
from e2e.chaos.run import Run
from e2e.chaos.soaking import soak


def main(arguments: list[str]) -> int:
    """Run the requested command; return 0 if nothing failed."""
    given = _parse(arguments)
    if not given.loopback:
        enter(arguments)
    ground = Ground(loopback=given.loopback)
    if given.list:
        for fault in FAULTS:
            reason = fault.available(ground)
            print(f"{fault.name:24} {fault.what}" + (f" [not here: {reason}]" if reason else ""))
        return 0
    directory = Path(given.dir or tempfile.mkdtemp(prefix="fmq-chaos-")).absolute()
    options = Options(
        directory,
        seed=given.seed,
        seconds=given.soak or given.seconds,
        groups=given.groups,
        slaves=given.slaves,
        zookeepers=given.zookeepers,
        say=_say,
    )
    where = "in network namespaces" if ground.namespaces is None else "on loopback"
    _say(f"{where}; seed {given.seed}; logs and data: {directory}")
    good = False
    try:
        good = asyncio.run(_do(given, options, ground))
    except KeyboardInterrupt:
        _say("interrupted")
    finally:
        if good and not given.dir:
            shutil.rmtree(directory, ignore_errors=True)
        elif not good:
            _say(f"kept: {directory}; again: python -m e2e.chaos --seed {given.seed} ...")
    return 0 if good else 1


async def _do(given: argparse.Namespace, options: Options, ground: Ground) -> bool:
    if given.soak:
        came = await soak(options, ground)
        print("\n".join(came.lines()))
        return not came.findings and not came.too_little
    if given.fill:
        return await _fill(given, options, ground)
    if given.failovers:
        return await _failovers(given, options, ground)
    run = Run(options, ground)
    try:
        await run.play(_chosen(given.only))
    finally:
        write(options.directory / OUTCOMES, run.outcomes)
        print(table(run.outcomes))
        good, summary = whole_run(run.outcomes, run.findings, all_faults=not given.only)
        print(summary)
        print(last_line(run.outcomes))
    return good


async def _failovers(given: argparse.Namespace, options: Options, ground: Ground) -> bool:
    options.settings = {}
    async with arena(options, ground, options.directory / "failovers", disks=False) as found:
        measuring = Failovers(found.cluster)
        try:
            await measuring.run(given.failovers, max(1, given.failovers // 5), _say)
        finally:
            print("\n".join(measuring.figures.lines()))
    return True


async def _fill(given: argparse.Namespace, options: Options, ground: Ground) -> bool:
    options.settings, options.slaves = {}, max(2, options.slaves)
    async with arena(options, ground, options.directory / "fill", disks=False) as found:
        print("\n".join(await Filling(found.cluster).run(given.fill, _say)))
    return True


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos", description=__doc__)
    parser.add_argument(
        "--list", action="store_true", help="list the faults, and which this machine can make"
    )
    parser.add_argument(
        "--only", action="append", default=[], help="run only this fault; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each fault lasts")
    parser.add_argument("--soak", type=float, help="make random faults for this many seconds")
    parser.add_argument("--failovers", type=int, help="measure this number of kills of a master")
    parser.add_argument(
        "--fill", type=int, help="measure the copy of this many MiB to an empty slave"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the random faults")
    parser.add_argument("--groups", type=int, default=2)
    parser.add_argument("--slaves", type=int, default=1, help="slaves in each group")
    parser.add_argument("--zookeepers", type=int, default=3, help="ZooKeeper servers")
    parser.add_argument(
        "--loopback", action="store_true", help="use no network namespaces, as without root"
    )
    parser.add_argument("--dir", help="directory for logs and data, which are kept")
    return parser.parse_args(arguments)


def _chosen(names: list[str]) -> list[type[Fault]]:
    known = {fault.name: fault for fault in FAULTS}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"unknown fault {', '.join(unknown)}; choose from {', '.join(known)}")
    return [known[name] for name in names] if names else list(FAULTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
