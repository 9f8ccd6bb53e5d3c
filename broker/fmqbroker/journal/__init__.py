"""The broker's journal on a disk: segments, group commit, tail cache, recovery, retention."""

from fmqbroker.journal.journal import Appended, BatchDraft, Found, Journal

__all__ = ["Appended", "BatchDraft", "Found", "Journal"]
