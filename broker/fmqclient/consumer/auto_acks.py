"""`ack="auto"`: what each task of the program was given, and acks when it asks for more. No I/O.

Another task's request does not ack that: the first may still be at work. What a failed or
cancelled task was given is not acked, so it comes again. A task that ended without an error has
done its messages, or handed them on to one that asks next, as `asyncio.wait_for` does.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from fmqclient.consumer.message import Message

Taker = asyncio.Task[Any]


def taker() -> Taker | None:
    """Return the task that calls; None outside of any."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs here
        return None


class AutoAcks:
    """What was given to the tasks that live, and is not acked."""

    def __init__(self) -> None:
        self._given: dict[Taker, list[Message]] = {}
        self._lists: set[Taker] = set()  # the newest was given to these as a list
        self._ended: list[Message] = []  # of tasks that ended without an error
        self._ended_lists: list[Message] = []  # which may have been taken for another task
        self._last: Taker | None = None  # asked last, and lives: most often it asks again
        self._of_last: list[Message] = []  # its value in `_given`

    def asked(self, asker: Taker | None) -> Taker:
        """Ack what that task was given. `asker`: as it was when the program called, if it is known.

        Returns the task to which the next messages are given.
        """
        if asker is None or asker is not self._last or asker.done():
            asker = self._look_up(asker)
        if self._ended or self._ended_lists:
            ended, self._ended, self._ended_lists = self._ended + self._ended_lists, [], []
            _ack(ended)
        if self._of_last:
            _ack(self._of_last)
            self._of_last.clear()
        if self._lists:
            self._lists.discard(asker)
        return asker

    def give(self, to: Taker, messages: Iterable[Message], *, listed: bool = False) -> None:
        """Note what a task is given, in a list or one by one."""
        if to is not self._last:  # others have asked since
            to = self._look_up(to)
        self._of_last.extend(messages)
        if listed:
            self._lists.add(to)

    def _look_up(self, asker: Taker | None) -> Taker:
        """Make the task the last one, or the current one in its place."""
        current = asyncio.current_task()
        assert current is not None, "a coroutine runs in a task"
        if asker is None or asker.done() or asker.get_loop() is not current.get_loop():
            asker = current
        if asker not in self._given:
            self._given[asker] = []
            asker.add_done_callback(self._end)
        self._last, self._of_last = asker, self._given[asker]
        return asker

    def leave(self) -> None:
        """Ack the message with which the calling task left its loop, without an error.

        And those of tasks that ended so. Not a list: how far the program came is not known.
        """
        ended, self._ended = self._ended, []
        _ack(ended)
        leaver = taker()
        if leaver is not None and leaver not in self._lists:
            given = self._given.get(leaver, [])
            _ack(given)
            given.clear()

    def _end(self, task: Taker) -> None:
        given, ended = self._given.pop(task, []), self._ended
        if task in self._lists:
            self._lists.discard(task)
            ended = self._ended_lists
        if task is self._last:
            self._last, self._of_last = None, []
        # `exception()` would count as looked at, and asyncio would not log it.
        if not task.cancelled() and getattr(task, "_exception", task) is None:
            ended += given


def _ack(messages: Iterable[Message]) -> None:
    for message in messages:
        if not message.nacked:
            message._note_done()
