"""The term in which this broker may take and acknowledge ordered records as master."""

from fmqbroker.journal.journal import Journal
from fmqbroker.runtime.notifier import Signal
from fmqbroker.serving.gate import Gate
from fmqcore.ids import Epoch
from fmqcore.zk.group_state import Mode

NO_TERM = Epoch(0)


class Term:
    """The group's term as journal and gate show it."""

    def __init__(self, journal: Journal, gate: Gate) -> None:
        self._journal = journal
        self._gate = gate

    @property
    def changed(self) -> Signal:
        """Fires when `held` may have changed."""
        return self._gate.changed

    @property
    def newest(self) -> Epoch:
        """The newest term in the journal; its first frames may bear the number before."""
        epochs = self._journal.state.epochs
        return epochs[-1][0] if epochs else NO_TERM

    @property
    def held(self) -> Epoch:
        """The term that this broker holds as master now, with a lease; 0 = none."""
        gate, newest = self._gate, self.newest
        own = gate.mode is Mode.MASTER and gate.epoch == newest and gate.is_master()
        return newest if own else NO_TERM
