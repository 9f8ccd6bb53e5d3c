"""A broker's settings as a resource names them: those of `fmq broker settings`, in camelCase. Pure.

Left out means the broker's own default. Both follow `fmqcore/settings_spec.py`.
"""

from typing import Any

from pydantic import Field
from pydantic.alias_generators import to_camel

from fmqcore.settings_spec import RISING, SETTINGS
from fmqoperator.api.base import Part, rules


def _default(name: str) -> str:
    return str(SETTINGS[name].default)


def _value(name: str) -> str:
    return f"(has(self.{to_camel(name)}) ? self.{to_camel(name)} : {_default(name)})"


def _rising(small: str, large: str) -> tuple[str, str]:
    return (
        f"{_value(small)} <= {_value(large)}",
        f"settings.{to_camel(small)} may not be over settings.{to_camel(large)} (left out they are "
        f"{_default(small)} and {_default(large)}): lower the first or raise the second",
    )


def _setting(name: str) -> Any:
    """Return the optional field of a setting, from its row."""
    row = SETTINGS[name]
    return Field(
        default=None,
        ge=row.low,
        le=row.high,
        multiple_of=row.multiple_of,
        description=row.text,
    )


class BrokerTuning(Part):
    """Settings of the brokers; a change restarts them one by one."""

    model_config = rules(*(_rising(*pair) for pair in RISING))

    segment_bytes: int | None = _setting("segment_bytes")
    tail_cache_bytes: int | None = _setting("tail_cache_bytes")
    checkpoint_interval_ms: int | None = _setting("checkpoint_interval_ms")
    retention_ms: int | None = _setting("retention_ms")
    retention_bytes: int | None = _setting("retention_bytes")
    min_free_bytes: int | None = _setting("min_free_bytes")
    max_payload_bytes: int | None = _setting("max_payload_bytes")
    max_records: int | None = _setting("max_records")
    session_window_bytes: int | None = _setting("session_window_bytes")
    total_window_bytes: int | None = _setting("total_window_bytes")
    ack_timeout_ms: int | None = _setting("ack_timeout_ms")
    heartbeat_ms: int | None = _setting("heartbeat_ms")
    dead_after_ms: int | None = _setting("dead_after_ms")
    credit_bytes: int | None = _setting("credit_bytes")
    redial_min_ms: int | None = _setting("redial_min_ms")
    redial_max_ms: int | None = _setting("redial_max_ms")
    learner_bytes_per_s: int | None = _setting("learner_bytes_per_s")
    in_sync_lag_bytes: int | None = _setting("in_sync_lag_bytes")
    scan_bytes_per_s: int | None = _setting("scan_bytes_per_s")
    scan_streams: int | None = _setting("scan_streams")
    session_timeout_ms: int | None = _setting("session_timeout_ms")
    grant_ms: int | None = _setting("grant_ms")
    claim_checks: int | None = _setting("claim_checks")
    claim_interval_ms: int | None = _setting("claim_interval_ms")
    takeover_wait_ms: int | None = _setting("takeover_wait_ms")
    loop_stall_ms: int | None = _setting("loop_stall_ms")
    consumer_heartbeat_ms: int | None = _setting("consumer_heartbeat_ms")
    consumer_dead_after_ms: int | None = _setting("consumer_dead_after_ms")
    consumer_drain_ms: int | None = _setting("consumer_drain_ms")
    consumer_ack_timeout_ms: int | None = _setting("consumer_ack_timeout_ms")
    max_in_flight_records: int | None = _setting("max_in_flight_records")
    max_ack_ranges: int | None = _setting("max_ack_ranges")
    offsets_interval_ms: int | None = _setting("offsets_interval_ms")
    offsets_retention_ms: int | None = _setting("offsets_retention_ms")
    takeover_checkpoint_ms: int | None = _setting("takeover_checkpoint_ms")
