"""`python -m e2e.dashboards`: draw the overview under load and the loss of a master.

Two groups of one master and one slave, a producer and a consumer, a Prometheus; half way one master
is killed (kill -9), and later started again. Exit status: 0 drawn, 1 a panel was empty, 2 there is
no prometheus here.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from e2e.dashboards.chart import BOARDS, FILES, OF_BROKERS, panels
from e2e.dashboards.drawing import draw, series
from e2e.dashboards.prometheus import NEEDED, available, prometheus
from e2e.dashboards.watched_cluster import load, watched
from fmqdev.cluster_plan import ClusterOptions

VICTIM = "g1-0"


def main() -> int:
    """Draw the requested dashboard and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m e2e.dashboards", description="Draw dashboards."
    )
    parser.add_argument("--out", type=Path, default=Path("build/overview.png"), metavar="FILE")
    parser.add_argument("--board", choices=OF_BROKERS, default=BOARDS[0])
    parser.add_argument("--seconds", type=int, default=60, help="seconds of traffic (default 60)")
    asked = parser.parse_args()
    if not available():
        print(NEEDED, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="fmq-seeing-") as folder:
        empty = asyncio.run(_story(Path(folder), asked.board, asked.out, max(asked.seconds, 30)))
    for title in empty:
        print(f"empty: {title}", file=sys.stderr)
    print(f"{asked.out}: {len(panels(asked.board))} panels")
    return 1 if empty else 0


async def _story(folder: Path, board: str, out: Path, seconds: int) -> list[str]:
    """Draw the dashboard; return the titles of empty panels."""
    (folder / "p").mkdir()
    async with watched(folder / "cluster", ClusterOptions(settings={"retention_ms": 0})) as cluster:
        with prometheus(folder / "p", cluster.targets(), FILES / "rules.yaml") as found:
            start_s, marks = time.time(), []

            def mark(what: str) -> None:
                marks.append((time.time() - start_s, what))
                print(f"{marks[-1][0]:.0f} s: {what}", flush=True)

            async with load(cluster):
                await asyncio.sleep(seconds * 0.4)
                cluster.kill(VICTIM)
                await cluster.ended(VICTIM)
                mark(f"kill -9 {VICTIM}")
                await asyncio.sleep(seconds * 0.3)
                cluster.start_broker(VICTIM)
                mark(f"start {VICTIM}")
                await asyncio.sleep(seconds * 0.3)
            ended_s = time.time()
            shown = [(p, series(found, p, start_s, ended_s)) for p in panels(board, "5s")]
    draw(f"{shown[0][0].board}, {seconds} s of traffic", shown, marks, out)
    return [panel.title for panel, lines in shown if not lines]


if __name__ == "__main__":
    sys.exit(main())
