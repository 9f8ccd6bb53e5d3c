"""The broker's pages over HTTP: probes and metrics, if `http_listen` is set.

Served from before the journal is recovered until after the last part has stopped. Their content
comes from `health.py` and `metrics.py`; `fmqadapters/http/pages.py` serves them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from fmqbroker.app.health import Health
from fmqbroker.runtime.settings import BrokerSettings

_log = structlog.get_logger()


@asynccontextmanager
async def pages_of(settings: BrokerSettings, health: Health) -> AsyncIterator[None]:
    """Serve the pages within the context. Raises `TransportError` if the address is not free."""
    if not settings.http_listen:
        yield
        return
    # Imported only if pages are served: these modules take a quarter of the import time.
    from fmqadapters.http.pages import serve_pages
    from fmqbroker.app.http_content import pages_made_by

    pages = pages_made_by(settings, health)
    async with serve_pages(settings.http_listen, pages) as port:
        _log.info("serving_pages", address=settings.http_listen, port=port)
        yield
