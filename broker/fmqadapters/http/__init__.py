"""Pages over HTTP for probes and metrics: the one door to aiohttp."""
