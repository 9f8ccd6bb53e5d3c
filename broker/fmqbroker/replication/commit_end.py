"""Compute the commit end of a master's term. Owner: replication.

It follows from the journal's ends and the slaves' acks. The arithmetic is pure (`fmqcore.policy`).
The result goes to the frontier (`replication/commit_frontier.py`) and into the journal's next
checkpoint. It is computed at each ack, at each flush, and when the in-sync set or the policy has
changed: once per wake-up, not once per batch.
"""

from collections.abc import Mapping, Sequence

from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqbroker.replication.view import LinkView
from fmqbroker.serving.broker_group_state import GroupStore
from fmqcore.ids import BrokerId, Epoch, Position
from fmqcore.policy import AckPolicy, MasterEnds, SlaveEnds, commit_ends


class CommitEnd:
    """Moves the commit frontier while this broker has a term open as master."""

    def __init__(
        self, me: BrokerId, journal: Journal, commit: CommitFrontier, group: GroupStore
    ) -> None:
        self._me = me
        self._journal = journal
        self._commit = commit
        self._group = group
        self._epoch = Epoch(0)
        self._epoch_start = Position(0)

    def open_for(self, epoch: Epoch) -> None:
        """Start a term as master: acks count only above its EPOCH batch (R6)."""
        starts = dict(self._journal.state.epochs)
        assert epoch in starts  # R6: a term begins with its EPOCH batch
        self._epoch, self._epoch_start = epoch, starts[epoch]

    def close(self) -> None:
        """End the term: nothing more is committed."""
        self._epoch = Epoch(0)

    def compute(
        self,
        policy: AckPolicy,
        links: Mapping[BrokerId, LinkView],
        isrs: Sequence[frozenset[BrokerId]],
    ) -> None:
        """Move the commit end as far as the policy holds under every in-sync set that may stand."""
        if not self._epoch or not isrs:
            return
        journal, config = self._journal, self._group.config
        me = config.member(self._me)
        master = MasterEnds(
            journal.written_end,
            journal.durable_end,
            self._epoch,
            self._epoch_start,
            "" if me is None else me.zone,
        )
        slaves = {m.id: _ends_of(links.get(m.id), m.zone) for m in config.slaves}
        # R6: within one epoch, over the union of old and new in-sync sets.
        assert journal.epoch == self._epoch
        ends = commit_ends(policy, master, slaves, isrs)
        # R4: everything that readers may see is in the journal.
        assert ends.commit_end <= journal.written_end
        before = self._commit.commit_end
        self._commit.advance(ends.commit_end, ends.all_end)
        if self._commit.commit_end > before:
            journal.note_commit_end(self._commit.commit_end)


def _ends_of(view: LinkView | None, zone: str) -> SlaveEnds:
    if view is None or not view.connected:
        return SlaveEnds(zone=zone)
    return slave_ends(view, zone)


def slave_ends(view: LinkView, zone: str) -> SlaveEnds:
    """Return the ends of one link in the form that the policy arithmetic takes."""
    return SlaveEnds(view.sent_end, view.received_end, view.durable_end, view.epoch, zone)
