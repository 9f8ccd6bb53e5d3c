"""What a broker may have lost of what it acknowledged, as far as it knows (ADR 0036, 0037).

An unclean stop may lose something, and neither a start nor an orderly stop brings it back: it is
lacking until the broker is made whole. The checkpoint (`checkpoints.py`) carries the flags over to
the next incarnation.
"""

from fmqbroker.runtime.notifier import Signal
from fmqcore.policy import MIXED


class Doubts:
    """The broker's loss flags; `changed`: the next checkpoint differs.

    `lacks`: an unclean stop before this incarnation, or an earlier one, may have lost what it held.
    `tail_lost`: since the broker was last whole, a start found an unreadable end, or no
    readable checkpoint: what was fsynced may be gone, too.
    `unproven`: since the broker was last whole, a start found no readable checkpoint: the
    journal's content came from whichever broker came first, and proves nothing (ADR 0043).
    `acked_under`: the `policy_mark` under which its terms acknowledged; 0: not known.
    """

    def __init__(self, *, lacks: bool, tail_lost: bool, unproven: bool, acked_under: int) -> None:
        self.lacks = lacks
        self.tail_lost = tail_lost
        self.unproven = unproven
        self.acked_under = acked_under
        self.changed = Signal()

    @property
    def emptied(self) -> bool:
        """Whether the disk was lost, and the journal was not completed by a master since.

        Being whole in memory is enough while this process lives, but not after an unclean stop.
        """
        return self.unproven and self.lacks

    @property
    def all(self) -> tuple[bool, bool, bool, int]:
        """`lacks`, `tail_lost`, `unproven`, `acked_under`."""
        return self.lacks, self.tail_lost, self.unproven, self.acked_under

    def made_whole(self, *, durably: bool = True) -> None:
        """Clear the flags: a master that serves had all that was ever held, or a term was opened.

        Until all that is on this broker's disk, a power cut leaves less than was ever fsynced.
        """
        before = (self.lacks, self.tail_lost, self.unproven)
        self.acked_under = 0
        self.lacks, self.tail_lost = False, self.tail_lost and not durably
        self.unproven = self.unproven and not durably
        if before != (self.lacks, self.tail_lost, self.unproven):
            self.changed.notify()

    def note_policy(self, mark: int) -> None:
        """Note the policy of the open term; a mix of two is forgotten only by the next term."""
        before = self.acked_under
        self.acked_under = mark if before in (0, mark) else MIXED
        if before != self.acked_under:
            self.changed.notify()
