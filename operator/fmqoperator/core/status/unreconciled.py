"""Statuses of resources that are left alone, as they are not readable or not observed. Pure.

The rest of the status stays as it was.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

from fmqoperator.api.base import Json
from fmqoperator.core.plan_types import Verdict
from fmqoperator.core.status.group import timed


def unreadable(body: Mapping[str, Any], error: ValidationError, now_ms: int) -> Json:
    """Return the status of a resource that an older schema let in: the field, and what is wrong."""
    errors = "; ".join(
        f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors()[:5]
    )
    message = f"the resource is invalid, and nothing was changed: {errors}"
    seen = {"observedGeneration": body["metadata"].get("generation", 0)}
    return _let_alone(body, "False", "Invalid", message, now_ms) | seen


def blind(body: Mapping[str, Any], cause: str, now_ms: int) -> Json:
    """Return the status of a group that the operator could not observe: the rest is as it was."""
    message = f"the operator cannot observe the group, and this status is out of date: {cause}"
    return _let_alone(body, "Unknown", "OperatorBlind", message, now_ms)


def _let_alone(
    body: Mapping[str, Any],
    ready: Literal["False", "Unknown"],
    reason: str,
    message: str,
    now_ms: int,
) -> Json:
    old = body.get("status") or {}
    generation = body["metadata"].get("generation", 0)
    conditions = [
        timed(Verdict(kind, value, reason, message[:2048]), old, generation, now_ms)
        for kind, value in (("Ready", ready), ("ConfigApplied", "False"))
    ]
    kept = [c for c in old.get("conditions", ()) if c["type"] not in ("Ready", "ConfigApplied")]
    written = [*(c.as_json() for c in conditions), *kept]
    return {**old, "message": message[:1024], "conditions": written}
