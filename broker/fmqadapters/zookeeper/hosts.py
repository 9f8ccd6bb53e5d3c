"""ZooKeeper addresses: check that they are well-formed, and find names that do not resolve."""

import asyncio
import ipaddress
import socket
from typing import Final

from fmqcore.address import is_host
from fmqcore.errors import InvalidArgument

_TIMEOUT_S: Final = 5.0


def check_address(address: str) -> str:
    """Return `host[:port][,host[:port]...][/root]` as given. Raises `InvalidArgument`."""
    hosts, _, root = address.partition("/")
    if any(part in ("", ".", "..") for part in root.rstrip("/").split("/")) and root.rstrip("/"):
        raise InvalidArgument(
            f"ZooKeeper address {address!r}: /{root} is no path of a node: it is made of names, "
            "e.g. zk1:2181/fmq"
        )
    for text in hosts.split(","):
        port = text.strip().rpartition("]")[2].partition(":")[2]
        plain = port.isascii() and port.isdigit() and 0 < int(port) < 65536
        if not _is_host(text) or not (plain or ":" not in text.rpartition("]")[2]):
            raise InvalidArgument(
                f"ZooKeeper address {address!r}: {text!r} is not host:port, e.g. "
                "zk1:2181,zk2:2181,zk3:2181, or with a root zk1:2181/fmq"
            )
    return address


async def unresolved(address: str) -> dict[str, str]:
    """Return the names in `host:port,host:port/root` that do not resolve here, with the reason.

    A name is left out if the name service does not answer within `_TIMEOUT_S` seconds.
    """
    loop = asyncio.get_running_loop()
    found: dict[str, str] = {}
    for host in dict.fromkeys(map(_host, address.partition("/")[0].split(","))):
        if not host:  # to the name service that is this machine itself
            found[host] = "it is empty"
            continue
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:  # the latter: no name can be like that
            found[host] = (error.strerror if isinstance(error, OSError) else "") or str(error)
        except TimeoutError:
            continue
    return found


async def no_answer_text(address: str, timeout_s: float) -> str:
    """Return the error message for an address at which no server answers."""
    text = f"no ZooKeeper answers at {address} within {timeout_s:g} s; "
    if names := await unresolved(address):
        reason = "; ".join(
            f"the name {name!r} does not resolve ({reason})" for name, reason in names.items()
        )
        return f"{text}{reason}: is it spelled right, and known on this machine?"
    return f"{text}is it running and reachable from here, and is that its clients' port?"


def _is_host(text: str) -> bool:
    host = _host(text)
    if any(not 0 < len(label) < 64 for label in host.removesuffix(".").split(".")):
        return False  # to look up such a name is not a failure but an error (IDNA)
    return _is_v6(host) if text.strip().startswith("[") else is_host(host)


def _is_v6(text: str) -> bool:
    """Whether brackets hold an IPv6 address: on anything else the client fails without a reason."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return is_host(f"[{text}]")


def _host(text: str) -> str:
    host = text.strip()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, _ = host.rpartition(":")
    return name if colon else host
