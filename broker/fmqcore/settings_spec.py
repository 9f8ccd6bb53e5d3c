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
        "Size of the cache of the journal's newest bytes, in memory."),
    SettingSpec("checkpoint_interval_ms", 2000, 10, "ms",
        "Time between two checkpoints, which shorten the next start."),
    SettingSpec("retention_ms", 7 * 24 * 3600 * 1000, 0, "ms",
        "Minimum time for which messages are kept; 0 = for ever."),
    SettingSpec("retention_bytes", 0, 0, "bytes",
        "Size up to which the journal is kept; 0 = no limit."),
    SettingSpec("min_free_bytes", 64 * MIB, 0, "bytes",
        "Free disk space below which writes are refused; reads go on."),
    # produce
    SettingSpec("max_payload_bytes", MAX_PAYLOAD, 1, "bytes",
        "Maximum payload of one batch.", high=MAX_PAYLOAD),
    SettingSpec("max_records", MAX_RECORDS, 1, "records",
        "Maximum number of records of one batch.", high=MAX_RECORDS),
    SettingSpec("session_window_bytes", 8 * MIB, MIB, "bytes",
        "Maximum bytes in flight for one producer; above it, the producer waits."),
    SettingSpec("total_window_bytes", 64 * MIB, MIB, "bytes",
        "Maximum bytes in flight for all producers together."),
    SettingSpec("ack_timeout_ms", 10_000, 10, "ms",
        "Time after which an unacknowledged batch is reported as of unknown outcome."),
    # replication
    SettingSpec("heartbeat_ms", 500, 10, "ms",
        "Time between two heartbeats of master and slave."),
    SettingSpec("dead_after_ms", 5000, 50, "ms",
        "Silence after which a replication stream is closed."),
    SettingSpec("credit_bytes", 32 * MIB, 2 * MIB, "bytes",
        "Maximum unacknowledged bytes in flight to one slave."),
    SettingSpec("redial_min_ms", 50, 1, "ms",
        "Shortest wait before a slave connects to its master again."),
    SettingSpec("redial_max_ms", 2000, 1, "ms",
        "Longest wait before a slave connects to its master again."),
    SettingSpec("learner_bytes_per_s", 64 * MIB, 0, "bytes/s",
        "Maximum rate at which a slave that catches up copies; 0 = no limit."),
    SettingSpec("in_sync_lag_bytes", MIB, 0, "bytes",
        "Maximum lag at which a slave that catches up becomes in sync."),
    # stored segments for data jobs, all streams of a broker together
    SettingSpec("scan_bytes_per_s", 64 * MIB, 0, "bytes/s",
        "Maximum rate at which data jobs read from a broker; 0 = no limit."),
    SettingSpec("scan_streams", 8, 0, "",
        "Maximum ranges that data jobs read from a broker at a time; 0 = none."),
    # failover
    SettingSpec("session_timeout_ms", 2000, 200, "ms",
        "ZooKeeper's session timeout: how soon a loss is seen. The ensemble may grant another: "
        "minSessionTimeout at least, by default twice its tickTime.", high=3_600_000),
    SettingSpec("grant_ms", 1500, 50, "ms",
        "Time for which a slave's grant promises not to take over.", high=3_600_000),
    SettingSpec("claim_checks", 2, 1, "",
        "Number of checks that the master is gone before a slave takes over the reads."),
    SettingSpec("claim_interval_ms", 250, 10, "ms",
        "Time between two checks that the master is gone."),
    SettingSpec("takeover_wait_ms", 10_000, 10, "ms",
        "Time for which a returning master waits for the offsets of a reader that is gone."),
    SettingSpec("loop_stall_ms", 1000, 50, "ms",
        "Delay of a broker's event loop above which the broker stops serving."),
    # consume
    SettingSpec("consumer_heartbeat_ms", 3000, 50, "ms",
        "Time between two heartbeats of a consumer.", high=3_600_000),
    SettingSpec("consumer_dead_after_ms", 15_000, 100, "ms",
        "Silence after which a consumer loses its queues."),
    SettingSpec("consumer_drain_ms", 2000, 0, "ms",
        "Time for which acknowledgements still count for a queue that moves to another consumer."),
    SettingSpec("consumer_ack_timeout_ms", 60_000, 100, "ms",
        "Time after which a message that is not acknowledged is delivered again."),
    SettingSpec("max_in_flight_records", 20_000, 1, "records",
        "Maximum records of one queue that are delivered and not acknowledged."),
    SettingSpec("max_ack_ranges", 1000, 1, "",
        "Maximum acknowledged ranges above the progress of one queue."),
    SettingSpec("offsets_interval_ms", 50, 1, "ms",
        "Time for which progress of consumers is gathered before it is stored."),
    SettingSpec("offsets_retention_ms", 7 * 24 * 3600 * 1000, 0, "ms",
        "Time for which progress of a group without members is kept; 0 = for ever."),
    SettingSpec("takeover_checkpoint_ms", 1000, 10, "ms",
        "Time between two checkpoints of a slave that serves reads."),
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
