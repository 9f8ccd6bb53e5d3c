"""What the readers of this broker may see now: the only place where readers meet the commit end.

Sessions, seeks, lag and data jobs ask here (R4). No I/O, no state.
"""

from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.runtime.notifier import Signal
from fmqcore.consume.visibility import Visibility, VisibleRange
from fmqcore.ids import TopicId


class Visible:
    """The visibility of one broker's journal; `changed` fires when it may have grown."""

    def __init__(self, journal: Journal, commit: CommitFrontier) -> None:
        self._journal = journal
        self._commit = commit

    @property
    def changed(self) -> Signal:
        """Fires when readers may see more."""
        return self._commit.changed

    def now(self) -> Visibility:
        """Return what readers may see of the journal."""
        return Visibility(self._commit.commit_end)

    def queue(self, topic_id: TopicId, queue: int) -> VisibleRange:
        """Return what readers may see of a queue (R7)."""
        journal = self._journal
        return VisibleRange(
            journal.begin_offset(topic_id, queue),
            journal.committed_offset(topic_id, queue, self.now().end),
        )
