"""The scenarios' watch: the chaos runs' watch and the checks of e2e, over one cluster.

It looks at every broker all the time (`e2e.chaos.watch`) and adds to one history, to which the
scenarios' consumer adds what it got and acknowledged. `violations` judges that by the checks of who
serves (I8) and of committed offsets (I7): never two brokers of a group with one permission, and
never reads with offsets older than a consumer was confirmed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from e2e.chaos.watch import Groups, Sight, Watch
from e2e.checks.facts import Facts
from e2e.checks.findings import Finding
from e2e.checks.offsets import offsets
from e2e.checks.serving import two_at_once
from e2e.history.client_events import Place
from e2e.history.cluster_events import Floor, Look, Setup
from e2e.history.history import History
from fmqcore.ids import Permission
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import BrokerPlan

TOPIC: Final = "orders"
READERS: Final = "billing"


class _Brokers:
    """The brokers of a cluster as the watch needs them: it does not follow ZooKeeper's state."""

    group_names: Sequence[str] = ()

    def __init__(self, cluster: DevCluster) -> None:
        self.brokers: Mapping[str, BrokerPlan] = {str(b): p for b, p in cluster.brokers.items()}
        self.groups: Groups = cluster.groups


class ScenarioWatch(Watch):
    """Observes one cluster, and judges who served and with which offsets."""

    def __init__(self, cluster: DevCluster, setup: Setup) -> None:
        self.history = History([setup])
        super().__init__(_Brokers(cluster), self.history, READERS)
        self.latest.update({broker: Sight() for broker in cluster.brokers})

    @property
    def served(self) -> Counter[tuple[str, int, Permission]]:
        """Count the looks by broker, epoch and permission."""
        looks = (event for event in self.history.events if isinstance(event, Look))
        return Counter((look.broker, look.epoch, look.permission) for look in looks)

    @property
    def floors_seen(self) -> Counter[str]:
        """Count the committed offsets that each broker reported."""
        return Counter(e.broker for e in self.history.events if isinstance(e, Floor))

    def promised(self) -> dict[Place, int]:
        """Return the committed offsets that were confirmed, as far as the checks know."""
        reads = Facts(self.history.events, {}).reads()
        return {place: read.promises[-1].floor for _, place, read in reads if read.promises}

    def violations(self) -> list[Finding]:
        """Return everything that no cluster may do."""
        facts = Facts(self.history.events, {})
        return [*two_at_once(facts), *offsets(facts)]
