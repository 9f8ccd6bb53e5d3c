"""`ChainCopies` of a broker that is alone: no other broker reports copies of chains."""

from types import SimpleNamespace
from typing import Any

from fmqadapters.process.clock import SystemClock
from fmqbroker.ordered.chain_cache import ChainCache
from fmqbroker.ordered.chain_copies import ChainCopies
from fmqbroker.ordered.term import Term
from fmqbroker.serving.gate import Gate
from fmqcore.ids import GroupName
from fmqcore.journal.state import JournalState


def lone_copies(cache: ChainCache, group: GroupName, journal: Any = None) -> ChainCopies:
    """Return the copies in the journal; without one there are none."""
    journal = SimpleNamespace(state=JournalState()) if journal is None else journal
    view: Any = SimpleNamespace(configs={}, live={})
    transport: Any = None  # no other broker is asked
    gate = Gate(SystemClock())
    term = Term(journal, gate)
    return ChainCopies(journal, term, cache, view, transport, group, gate.changed)
