"""`fmq status`: the cluster on one screen."""

from dataclasses import asdict
from typing import Any

from fmqclient.cli.common import (
    BROKERS,
    Brokers,
    Output,
    OutputOption,
    client,
    counted,
    run,
    show,
    talk,
)
from fmqclient.infos import BrokerStatus
from fmqcore.words import Permission


def status(output: OutputOption = Output.TABLE, brokers: Brokers = BROKERS) -> None:
    """Show every group and broker: who is master, who serves what, how far behind, and why."""

    async def work() -> tuple[list[BrokerStatus], int]:
        async with client(brokers) as connected:
            admin = connected.admin()
            return await admin.status(), len(await admin.topics())

    rows, topics = run(work)
    lags = {r.broker: r for row in rows for r in row.replicas}
    cells = [_cells(row, lags.get(row.broker)) for row in rows]
    columns = ("GROUP", "BROKER", "ROLE", "PERMISSION", "MODE", "EPOCH", "END", "LAG", "ISR", "WHY")
    show(output, columns, cells, [_json(row) for row in rows])
    groups = sorted({row.group for row in rows})
    names = ", ".join(sorted({row.cluster for row in rows if row.cluster})) or "the cluster"
    found = (counted(len(groups), "group"), counted(len(rows), "broker"), counted(topics, "topic"))
    talk(f"{names}: {', '.join(found)}")
    for group in groups:
        missing = Permission.FULL
        for row in rows:
            if row.group == group and not row.error:
                missing &= ~row.permission
        if missing:
            talk(f"group {group}: nobody serves {missing.name}")


def _cells(row: BrokerStatus, replica: Any) -> tuple[Any, ...]:
    if row.error:
        where = f"does not answer at {row.address}"
        return row.group, row.broker, "?", "?", row.mode, row.epoch, "", "", "", where
    # Of a slave that has said nothing yet in this term nobody knows how far it is.
    unknown = replica is not None and not replica.durable_end and replica.lag_bytes
    lag = "" if replica is None else "?" if unknown else f"{replica.lag_bytes:,} B"
    in_sync = "" if replica is None else ("yes" if replica.in_sync else "no")
    return (
        row.group,
        row.broker,
        row.role,
        row.permission.name,
        row.mode,
        row.epoch,
        f"{row.end:,}",
        lag,
        in_sync,
        row.why,
    )


def _json(row: BrokerStatus) -> dict[str, Any]:
    return asdict(row) | {"permission": row.permission.name}
