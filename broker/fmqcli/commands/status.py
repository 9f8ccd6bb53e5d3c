"""`fmq status`: the cluster on one screen, and whether it is healthy by the exit status.

Healthy: every group serves reads and takes messages, as its brokers say of themselves (the same
definition as `/readyz` and the metric `fmq_serves`).
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import typer

from fmqcli.common import (
    BROKERS,
    FAILED,
    Brokers,
    Output,
    OutputOption,
    client,
    counted,
    run,
    show,
    talk,
)
from fmqcli.read_end import withheld_sentence
from fmqclient.admin.infos import BrokerStatus
from fmqcore.ids import Permission


def status(output: OutputOption = Output.TABLE, brokers: Brokers = BROKERS) -> None:
    """Show every group and broker: who is master, who serves what, how far behind, and why.

    Exit status 0: every group serves reads and takes messages. 1: one does not (standard
    error names it). 69: no broker answers.
    """

    async def work() -> tuple[list[BrokerStatus], int]:
        async with client(brokers) as connected:
            admin = connected.admin()
            return await admin.status(), len(await admin.topics())

    rows, topics = run(work)
    lags = {r.broker: r for row in rows for r in row.replicas}
    cells = [_cells(row, lags.get(row.broker)) for row in rows]
    columns = ("GROUP", "BROKER", "ROLE", "SERVES", "MODE", "EPOCH", "END", "LAG", "ISR", "REASON")
    show(output, columns, cells, [_json(row) for row in rows])
    groups = sorted({row.group for row in rows})
    names = ", ".join(sorted({row.cluster for row in rows if row.cluster})) or "the cluster"
    found = (counted(len(groups), "group"), counted(len(rows), "broker"), counted(topics, "topic"))
    talk(f"{names}: {', '.join(found)}")
    troubles = [trouble for group in groups for trouble in troubles_of(rows, group)]
    for trouble in troubles or ([] if groups else ["there is no group"]):
        talk(trouble)
    raise typer.Exit(FAILED if troubles or not groups else 0)


def troubles_of(rows: Sequence[BrokerStatus], group: str) -> list[str]:
    """What a group does not do, one sentence each; nothing: it is healthy."""
    reached = [row for row in rows if row.group == group and not row.error]
    troubles = []
    if not any(row.serves & Permission.READ for row in reached):
        troubles.append(f"group {group}: no broker serves READ")
    if not any(row.takes_messages for row in reached):
        reason = next(
            (row.unwritable_reason for row in reached if row.permission & Permission.WRITE), ""
        )
        troubles.append(f"group {group}: takes no messages: {reason or 'no broker serves WRITE'}")
    troubles += [
        withheld_sentence(
            group,
            row.withheld_records,
            f"on {row.broker}, up to position {row.end:,},",
            row.withheld_reason,
        )
        for row in reached
        if row.withheld_records
    ]
    return troubles


def _cells(row: BrokerStatus, replica: Any) -> tuple[Any, ...]:
    if row.error:
        where = f"does not answer at {row.address}"
        return row.group, row.broker, "?", "?", row.mode, row.epoch, "", "", "", where
    # How far a slave is, is unknown until it has reported in this term.
    unknown = replica is not None and not replica.durable_end and replica.lag_bytes
    lag = "" if replica is None else "?" if unknown else f"{replica.lag_bytes:,} B"
    in_sync = "" if replica is None else ("yes" if replica.in_sync else "no")
    return (
        row.group,
        row.broker,
        row.role,
        row.serves.name,
        row.mode,
        row.epoch,
        f"{row.end:,}",
        lag,
        in_sync,
        row.reason,
    )


def _json(row: BrokerStatus) -> dict[str, Any]:
    return asdict(row) | {
        "permission": row.permission.name,
        "serves": row.serves.name,
        "takes_messages": row.takes_messages,
    }
