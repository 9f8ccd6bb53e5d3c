"""The settings of a broker that are numbers: one row per setting. Pure.

Read by the broker's model (`fmqbroker/runtime/settings.py`), the custom resource
(`operator/fmqoperator/api/settings.py`) and `docs/reference/settings.md`. A new setting is a row
here and a field in both models.
"""

from dataclasses import dataclass
from typing import Final

from fmqcore.batch.header import MAX_PAYLOAD, MAX_RECORDS

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SettingSpec:
    """One row. All are whole numbers; the bounds are allowed values."""

    name: str
    default: int
    low: int
    unit: str  # of the number; "" for a count
    text: str  # the meaning, for people
    high: int | None = None
    multiple_of: int | None = None
    restart: bool = True  # a change counts from the broker's next start


_ROWS: Final = (
    # journal
    SettingSpec("segment_bytes", 128 * MIB, MIB // 16, "bytes",
        "Size of one journal file, a multiple of 4096.", high=4096 * MIB, multiple_of=4096),
    SettingSpec("tail_cache_bytes", 32 * MIB, MIB, "bytes",
        "The newest bytes of the journal, kept in memory."),
    SettingSpec("checkpoint_interval_ms", 2000, 10, "ms",
        "Between two checkpoints, which shorten a start."),
    SettingSpec("retention_ms", 7 * 24 * 3600 * 1000, 0, "ms",
        "Least time for which messages are kept; 0 = for ever."),
    SettingSpec("retention_bytes", 0, 0, "bytes",
        "The journal is kept up to this size; 0 = no limit."),
    SettingSpec("min_free_bytes", 64 * MIB, 0, "bytes",
        "With less disk free, writes are refused and reads go on."),
    # produce
    SettingSpec("max_payload_bytes", MAX_PAYLOAD, 1, "bytes",
        "Largest payload of one batch.", high=MAX_PAYLOAD),
    SettingSpec("max_records", MAX_RECORDS, 1, "records",
        "Most records of one batch.", high=MAX_RECORDS),
    SettingSpec("session_window_bytes", 8 * MIB, MIB, "bytes",
        "In flight for one producer; over it, it waits."),
    SettingSpec("total_window_bytes", 64 * MIB, MIB, "bytes",
        "In flight for all producers together."),
    SettingSpec("ack_timeout_ms", 10_000, 10, "ms",
        "After that an unacknowledged batch is 'unknown'."),
    # replication
    SettingSpec("heartbeat_ms", 500, 10, "ms",
        "Between two signs of life of master and slave."),
    SettingSpec("dead_after_ms", 5000, 50, "ms",
        "A replication stream silent for so long is closed."),
    SettingSpec("credit_bytes", 32 * MIB, 2 * MIB, "bytes",
        "So much may be under way to a slave."),
    SettingSpec("redial_min_ms", 50, 1, "ms",
        "Shortest wait of a slave before it dials again."),
    SettingSpec("redial_max_ms", 2000, 1, "ms",
        "Longest wait of a slave before it dials again."),
    SettingSpec("learner_bytes_per_s", 64 * MIB, 0, "bytes/s",
        "Rate limit of a slave that catches up; 0 = no limit."),
    SettingSpec("in_sync_lag_bytes", MIB, 0, "bytes",
        "A slave at most so far behind becomes in sync."),
    # stored segments for data jobs, all streams of a broker together
    SettingSpec("scan_bytes_per_s", 64 * MIB, 0, "bytes/s",
        "Data jobs read so much of a broker; 0 = all they can."),
    SettingSpec("scan_streams", 8, 0, "",
        "So many ranges of a broker they read at a time; 0 = none."),
    # failover
    SettingSpec("session_timeout_ms", 2000, 200, "ms",
        "ZooKeeper's session timeout: how soon a loss is seen. The ensemble may grant another: "
        "minSessionTimeout at least, by default twice its tickTime.", high=3_600_000),
    SettingSpec("grant_ms", 1500, 50, "ms",
        "How long a slave promises not to take over.", high=3_600_000),
    SettingSpec("claim_checks", 2, 1, "",
        "So often a slave looks before it takes over the reads."),
    SettingSpec("claim_interval_ms", 250, 10, "ms",
        "Between two of these looks."),
    SettingSpec("takeover_wait_ms", 10_000, 10, "ms",
        "A returning master waits so long for the offsets of a reader that is gone."),
    SettingSpec("loop_stall_ms", 1000, 50, "ms",
        "A broker whose event loop is late by more than this stops serving."),
    # consume
    SettingSpec("consumer_heartbeat_ms", 3000, 50, "ms",
        "Between two signs of life of a consumer.", high=3_600_000),
    SettingSpec("consumer_dead_after_ms", 15_000, 100, "ms",
        "A consumer silent for so long loses its queues."),
    SettingSpec("consumer_drain_ms", 2000, 0, "ms",
        "Acknowledgements of a queue that moves away still count."),
    SettingSpec("consumer_ack_timeout_ms", 60_000, 100, "ms",
        "A message not acknowledged by then comes again."),
    SettingSpec("max_in_flight_records", 20_000, 1, "records",
        "Delivered and not acknowledged, of one queue."),
    SettingSpec("max_ack_ranges", 1000, 1, "",
        "Acknowledged ranges ahead of the progress, of one queue."),
    SettingSpec("offsets_interval_ms", 50, 1, "ms",
        "Progress of consumers is gathered so long, then stored."),
    SettingSpec("offsets_retention_ms", 7 * 24 * 3600 * 1000, 0, "ms",
        "How long progress of a group without members is kept; 0 = for ever."),
    SettingSpec("takeover_checkpoint_ms", 1000, 10, "ms",
        "Between two checkpoints of a slave that serves reads."),
)  # fmt: skip

SETTINGS: Final = {row.name: row for row in _ROWS}
"""All rows by name."""

RISING: Final = (
    ("heartbeat_ms", "grant_ms"),
    ("heartbeat_ms", "dead_after_ms"),
    ("redial_min_ms", "redial_max_ms"),
    ("session_window_bytes", "total_window_bytes"),
    ("consumer_heartbeat_ms", "consumer_dead_after_ms"),
)
"""The first of each pair is not over the second: the other way round it could not work."""
