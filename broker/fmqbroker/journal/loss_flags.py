"""What a broker may have lost of what it acknowledged, as far as it knows (ADR 0036, 0037).

An unclean stop may take something, and neither a start nor an orderly stop brings it back: it is
lacking until the broker is made whole. Kept in the checkpoint (`checkpoints.py`), so that the next
life knows what this one found.
"""

from fmqbroker.runtime.notifier import Signal
from fmqcore.policy import MIXED


class Doubts:
    """`changed`: the next checkpoint says something else.

    `lacks`: an unclean stop, before this life or an earlier one, may have taken what was held.
    `tail_cut`: a start since I was whole found an end that cannot be read, or a directory that
    knows nothing of itself: also what was fsynced may be gone.
    `anew`: the directory knew nothing of itself at a start since I was whole: what my journal holds
    came from whoever came first, and proves nothing (ADR 0043).
    `acked_under`: the `policy_mark` of what terms of mine acknowledged under; 0: not known.
    """

    def __init__(self, *, lacks: bool, tail_cut: bool, anew: bool, acked_under: int) -> None:
        self.lacks = lacks
        self.tail_cut = tail_cut
        self.anew = anew
        self.acked_under = acked_under
        self.changed = Signal()

    @property
    def all(self) -> tuple[bool, bool, bool, int]:
        """`lacks`, `tail_cut`, `anew`, `acked_under`."""
        return self.lacks, self.tail_cut, self.anew, self.acked_under

    def made_whole(self, *, durably: bool = True) -> None:
        """All that I ever held is here: a master that serves had it all, or I opened a term.

        Until that is on my disk too, a power cut leaves less than all that I ever fsynced.
        """
        before = (self.lacks, self.tail_cut, self.anew)
        self.acked_under = 0
        self.lacks, self.tail_cut = False, self.tail_cut and not durably
        self.anew = self.anew and not durably
        if before != (self.lacks, self.tail_cut, self.anew):
            self.changed.notify()

    def note_policy(self, mark: int) -> None:
        """In the term that is open here that policy counts; of two only the next term forgets."""
        before = self.acked_under
        self.acked_under = mark if before in (0, mark) else MIXED
        if before != self.acked_under:
            self.changed.notify()
