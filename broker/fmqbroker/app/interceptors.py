"""The interceptors around every call, in their order: the first one is outermost.

| interceptor | what it does |
|---|---|
| `log_failures` | logs an error that is no `FmqError`: a bug |
| `put_errors_into_replies` | an `FmqError` of a call becomes the reply's `error`, if it has one |
| `name_zookeeper` | to an error for want of ZooKeeper, it adds what was asked and the remedy |
| `refuse_late_calls` | a call whose caller has stopped waiting is not started |

They act once per call, at its start and end: never per message of a stream, never per record. A
part that is added after these may raise any `FmqError`: callers get it typed. Nothing is written to
disk.
"""

import asyncio
from functools import cache
from typing import Any, Final

import structlog

from fmqbroker.runtime.wire_errors import as_error
from fmqcore.errors import FmqError, Unavailable
from fmqport.coordination import ConnectionLost, SessionExpired
from fmqport.transport import CallContext, Handler, Interceptor, Method
from fmqproto.v1 import client_pb2
from fmqwire import methods

_log = structlog.get_logger()
_WHAT_WAS_ASKED: Final = {
    methods.PRODUCE.path: "open the producer",
    methods.CONSUME.path: "open the consumer",
    methods.CREATE_TOPIC.path: "create topic {0.name}",
    methods.ALTER_TOPIC.path: "alter topic {0.name}",
    methods.DELETE_TOPIC.path: "delete topic {0.name}",
    methods.OFFSETS.path: "read the offsets",
    methods.SEEK.path: "move consumer group {0.group} in topic {0.topic}",
    methods.DELETE_GROUP.path: "delete consumer group {0.group}",
    methods.ORDERED_STATUS.path: "read the chains of ordered topics",
    methods.ORDERED_SWITCH.path: "switch the sends of topic {0.topic}",
    methods.ORDERED_RELEASE.path: "release segment {0.chain_segment} of topic {0.topic}",
}
"""Of the calls that may need ZooKeeper, for people; {0} is the request."""


async def log_failures(context: CallContext, request: Any, handler: Handler) -> Any:
    """Log what a handler raises unless it is meant for the caller."""
    try:
        return await handler(context, request)
    except FmqError:
        raise
    except Exception as error:
        _log.error(
            "handler_failed",
            method=context.method.path,
            peer=context.peer,
            principal=context.principal.name,
            trace=context.trace_id,
            exc_info=error,
        )
        raise


async def put_errors_into_replies(context: CallContext, request: Any, handler: Handler) -> Any:
    """Answer a call with its error in the reply; other methods' errors are the transport's."""
    try:
        return await handler(context, request)
    except FmqError as error:
        if not _reply_has_error(context.method):
            raise
        return context.method.reply(error=as_error(error))


async def name_zookeeper(context: CallContext, request: Any, handler: Handler) -> Any:
    """Say what cannot be done without ZooKeeper, and the next step; the error keeps its type."""
    try:
        return await handler(context, request)
    except (ConnectionLost, SessionExpired) as error:
        asked = _WHAT_WAS_ASKED.get(context.method.path)
        if asked is None:
            raise
        raise type(error)(
            f"cannot {asked.format(request)} now: this broker has no connection with ZooKeeper. "
            "Start ZooKeeper; if it runs, mend the way to it (`fmq status` shows each broker); "
            f"then look what was done, and ask again ({error})"
        ) from error


async def refuse_late_calls(context: CallContext, request: Any, handler: Handler) -> Any:
    """Raise `Unavailable` if the caller's deadline is over: it may have asked again elsewhere.

    A call that was started in time runs to its end.
    """
    if context.deadline is not None and asyncio.get_running_loop().time() >= context.deadline:
        raise Unavailable(
            f"{context.method.path}: the deadline passed before this broker started the call; "
            "nothing was done, try again"
        )
    return await handler(context, request)


@cache
def _reply_has_error(method: Method) -> bool:
    """Return whether a call's reply has a field `error` for its caller."""
    field = method.reply.DESCRIPTOR.fields_by_name.get("error")
    is_error = field is not None and field.message_type is client_pb2.Error.DESCRIPTOR
    return is_error and not method.streaming


STANDARD: Final[tuple[Interceptor, ...]] = (
    log_failures,
    put_errors_into_replies,
    name_zookeeper,
    refuse_late_calls,
)
"""Around every call of every broker."""
