"""How much of a master's journal is settled while no term of its own is open. Owner: replication.

Only that may leave it (F9). What it appends for a term is not settled before that term's
compare-and-set stands: its number may yet be given to somebody else's claim. Neither is a *try* of
an earlier life, whose journal ends with the first batches of a term that the group's state does not
know. What another broker has is settled, try or not: taken back here, it would be asked of that
broker again.

Decides nothing else; leaves nothing on disk.
"""

from fmqbroker.journal.journal import Journal
from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.failover.term_rules import is_claim
from fmqcore.ids import BrokerId, Epoch
from fmqcore.zk.group_state import Mode


class Settled:
    """`end` is where it ends."""

    def __init__(self, me: BrokerId, journal: Journal, group: GroupStore) -> None:
        self._me = me
        self._journal = journal
        self._group = group
        self.all()
        # The terms as of my start, newest first: it may be a try, and one on another.
        self._tried = journal.state.epochs[::-1]

    def all(self) -> None:
        """All of my journal is: it was appended in a term that stood, or others have it too."""
        self.end = self._journal.end
        self._tried = []

    def look_back(self) -> None:
        """While no term of mine is open: were the newest terms that I found at my start tries?"""
        for newest, start in self._tried:
            if not self._never_stood(newest) or start < self._journal.known_commit_end:
                break
            self.end = min(self.end, start)

    def left_over(self) -> bool:
        """While no term of mine is open: does my journal end with a try that came to nothing?

        Another change won the compare-and-set, or none was made. What was appended for that term
        has never left this broker, and a slave may be ahead of where it begins.
        """
        state, journal = self._group.state.value, self._journal
        mine = state.mode is Mode.MASTER and state.master == self._me
        stands = mine and state.epoch == journal.epoch
        return journal.end > self.end and not stands

    def _never_stood(self, epoch: Epoch) -> bool:
        """No master opened that term: it is a takeover's, or the one after all that there were.

        The newest that one opened is in the state: whatever was passed since was a claim's, or a
        hand-over's, also of a takeover before the one that the state tells of.
        """
        state = self._group.state.value
        passed = 0 < state.opened < epoch <= state.epoch
        following = state.mode is not Mode.NEW and epoch == state.epoch + 1
        return passed or following or is_claim(state, epoch)
