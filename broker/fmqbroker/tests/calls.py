"""The handlers of a part as callers reach them: inside the interceptors, without a transport."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from fmqbroker.app.interceptors import STANDARD
from fmqbroker.app.server import around
from fmqport.transport import CallContext, Handler, Handlers, Method


class Part(Protocol):
    @property
    def handlers(self) -> Handlers: ...


class Calls:
    """`calls.seek(request)` calls the handler of that name and returns its reply."""

    def __init__(self, part: Part) -> None:
        self.handlers: dict[Method, Handler] = {}
        self._by_name: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {}
        for method, handler in part.handlers.items():
            bound = self.handlers[method] = around(handler, STANDARD)
            self._by_name[handler.__name__] = partial(self._call, bound, method)

    async def _call(self, handler: Handler, method: Method, request: Any) -> Any:
        return await handler(CallContext(method, "test"), request)

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        try:
            return self._by_name[name]
        except KeyError:
            raise AttributeError(name) from None
