"""How much of a master's journal is settled while it has no term open. Owner: replication.

Only what is settled may leave the broker (F9). Batches appended for a term are not settled before
that term's compare-and-set stands: another broker's claim may still get its number. Neither is a
*try* of an earlier incarnation, which leaves a journal that ends with the first batches of a term
unknown to the group's state. What another broker holds is settled, try or not: if this broker
truncated it, it would have to copy it from that broker again. Leaves nothing on disk.
"""

from fmqbroker.journal.journal import Journal
from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.failover.term_rules import is_claim
from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_state import Mode


class Settled:
    """Tracks `end`, the position up to which the journal is settled."""

    def __init__(self, me: BrokerId, journal: Journal, group: GroupStore) -> None:
        self._me = me
        self._journal = journal
        self._group = group
        self.all()
        # The terms as of the start, newest first: the newest may be a try on top of another try.
        self._tried = journal.state.epochs[::-1]

    def all(self) -> None:
        """Settle the whole journal: its term stood, or other brokers hold it too."""
        self.end = self._journal.end
        self._tried = []

    def look_back(self) -> None:
        """Without an open term, lower `end` below the newest terms at the start that were tries."""
        for newest, start in self._tried:
            if not self._never_stood(newest) or start < self._journal.known_commit_end:
                break
            self.end = min(self.end, start)

    def left_over(self) -> bool:
        """Without an open term, return whether the journal ends with a try that came to nothing.

        Another change won the compare-and-set, or none was made. What was appended for that term
        has never left this broker, and a slave may be ahead of where that term starts.
        """
        state, journal = self._group.state.value, self._journal
        is_master = state.mode is Mode.MASTER and state.master == self._me
        stands = is_master and state.epoch == journal.epoch
        return journal.end > self.end and not stands

    def _never_stood(self, epoch: Epoch) -> bool:
        """Return whether no master opened that term: a takeover's, or one after all known terms.

        The state names the newest term that a master opened. Every number passed since was a
        claim's or a hand-over's, also of a takeover before the one in the state.
        """
        state = self._group.state.value
        passed = 0 < state.last_opened_epoch < epoch <= state.epoch
        following = state.mode is not Mode.NEW and epoch == state.epoch + 1
        return passed or following or is_claim(state, epoch)
