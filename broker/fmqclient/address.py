"""How a program names the brokers: `fmqcore.address`, known here, too."""

from fmqcore.address import DEFAULT_PORT, DEFAULT_URL, SCHEME, parse_url

__all__ = ["DEFAULT_PORT", "DEFAULT_URL", "SCHEME", "parse_url"]
