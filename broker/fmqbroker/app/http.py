"""The broker's pages over HTTP: probes and metrics, if `http_listen` says where.

Served from before the journal is recovered until after the last part has stopped. What they say is
in `health.py` and `metrics.py`; how they are served, in `fmqadapters/http/pages.py`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from fmqbroker.app.health import Health
from fmqbroker.runtime.settings import BrokerSettings

_log = structlog.get_logger()


@asynccontextmanager
async def pages_of(settings: BrokerSettings, health: Health) -> AsyncIterator[None]:
    """Serve them meanwhile. Raises `TransportError` if the address cannot be had."""
    if not settings.http_listen:
        yield
        return
    # Only who serves pages pays for what makes them: a quarter of the time to import.
    from fmqadapters.http.pages import serve_pages
    from fmqbroker.app.http_content import pages_made_by

    pages = pages_made_by(settings, health)
    async with serve_pages(settings.http_listen, pages) as port:
        _log.info("serving_pages", address=settings.http_listen, port=port)
        yield
