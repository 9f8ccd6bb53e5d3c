"""Where in a queue a moment is: the beginning, the end, a time. Within what may be read."""

from fmqbroker.commit import CommitFrontier
from fmqbroker.journal import Journal
from fmqbroker.slices import Slices
from fmqcore.words import Offset, TopicId
from fmqproto.v1 import client_pb2


class QueueMoments:
    """Offsets by what a consumer asks for."""

    def __init__(self, journal: Journal, commit: CommitFrontier) -> None:
        self._journal = journal
        self._commit = commit

    def committed(self, topic_id: TopicId, queue: int) -> Offset:
        """One past the newest offset that may be read."""
        return self._journal.committed_offset(topic_id, queue, self._commit.commit_end)

    async def position(self, topic_id: TopicId, queue: int, start: int, start_ms: int) -> Offset:
        """Where in a queue `start` is now, within what is stored and committed."""
        begin = self._journal.begin_offset(topic_id, queue)
        end = self.committed(topic_id, queue)
        match start:
            case client_pb2.START_LATEST:
                wanted = end
            case client_pb2.START_TIME:
                wanted = await self._journal.find_time(topic_id, queue, start_ms)
            case _:
                wanted = begin
        return max(begin, min(wanted, end))

    async def positions(
        self, topic_id: TopicId, queues: int, start: int, start_ms: int
    ) -> list[Offset]:
        """As `position`, of the first so many queues."""
        slices, found = Slices(), list[Offset]()
        for queue in range(queues):
            await slices.step()
            found.append(await self.position(topic_id, queue, start, start_ms))
        return found
