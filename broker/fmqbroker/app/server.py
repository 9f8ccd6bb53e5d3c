"""From the table of the wire's methods to the handlers that a server gets.

Each part of the broker offers its handlers as `{method: handler}`. `bind` requires one handler for
every row of `fmqwire.methods`, and puts the interceptors around each: the only place where a part
that concerns all calls (access control, quotas, tracing) is added. No decisions are made here: each
part checks what a broker may serve now.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from fmqbroker.app.interceptors import STANDARD
from fmqport.transport import CallContext, Handler, Handlers, Interceptor, Method
from fmqwire.methods import METHODS


def bind(
    parts: Iterable[Handlers],
    *,
    methods: Sequence[Method] = METHODS,
    interceptors: Sequence[Interceptor] = STANDARD,
) -> Handlers:
    """Return the handler of every method, inside the interceptors, the first one outermost.

    Raises `AssertionError` if a method has no handler or two, or a handler no row.
    """
    handlers = dict[Method, Handler]()
    for part in parts:
        for method, handler in part.items():
            if method in handlers:
                raise AssertionError(f"{method.path} has two handlers: one part must serve it")
            handlers[method] = handler
    missing = [method.path for method in methods if method not in handlers]
    unknown = [method.path for method in handlers if method not in methods]
    if missing or unknown:
        raise AssertionError(f"methods without a handler: {missing}; without a row: {unknown}")
    return {method: around(handler, interceptors) for method, handler in handlers.items()}


def around(handler: Handler, interceptors: Sequence[Interceptor]) -> Handler:
    """Return the handler inside the interceptors."""
    for interceptor in reversed(interceptors):
        handler = partial(_call, interceptor, handler)
    return handler


async def _call(
    interceptor: Interceptor, handler: Handler, context: CallContext, request: Any
) -> Any:
    return await interceptor(context, request, handler)
