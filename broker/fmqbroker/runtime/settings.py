"""A broker's settings: every limit stated, with its default and unit. Checked by pydantic."""

from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fmqcore.batch.header import MAX_PAYLOAD, MAX_RECORDS
from fmqcore.names import NAME_PATTERN

MIB = 1024 * 1024
_NAME = f"^{NAME_PATTERN}$"
_LISTEN = r"^$|^.+:[0-9]{1,5}$"


_RISING: Final = (
    ("heartbeat_ms", "grant_ms"),
    ("heartbeat_ms", "dead_after_ms"),
    ("redial_min_ms", "redial_max_ms"),
    ("session_window_bytes", "total_window_bytes"),
    ("consumer_heartbeat_ms", "consumer_dead_after_ms"),
)
"""The first of each pair is not over the second: the other way round it could not work."""


class BrokerSettings(BaseModel):
    """One broker. Group-wide things (members, policy) are in ZooKeeper, not here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cluster: str = Field(pattern=_NAME, description="Name of the cluster; its root in ZooKeeper.")
    group: str = Field(pattern=_NAME, description="Broker group that this broker belongs to.")
    broker: str = Field(pattern=_NAME, description="Id of this broker in its group.")
    data_dir: str = Field(min_length=1, description="Directory of the journal, for it alone.")
    zookeeper: str = Field(description="Where ZooKeeper is: `host:port[,host:port...][/root]`.")
    listen: str = Field(
        default="",
        pattern=_LISTEN,
        description="`host:port` for clients and brokers; empty: its address in the group.",
    )
    http_listen: str = Field(
        default="",
        pattern=_LISTEN,
        description="`host:port` of /livez, /readyz, /startupz, /metrics; empty: not served.",
    )

    # journal
    segment_bytes: int = Field(default=128 * MIB, ge=MIB // 16, le=4096 * MIB, multiple_of=4096)
    tail_cache_bytes: int = Field(default=32 * MIB, ge=MIB)
    checkpoint_interval_ms: int = Field(default=2000, ge=10)
    retention_ms: int = Field(default=7 * 24 * 3600 * 1000, ge=0)  # 0 = for ever
    retention_bytes: int = Field(default=0, ge=0)  # 0 = no limit
    min_free_bytes: int = Field(default=64 * MIB, ge=0)  # below: refuse writes, serve reads

    # produce
    max_payload_bytes: int = Field(default=MAX_PAYLOAD, ge=1, le=MAX_PAYLOAD)
    max_records: int = Field(default=MAX_RECORDS, ge=1, le=MAX_RECORDS)
    session_window_bytes: int = Field(default=8 * MIB, ge=MIB)
    total_window_bytes: int = Field(default=64 * MIB, ge=MIB)
    ack_timeout_ms: int = Field(default=10_000, ge=10)

    # replication
    heartbeat_ms: int = Field(default=500, ge=10)
    dead_after_ms: int = Field(default=5000, ge=50)
    credit_bytes: int = Field(default=32 * MIB, ge=2 * MIB)
    redial_min_ms: int = Field(default=50, ge=1)
    redial_max_ms: int = Field(default=2000, ge=1)
    learner_bytes_per_s: int = Field(default=64 * MIB, ge=0)  # 0 = no throttle
    in_sync_lag_bytes: int = Field(default=MIB, ge=0)  # at most so far behind to enter the isr

    # stored segments for data jobs, all streams of this broker together
    scan_bytes_per_s: int = Field(default=64 * MIB, ge=0)  # 0 = no throttle
    scan_streams: int = Field(default=8, ge=0)  # at a time; 0 = none are served

    # failover
    session_timeout_ms: int = Field(default=2000, ge=200, le=3_600_000)
    grant_ms: int = Field(default=1500, ge=50, le=3_600_000)
    claim_checks: int = Field(default=2, ge=1)
    claim_interval_ms: int = Field(default=250, ge=10)
    takeover_wait_ms: int = Field(default=10_000, ge=10)  # the taker is gone: wait so long
    loop_stall_ms: int = Field(default=1000, ge=50)  # a loop later than that renews no lease

    # consume
    consumer_heartbeat_ms: int = Field(default=3000, ge=50, le=3_600_000)
    consumer_dead_after_ms: int = Field(default=15_000, ge=100)
    consumer_drain_ms: int = Field(default=2000, ge=0)  # acks of a queue that moves away count
    consumer_ack_timeout_ms: int = Field(default=60_000, ge=100)
    max_in_flight_records: int = Field(default=20_000, ge=1)  # per queue
    max_ack_ranges: int = Field(
        default=1000, ge=1
    )  # acked ahead of the committed offset, per queue
    offsets_interval_ms: int = Field(default=50, ge=1)  # offset commits are gathered so long
    # progress of a consumer group without members is kept so long; 0 = for ever
    offsets_retention_ms: int = Field(default=7 * 24 * 3600 * 1000, ge=0)
    takeover_checkpoint_ms: int = Field(default=1000, ge=10)

    @field_validator("listen", "http_listen")
    @classmethod
    def _can_be_a_port(cls, address: str) -> str:
        """`bind` takes the number modulo 2**16: the broker would listen on another port."""
        if address and int(address.rpartition(":")[2]) > 65_535:
            raise ValueError("the port is over 65535")
        return address

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        for small, large in _RISING:
            if getattr(self, small) > getattr(self, large):
                raise ValueError(
                    f"{small} is {getattr(self, small)}, it may not be over {large}, "
                    f"which is {getattr(self, large)}"
                )
        return self
