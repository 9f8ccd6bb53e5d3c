"""`fmq://host:port[,host:port...]`: the brokers to ask first. Any of them knows all others."""

import re
from typing import Final

from fmqcore.errors import InvalidArgument

SCHEME: Final = "fmq://"
DEFAULT_PORT: Final = 9876
DEFAULT_URL: Final = f"{SCHEME}127.0.0.1:{DEFAULT_PORT}"
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\]")
"""The syntax of a host; whether the host exists is for the name service to answer."""


def is_host(text: str) -> bool:
    """Whether `text` can be a host: a name, an IPv4 address, or an IPv6 address in brackets."""
    return _HOST.fullmatch(text) is not None


def parse_url(url: str) -> tuple[str, ...]:
    """Return the addresses (`host:port`) in a broker URL; raise `InvalidArgument`."""
    if not isinstance(url, str) or not url.startswith(SCHEME):
        raise InvalidArgument(f"a broker URL begins with {SCHEME}, e.g. {DEFAULT_URL}, not {url!r}")
    names = url.removeprefix(SCHEME).rstrip("/").split(",")
    return tuple(dict.fromkeys(_address(name.strip(), url) for name in names))


def _address(name: str, url: str) -> str:
    if name.startswith("["):  # an IPv6 address in brackets
        host, bracket, rest = name.partition("]")
        host, port = host + bracket, rest.removeprefix(":")
        good = rest == "" or (rest.startswith(":") and port != "")
    else:
        host, colon, port = name.partition(":")
        good = not colon or port != ""
    port = port or str(DEFAULT_PORT)
    if not is_host(host) or not good or not port.isascii() or not port.isdigit():
        raise InvalidArgument(f"{name!r} in {url!r} is not host:port")
    if not 0 < int(port) < 65536:
        raise InvalidArgument(f"port {port} in {url!r} is not within 1..65535")
    return f"{host}:{int(port)}"
