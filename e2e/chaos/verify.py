"""Run `fmq journal verify` on each broker's data, as a person would."""

import asyncio
import sys

from e2e.chaos.cluster import ChaosCluster


async def verify_all(cluster: ChaosCluster) -> list[str]:
    """Return the findings that are no warnings."""
    found = []
    for broker, plan in cluster.brokers.items():
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "fmqcli.main", "journal", "verify", str(plan.data)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        if process.returncode not in (0, 1):  # 1: warnings, which heal at the next start
            found.append(f"fmq journal verify {broker}: {output.decode(errors='replace')[-500:]}")
    return found
