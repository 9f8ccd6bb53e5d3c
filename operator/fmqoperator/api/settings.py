"""A broker's settings as a resource names them: those of `fmq broker settings`, in camelCase. Pure.

Left out means the broker's own default. A test keeps names and bounds equal to the broker's.
"""

from typing import Annotated, Final

from pydantic import Field

from fmqoperator.api.base import Part, rules

MIB: Final = 1024 * 1024

DEFAULTS: Final = {
    "heartbeatMs": 500,
    "grantMs": 1500,
    "deadAfterMs": 5000,
    "redialMinMs": 50,
    "redialMaxMs": 2000,
    "sessionWindowBytes": 8 * MIB,
    "totalWindowBytes": 64 * MIB,
    "consumerHeartbeatMs": 3000,
    "consumerDeadAfterMs": 15_000,
}
"""What the broker takes for a setting that is not given, where two must fit together."""

_RISING: Final = (
    ("heartbeatMs", "grantMs"),
    ("heartbeatMs", "deadAfterMs"),
    ("redialMinMs", "redialMaxMs"),
    ("sessionWindowBytes", "totalWindowBytes"),
    ("consumerHeartbeatMs", "consumerDeadAfterMs"),
)


def _value(name: str) -> str:
    return f"(has(self.{name}) ? self.{name} : {DEFAULTS[name]})"


def _rising(small: str, large: str) -> tuple[str, str]:
    return (
        f"{_value(small)} <= {_value(large)}",
        f"settings.{small} may not be over settings.{large} (left out they are "
        f"{DEFAULTS[small]} and {DEFAULTS[large]}): lower the first or raise the second",
    )


class BrokerTuning(Part):
    """Settings of the brokers; a change restarts them one by one."""

    model_config = rules(*(_rising(*pair) for pair in _RISING))

    segment_bytes: Annotated[int | None, Field(multiple_of=4096)] = Field(
        default=None,
        ge=MIB // 16,
        le=4096 * MIB,
        description="Size of one journal file, a multiple of 4096.",
    )
    tail_cache_bytes: int | None = Field(
        default=None, ge=MIB, description="The newest bytes of the journal, kept in memory."
    )
    checkpoint_interval_ms: int | None = Field(
        default=None, ge=10, description="Between two checkpoints, which shorten a start."
    )
    retention_ms: int | None = Field(
        default=None, ge=0, description="Messages are kept so long at least; 0 = for ever."
    )
    retention_bytes: int | None = Field(
        default=None, ge=0, description="The journal is kept up to this size; 0 = no limit."
    )
    min_free_bytes: int | None = Field(
        default=None, ge=0, description="With less disk free, writes are refused and reads go on."
    )
    max_payload_bytes: int | None = Field(
        default=None, ge=1, le=1024 * 1024 - 4096, description="Largest payload of one batch."
    )
    max_records: int | None = Field(
        default=None, ge=1, le=100_000, description="Most records of one batch."
    )
    session_window_bytes: int | None = Field(
        default=None, ge=MIB, description="In flight for one producer; over it, it waits."
    )
    total_window_bytes: int | None = Field(
        default=None, ge=MIB, description="In flight for all producers together."
    )
    ack_timeout_ms: int | None = Field(
        default=None, ge=10, description="After that an unacknowledged batch is 'unknown'."
    )
    heartbeat_ms: int | None = Field(
        default=None, ge=10, description="Between two signs of life of master and slave."
    )
    dead_after_ms: int | None = Field(
        default=None, ge=50, description="A replication stream silent for so long is closed."
    )
    credit_bytes: int | None = Field(
        default=None, ge=2 * MIB, description="So much may be under way to a slave."
    )
    redial_min_ms: int | None = Field(
        default=None, ge=1, description="Shortest wait of a slave before it dials again."
    )
    redial_max_ms: int | None = Field(
        default=None, ge=1, description="Longest wait of a slave before it dials again."
    )
    learner_bytes_per_s: int | None = Field(
        default=None, ge=0, description="A slave that catches up gets so much; 0 = all it can."
    )
    in_sync_lag_bytes: int | None = Field(
        default=None, ge=0, description="A slave at most so far behind becomes in sync."
    )
    scan_bytes_per_s: int | None = Field(
        default=None, ge=0, description="Data jobs read so much of a broker; 0 = all they can."
    )
    scan_streams: int | None = Field(
        default=None, ge=0, description="So many ranges of a broker they read at a time; 0 = none."
    )
    session_timeout_ms: int | None = Field(
        default=None,
        ge=200,
        le=3_600_000,
        description="ZooKeeper's session timeout: how soon a loss is seen. The ensemble may give "
        "another: minSessionTimeout at least, which is two of its ticks if it is not set.",
    )
    grant_ms: int | None = Field(
        default=None,
        ge=50,
        le=3_600_000,
        description="How long a slave promises not to take over.",
    )
    claim_checks: int | None = Field(
        default=None, ge=1, description="So often a slave looks before it takes over the reads."
    )
    claim_interval_ms: int | None = Field(
        default=None, ge=10, description="Between two of these looks."
    )
    takeover_wait_ms: int | None = Field(
        default=None,
        ge=10,
        description="A returning master waits so long for the offsets of a reader that is gone.",
    )
    loop_stall_ms: int | None = Field(
        default=None, ge=50, description="A broker whose loop is later than that serves no more."
    )
    consumer_heartbeat_ms: int | None = Field(
        default=None,
        ge=50,
        le=3_600_000,
        description="Between two signs of life of a consumer.",
    )
    consumer_dead_after_ms: int | None = Field(
        default=None, ge=100, description="A consumer silent for so long loses its queues."
    )
    consumer_drain_ms: int | None = Field(
        default=None, ge=0, description="Acknowledgements of a queue that moves away still count."
    )
    consumer_ack_timeout_ms: int | None = Field(
        default=None, ge=100, description="A message not acknowledged by then comes again."
    )
    max_in_flight_records: int | None = Field(
        default=None, ge=1, description="Delivered and not acknowledged, of one queue."
    )
    max_ack_ranges: int | None = Field(
        default=None, ge=1, description="Acknowledged ranges ahead of the progress, of one queue."
    )
    offsets_interval_ms: int | None = Field(
        default=None, ge=1, description="Progress of consumers is gathered so long, then stored."
    )
    offsets_retention_ms: int | None = Field(
        default=None,
        ge=0,
        description="Progress of a consumer group without members is kept so long; 0 = for ever.",
    )
    takeover_checkpoint_ms: int | None = Field(
        default=None, ge=10, description="Between two checkpoints of a slave that serves reads."
    )
