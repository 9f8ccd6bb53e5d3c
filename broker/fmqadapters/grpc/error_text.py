"""Plain words for gRPC's texts about a failed call. Pure.

gRPC's own text mentions resolvers, addresses that were tried, HTTP/2 frames. No text here contains
": ": a caller may put the peer before it, and remove the peer again.
"""

from typing import Final

_PHRASES: Final = (
    ("Connection refused", "connection refused, nothing listens there"),
    ("Domain name not found", "its name does not resolve, is it spelled right?"),
    ("Misformatted domain name", "that is no host name"),
    ("errors resolving", "its name does not resolve"),
    ("DNS resolution failed", "its name does not resolve"),
    ("No route to host", "no route to that host"),
    ("Network is unreachable", "that network is unreachable"),
    ("Failed parsing HTTP/2", "what listens there is no broker"),
    ("before receiving SETTINGS", "what listens there does not answer, it hangs or is no broker"),
    ("connect() timed out", "no connection in time"),
    ("ping timeout", "it has stopped answering"),
    ("Received http2 header with status", "an HTTP server or proxy answers there, no broker"),
    ("Connection reset", "the connection was reset"),
    ("Socket closed", "the connection was closed"),
    ("Broken pipe", "the connection was closed"),
    ("Deadline Exceeded", "no answer in time"),
    ("Method not found!", "it does not know that request, it is of another version or no broker"),
)
"""(a piece of gRPC's text, its meaning)."""
_OURS: Final = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "UNIMPLEMENTED")
"""Codes of failures that gRPC itself reports; a handler's error never has one of them."""


def in_words(details: str | None, code: str) -> str:
    """Return one sentence; an unknown text is returned as it is, with its code."""
    if not details:
        return code
    known = None
    if code in _OURS:  # else it is the peer's own text
        known = next((words for piece, words in _PHRASES if piece in details), None)
    return known or f"{details} ({code})"
