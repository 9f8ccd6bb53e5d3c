"""Addresses of brokers in a URL: re-exports `fmqcore.address`."""

from fmqcore.address import DEFAULT_PORT, DEFAULT_URL, SCHEME, parse_url

__all__ = ["DEFAULT_PORT", "DEFAULT_URL", "SCHEME", "parse_url"]
