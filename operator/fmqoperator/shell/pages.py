"""Health and metrics of the operator, over HTTP.

| page | returns 200 when |
|---|---|
| `/healthz` | no group has waited for the end of a round for longer than `STALLED_S` |
| `/readyz` | it works, or stands by; it has not asked in vain for `BLIND_S` |
| `/metrics` | always |
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from fmqadapters.http.pages import MakePage, Page
from fmqoperator.core.status import metrics as figures
from fmqoperator.shell.keeper import Keeper

STALLED_S: Final = 120.0
BLIND_S: Final = 15.0
Family = CounterMetricFamily | GaugeMetricFamily


class Pages:
    """Pages of one replica. `works`: it holds the Lease. `blind_s`: how long kopf asks in vain."""

    def __init__(self, keeper: Keeper, blind_s: Callable[[], float]) -> None:
        self.works = False
        self.blind_s = blind_s
        self._keeper = keeper
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Figures(self, keeper))
        ProcessCollector(registry=self._registry)

    def all(self) -> dict[str, MakePage]:
        """Return the maker of each path's page."""
        return {"/healthz": self._health, "/readyz": self._ready, "/metrics": self._metrics}

    async def _health(self) -> Page:
        waited_s = self._keeper.stalled_s()
        if waited_s > STALLED_S:
            return Page(f"a group has waited for {waited_s:.0f} s to be reconciled\n", 503)
        return Page("well\n")

    async def _ready(self) -> Page:
        if (blind_s := self.blind_s()) > BLIND_S:
            text = f"lists or watches have failed for {blind_s:.0f} s: see the operator's log"
            return Page(f"{text}\n", 503)
        return Page("works\n" if self.works else "stands by\n")

    async def _metrics(self) -> Page:
        return Page(generate_latest(self._registry), content_type=CONTENT_TYPE_LATEST)


class _Figures(Collector):
    def __init__(self, pages: Pages, keeper: Keeper) -> None:
        self._pages = pages
        self._keeper = keeper

    def describe(self) -> Iterable[Family]:
        return ()

    def collect(self) -> Iterator[Family]:
        counts, writes = self._keeper.counts, self._keeper.kube.writes
        for name, text, value in (
            ("fmq_operator_reconciles", "Rounds of reconciling", counts.rounds),
            ("fmq_operator_failed_reconciles", "Rounds in which something failed", counts.failed),
            ("fmq_operator_writes", "Requests that change something, but the Lease's", writes),
            ("fmq_operator_status_writes", "Writes of a status", counts.status_writes),
        ):
            yield CounterMetricFamily(name, text, value)
        for name, text, number in (
            (
                "fmq_operator_lease_held",
                "1 if this replica holds the Lease",
                float(self._pages.works),
            ),
            ("fmq_operator_groups", "BrokerGroups", self._keeper.count("BrokerGroup")),
            ("fmq_operator_jobs", "BrokerJobs", self._keeper.count("BrokerJob")),
            ("fmq_operator_topics", "Topics", self._keeper.count("Topic")),
            (
                "fmq_operator_stalled_seconds",
                "The longest present wait of a resource for a round",
                self._keeper.stalled_s(),
            ),
            (
                "fmq_operator_longest_reconcile_seconds",
                "The longest round",
                counts.longest_ms / 1000,
            ),
            (
                "fmq_operator_watch_failing_seconds",
                "For how long lists or watches have failed",
                self._pages.blind_s(),
            ),
        ):
            yield GaugeMetricFamily(name, text, number)
        if self._pages.works:  # each replica reports its own writes alone
            yield from self._resources()

    def _resources(self) -> Iterator[Family]:
        jobs = list(self._keeper.bodies("BrokerJob"))
        for gauge in (
            *figures.of_groups(self._keeper.bodies("BrokerGroup")),
            figures.of_neglect(self._keeper.neglected("BrokerGroup")),
            figures.of_topics(self._keeper.bodies("Topic")),
            figures.of_jobs(jobs),
            figures.of_failed_jobs(jobs),
        ):
            family = GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)
            for values, number in gauge.samples:
                family.add_metric(values, number)
            yield family
