"""The reply to the status call, from a broker snapshot alone."""

from fmqbroker.admin.snapshot import BrokerSnapshot, Served
from fmqbroker.produce.intake import Cause
from fmqcore.ids import Role
from fmqcore.version import VERSION
from fmqproto.v1 import admin_pb2


def status_reply(broker: BrokerSnapshot, withheld_records: int = 0) -> admin_pb2.StatusReply:
    """Return the status of the broker in that snapshot. `withheld_records`: counted beside it."""
    role = Role.MASTER if broker.broker == broker.master else Role.SLAVE
    state, positions, refusal = broker.state, broker.positions, broker.refusal
    return admin_pb2.StatusReply(
        cluster=broker.cluster,
        group=broker.group,
        broker=broker.broker,
        role=role.value,
        permission=int(broker.granted),
        mode=state.mode.value,
        epoch=state.epoch,
        reason=reason_of(broker),
        journal_start=positions.start,
        end=positions.end,
        durable_end=positions.durable,
        commit_end=positions.commit,
        replicas=_replicas(broker) if role is Role.MASTER else [],
        version=VERSION,
        uptime_ms=broker.uptime_ms,
        zookeeper_connected=broker.zookeeper_connected,
        reader=state.reader,
        master=state.master,
        disk_full_reason=broker.disk_full_reason,
        unwritable_reason="" if refusal is None else refusal.reason,
        damage=broker.damage,
        served_periods=_periods(broker.served),
        withheld_reason=broker.withheld_reason if withheld_records else "",
        withheld_records=withheld_records,
        remedy=admin_pb2.Remedy.Name(broker.remedy.value),
    )


def reason_of(broker: BrokerSnapshot) -> str:
    """Return why the broker serves what it serves, with warnings for people."""
    refusal, reason = broker.refusal, broker.grant_reason
    if broker.damage:
        return f"its journal is damaged: {broker.damage}"
    if broker.clock_doubt is not None:
        reason = f"{reason}; nothing is deleted by age: {broker.clock_doubt}"
    if refusal is None or refusal.cause is Cause.ROLE:
        return reason
    return f"{reason}; it takes no messages: {refusal.reason}"


def _replicas(broker: BrokerSnapshot) -> list[admin_pb2.ReplicaStatus]:
    return [
        admin_pb2.ReplicaStatus(
            broker=slave.broker,
            connected=slave.connected,
            in_sync=slave.in_sync,
            received_end=slave.received_end,
            durable_end=slave.durable_end,
            lag_bytes=max(broker.positions.end - slave.durable_end, 0),
        )
        for slave in broker.slaves
    ]


def _periods(served: Served) -> admin_pb2.ServedPeriods:
    """Return the periods; a field that is None stays unset."""
    return admin_pb2.ServedPeriods(**served._asdict())
