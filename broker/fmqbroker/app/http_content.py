"""The content of the broker's pages: probe answers and metrics. Served by `app/http.py`."""

from fmqadapters.http.pages import MakePage, Page
from fmqbroker.app.health import Answer, Health
from fmqbroker.app.metrics import CONTENT_TYPE, Metrics
from fmqbroker.runtime.settings import BrokerSettings


def pages_made_by(settings: BrokerSettings, health: Health) -> dict[str, MakePage]:
    """Return the function that makes each page, by path."""
    metrics = Metrics(settings, health)

    async def started() -> Page:
        return _page(health.started())

    async def alive() -> Page:
        return _page(health.alive())

    async def ready() -> Page:
        return _page(await health.ready())

    async def ready_for_reads() -> Page:
        return _page(await health.ready(reads_suffice=True))

    async def measured() -> Page:
        return Page(await metrics.text(), content_type=CONTENT_TYPE)

    return {
        "/startupz": started,
        "/livez": alive,
        "/readyz": ready,
        "/readyz?serves=reads": ready_for_reads,
        "/metrics": measured,
    }


def _page(answer: Answer) -> Page:
    return Page(f"{answer.reason}\n", 200 if answer.well else 503)
