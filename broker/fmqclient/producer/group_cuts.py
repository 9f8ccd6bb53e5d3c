"""Which groups an ordered sender does not reach, so that its sends can go on in another one. Pure.

A group may be whole, and cut off from this program alone: no broker can see that.
"""

from typing import Final, NamedTuple

from fmqcore.ids import GroupName

CUT_MS: Final = 3000
"""A group is cut off once all tries fail for so long: brokers notice a dead master before that."""
NEXT_TRY_MS: Final = 10_000
"""A failure that comes later than that after the one before is the first of others."""
FORGET_MS: Final = 30_000
"""A group that was not tried for so long may be chosen again."""


class _Failures(NamedTuple):
    first_ms: int
    last_ms: int


class GroupCuts:
    """The tries to reach groups that failed, none of which has succeeded since."""

    def __init__(self) -> None:
        self._failures: dict[GroupName, _Failures] = {}

    def fail(self, group: GroupName, now_ms: int) -> None:
        """Note that a stream to the group was lost, or could not be opened."""
        before = self._failures.get(group)
        if before is None or now_ms - before.last_ms >= NEXT_TRY_MS:
            before = _Failures(now_ms, now_ms)
        self._failures[group] = before._replace(last_ms=now_ms)

    def reach(self, group: GroupName) -> None:
        """Note that a stream to the group is open."""
        self._failures.pop(group, None)

    def groups(self, now_ms: int) -> frozenset[GroupName]:
        """Return the groups that are cut off."""
        for group, failures in list(self._failures.items()):
            if now_ms - failures.last_ms >= FORGET_MS:
                del self._failures[group]
        cut = (g for g, f in self._failures.items() if f.last_ms - f.first_ms >= CUT_MS)
        return frozenset(cut)
