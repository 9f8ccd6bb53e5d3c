"""Whether another writer changes an object again and again. Pure: the time is given.

The writer may be another operator on the same namespaces, a webhook, an autoscaler of the
StatefulSet. Changing the object back each time would never end, and restart pods each time. So an
object that was changed `MOST` times in `REPEAT_AFTER_S` is left as it is and reported, and from
then on changed once in `REPEAT_AFTER_S`.
"""

from dataclasses import dataclass
from typing import Final

from fmqoperator.api.base import Json
from fmqoperator.core.children.drift import drifted
from fmqoperator.core.observation import HASH

REPEAT_AFTER_S: Final = 600.0
MOST: Final = 5
_KEPT: Final = 20_000

Key = tuple[str, str, str]
"""The resource's uid, kind and name of the object."""


@dataclass(frozen=True, slots=True)
class Made:
    """What the object was made from, since when, and when it had to be made so again."""

    mark: str
    at_s: float
    again_s: tuple[float, ...] = ()


class Contests:
    """Contests over all objects of all resources. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._made: dict[Key, Made] = {}

    def is_lost(self, key: Key, manifest: Json, now_s: float) -> bool:
        """Whether to leave the object as it is, though it is not as wanted."""
        before = self._made.get(key)
        if before is None or before.mark != mark_of(manifest):
            return False
        return len(before.again_s) >= MOST and now_s - before.at_s < REPEAT_AFTER_S

    def made(self, key: Key, manifest: Json, now_s: float) -> None:
        """Note that the object was written as desired."""
        mark, before = mark_of(manifest), self._made.get(key)
        times: tuple[float, ...] = ()
        if before is not None and before.mark == mark:
            times = before.again_s
            if len(times) < MOST:
                times = tuple(at for at in times if now_s - at < REPEAT_AFTER_S)
            elif now_s - before.at_s >= 2 * REPEAT_AFTER_S:
                times = ()  # it stayed as it was made
            times = (*times, now_s)[-MOST:]
        self._made[key] = Made(mark, now_s, times)
        if len(self._made) > _KEPT:
            self._made = {k: m for k, m in self._made.items() if now_s - m.at_s < REPEAT_AFTER_S}


def mark_of(made: Json) -> str:
    """Return the mark of the declaration from which an object was made; "" = no mark."""
    return str((made["metadata"].get("annotations") or {}).get(HASH, ""))


def words(manifest: Json, there: Json) -> str:
    """Return the sentence that reports the conflict."""
    of = f"{manifest['kind']} {manifest['metadata']['name']}"
    message = f"{of} is changed by another writer again and again, and left as it is for now"
    if mark_of(there) not in ("", mark_of(manifest)):
        return (
            f"{message}: another FMQ operator, of another version or with other options, manages "
            "this group: give each operator its own namespaces (operator.watchNamespaces), or "
            "uninstall one"
        )
    cause = drifted(manifest, there)
    return f"{message}: {cause} (a webhook, an autoscaler?): its managedFields name the writer"
