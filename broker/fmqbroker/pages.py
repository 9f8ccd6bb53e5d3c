"""The broker's pages over HTTP: probes and metrics, if `http_listen` says where.

Served from before the journal is recovered until after the last part has stopped. What they say is
in `health.py` and `metrics.py`; how they are served, in `fmqport/web.py`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from fmqbroker.health import Answer, Health
from fmqbroker.metrics import CONTENT_TYPE, Metrics
from fmqbroker.settings import BrokerSettings
from fmqport.web import Page, serve_pages

_log = structlog.get_logger()


@asynccontextmanager
async def pages_of(settings: BrokerSettings, health: Health) -> AsyncIterator[None]:
    """Serve them meanwhile. Raises `TransportError` if the address cannot be had."""
    if not settings.http_listen:
        yield
        return
    metrics = Metrics(settings, health)

    async def started() -> Page:
        return _page(health.started())

    async def alive() -> Page:
        return _page(health.alive())

    async def ready() -> Page:
        return _page(await health.ready())

    async def measured() -> Page:
        return Page(metrics.text(), content_type=CONTENT_TYPE)

    pages = {"/startupz": started, "/livez": alive, "/readyz": ready, "/metrics": measured}
    async with serve_pages(settings.http_listen, pages) as port:
        _log.info("serving_pages", address=settings.http_listen, port=port)
        yield


def _page(answer: Answer) -> Page:
    return Page(f"{answer.why}\n", 200 if answer.well else 503)
