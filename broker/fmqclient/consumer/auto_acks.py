"""`ack="auto"`: what each task of the program was given, and acks when it asks for more. No I/O.

Another task's request does not ack that: the first may still be at work. What a failed or
cancelled task was given is not acked, so it comes again. A task that ended without an error has
done its messages, or handed them on to one that asks next, as `asyncio.wait_for` does.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from fmqclient.consumer.message import Message

Taker = asyncio.Task[Any]


def taker() -> Taker | None:
    """Return the task that calls; None outside of any."""
    with suppress(RuntimeError):
        return asyncio.current_task()
    return None


class AutoAcks:
    """What was given to the tasks that live, and is not acked."""

    def __init__(self) -> None:
        self._given: dict[Taker, list[Message]] = {}
        self._lists: set[Taker] = set()  # the newest was given to these as a list
        self._ended: list[Message] = []  # of tasks that ended without an error

    def asked(self, asker: Taker | None) -> Taker:
        """Ack what that task was given. `asker`: as it was when the program called, if it is known.

        Returns the task to which the next messages are given.
        """
        current = asyncio.current_task()
        assert current is not None, "a coroutine runs in a task"
        if asker is None or asker.done() or asker.get_loop() is not current.get_loop():
            asker = current
        ended, self._ended = self._ended, []
        _ack(ended)
        if asker in self._given:
            given, self._given[asker] = self._given[asker], []
            _ack(given)
        self._lists.discard(asker)
        return asker

    def give(self, to: Taker, messages: Iterable[Message], *, listed: bool = False) -> None:
        """Note what a task is given, in a list or one by one."""
        if to not in self._given:
            self._given[to] = []
            to.add_done_callback(self._end)
        self._given[to] += messages
        if listed:
            self._lists.add(to)

    def leave(self) -> None:
        """Ack the message with which the calling task left its loop, without an error.

        Not a list: how far the program came with it is not known.
        """
        leaver = taker()
        if leaver is not None and leaver not in self._lists:
            _ack(self._given.pop(leaver, []))

    def _end(self, task: Taker) -> None:
        given = self._given.pop(task, [])
        self._lists.discard(task)
        # `exception()` would count as looked at, and asyncio would not log it.
        if not task.cancelled() and getattr(task, "_exception", task) is None:
            self._ended += given


def _ack(messages: Iterable[Message]) -> None:
    for message in messages:
        if not message.nacked:
            message._note_done()
