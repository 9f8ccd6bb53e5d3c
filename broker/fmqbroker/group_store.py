"""My group in ZooKeeper: configuration, state, live brokers; cached, watched, compare-and-set.

CONTRACT STUB (owner: failover). Every change of the state goes through `change`, one at a time.
"""

from collections.abc import Callable

from fmqbroker.signal import Signal
from fmqcore.cluster import GroupConfig, GroupState, LiveBroker, Versioned
from fmqcore.words import BrokerId
from fmqport.clock import Clock
from fmqport.coordination import Coordination


class GroupStore:
    """Cached view of `/fmq/<cluster>/groups/<g>`, and the only writer of its `state` here."""

    config: GroupConfig
    state: Versioned[GroupState]
    live: dict[BrokerId, LiveBroker]
    changed: Signal

    def __init__(
        self, coordination: Coordination, clock: Clock, cluster: str, group: str, me: BrokerId
    ) -> None:
        raise NotImplementedError

    async def load(self) -> None:
        """First read; raises `NotFound` naming the node if the group is not configured."""
        raise NotImplementedError

    async def run(self) -> None:
        """Follow the watches until cancelled."""
        raise NotImplementedError

    async def announce(self, live: LiveBroker) -> None:
        """Create or update my ephemeral node (again after a session's expiry)."""
        raise NotImplementedError

    async def change(self, edit: Callable[[GroupState], GroupState | None]) -> GroupState | None:
        """Read fresh, edit (None = leave it), compare-and-set; again while others win the race.

        Settles a lost connection by `txn`. Returns what now stands, or None if left alone.
        Raises `ConnectionLost` if it cannot know.
        """
        raise NotImplementedError
