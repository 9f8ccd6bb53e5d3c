"""One broker of a development cluster: its command line, its status, its log's end."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmqdev.cluster_plan import BrokerPlan, ClusterOptions
from fmqdev.processes import Child
from fmqport.transport import TransportError
from fmqproto.v1 import admin_pb2
from fmqwire.methods import STATUS


def broker_command(options: ClusterOptions, plan: BrokerPlan) -> list[str]:
    """Return the command that starts a broker."""
    fields: dict[str, Any] = {
        "cluster": options.cluster,
        "group": plan.group,
        "broker": plan.id,
        "data-dir": plan.data,
        "zookeeper": plan.zookeeper,
        "listen": plan.listen,
    }
    command = [sys.executable, "-m", "fmqcli.main", "broker", "run"]
    for name, value in fields.items():
        command += [f"--{name}", str(value)]
    for name, value in options.settings.items():
        command += ["--set", f"{name}={value}"]
    return command


@dataclass(slots=True)
class BrokerStatus:
    """One broker as seen from outside; `reply` is None if it does not answer."""

    plan: BrokerPlan
    alive: bool
    pid: int
    reply: admin_pb2.StatusReply | None


async def ask(plan: BrokerPlan, child: Child | None) -> BrokerStatus:
    """Ask the broker at its own port, past any link; `child` is its process, if any."""
    from fmqadapters.grpc import GrpcTransport

    status = BrokerStatus(
        plan, child is not None and child.alive(), child.pid if child else 0, None
    )
    if status.alive:
        connection = GrpcTransport().connect(plan.listen)
        try:
            status.reply = await connection.call(STATUS, admin_pb2.StatusRequest(), 2.0)
        except TransportError:
            pass  # starting, stopped by SIGSTOP, or busy dying
        finally:
            await connection.close()
    return status


def tail(log: Path, lines: int = 5) -> str:
    """Return the last lines of a log, for an error message."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except FileNotFoundError:
        return "(no log)"
