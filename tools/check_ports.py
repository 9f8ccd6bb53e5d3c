"""Check calls that go past the ports, which an import checker cannot see.

| where | what must not be called | instead |
|---|---|---|
| everywhere | `asyncio.wait_for` (3.11 may swallow a cancellation) | `asyncio.timeout` |
| core and shells | `open`, `input`, the date, sockets, threads, processes, signals | the ports |

The shells are `fmqbroker` and `fmqclient`; tests and the simulator's own
code may do as they like.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

EVERYWHERE = {
    "asyncio.wait_for": "use asyncio.timeout: wait_for can swallow a cancellation on Python 3.11",
}
PAST_THE_PORTS = {
    "open": "files are the disk port's",
    "input": "no one is there to answer",
    "datetime.now": "the time is the clock port's",
    "datetime.today": "the time is the clock port's",
    "datetime.utcnow": "the time is the clock port's",
    "date.today": "the time is the clock port's",
    "uuid.uuid1": "chance is the clock port's",
    "uuid.uuid4": "chance is the clock port's",
    "asyncio.create_subprocess_exec": "processes are an adapter's",
    "asyncio.create_subprocess_shell": "processes are an adapter's",
    "asyncio.open_connection": "connections are the transport port's",
    "asyncio.open_unix_connection": "connections are the transport port's",
    "asyncio.start_server": "servers are the transport port's",
    "asyncio.start_unix_server": "servers are the transport port's",
    "asyncio.to_thread": "threads are an adapter's",
    "*.run_in_executor": "threads are an adapter's",
    "*.add_signal_handler": "signals are the lifecycle port's",
    "*.add_reader": "descriptors are an adapter's",
    "*.add_writer": "descriptors are an adapter's",
}
_EDGES = ("fmqadapters", "fmqport", "fmqinspect", "fmqdev", "fmqcli", "fmqsim")


def main() -> int:
    """Print what is wrong; 1 if anything is."""
    found = [line for path in sorted((ROOT / "broker").rglob("*.py")) for line in check(path)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def check(path: Path) -> Iterator[str]:
    """What one file must not call."""
    parts = path.relative_to(ROOT / "broker").parts
    free = parts[0] in _EDGES
    forbidden = EVERYWHERE if free or "tests" in parts else EVERYWHERE | PAST_THE_PORTS
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.rpartition(".")
            reason = forbidden.get(name) or (last[1] and forbidden.get(f"*.{last[2]}"))
            if reason:
                yield f"{path.relative_to(ROOT)}:{node.lineno}: {name}(): {reason}"


if __name__ == "__main__":
    sys.exit(main())
