"""A broker's settings, checked by pydantic. Limits, defaults, units: `fmqcore/settings_spec.py`."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fmqcore.names import NAME_PATTERN
from fmqcore.settings_spec import RISING, SETTINGS

_NAME = f"^{NAME_PATTERN}$"
_LISTEN = r"^$|^.+:[0-9]{1,5}$"


def _setting(name: str) -> Any:
    """Return the field of a setting, from its row."""
    row = SETTINGS[name]
    return Field(default=row.default, ge=row.low, le=row.high, multiple_of=row.multiple_of)


class BrokerSettings(BaseModel):
    """The settings of one broker. The group settings (members, policy) are in ZooKeeper."""

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
    segment_bytes: int = _setting("segment_bytes")
    tail_cache_bytes: int = _setting("tail_cache_bytes")
    checkpoint_interval_ms: int = _setting("checkpoint_interval_ms")
    retention_ms: int = _setting("retention_ms")
    retention_bytes: int = _setting("retention_bytes")
    min_free_bytes: int = _setting("min_free_bytes")

    # produce
    max_payload_bytes: int = _setting("max_payload_bytes")
    max_records: int = _setting("max_records")
    session_window_bytes: int = _setting("session_window_bytes")
    total_window_bytes: int = _setting("total_window_bytes")
    ack_timeout_ms: int = _setting("ack_timeout_ms")

    # replication
    heartbeat_ms: int = _setting("heartbeat_ms")
    dead_after_ms: int = _setting("dead_after_ms")
    credit_bytes: int = _setting("credit_bytes")
    redial_min_ms: int = _setting("redial_min_ms")
    redial_max_ms: int = _setting("redial_max_ms")
    learner_bytes_per_s: int = _setting("learner_bytes_per_s")
    in_sync_lag_bytes: int = _setting("in_sync_lag_bytes")

    # stored segments for data jobs, all streams of a broker together
    scan_bytes_per_s: int = _setting("scan_bytes_per_s")
    scan_streams: int = _setting("scan_streams")

    # failover
    session_timeout_ms: int = _setting("session_timeout_ms")
    grant_ms: int = _setting("grant_ms")
    claim_checks: int = _setting("claim_checks")
    claim_interval_ms: int = _setting("claim_interval_ms")
    takeover_wait_ms: int = _setting("takeover_wait_ms")
    loop_stall_ms: int = _setting("loop_stall_ms")

    # consume
    consumer_heartbeat_ms: int = _setting("consumer_heartbeat_ms")
    consumer_dead_after_ms: int = _setting("consumer_dead_after_ms")
    consumer_drain_ms: int = _setting("consumer_drain_ms")
    consumer_ack_timeout_ms: int = _setting("consumer_ack_timeout_ms")
    max_in_flight_records: int = _setting("max_in_flight_records")
    max_ack_ranges: int = _setting("max_ack_ranges")
    offsets_interval_ms: int = _setting("offsets_interval_ms")
    offsets_retention_ms: int = _setting("offsets_retention_ms")
    takeover_checkpoint_ms: int = _setting("takeover_checkpoint_ms")

    @field_validator("listen", "http_listen")
    @classmethod
    def _can_be_a_port(cls, address: str) -> str:
        """`bind` takes the number modulo 2**16: the broker would listen on another port."""
        if address and int(address.rpartition(":")[2]) > 65_535:
            raise ValueError("the port is above 65535")
        return address

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        for small, large in RISING:
            if getattr(self, small) > getattr(self, large):
                raise ValueError(
                    f"{small} is {getattr(self, small)}, it may not be over {large}, "
                    f"which is {getattr(self, large)}"
                )
        return self
