"""Which broker can become master now: each fact that decides it, alone."""

from dataclasses import replace

from fmqcore.ids import BrokerId
from fmqoperator.core.switchovers import successors, unfit_reason
from fmqoperator.tests.world import running


def test_slave_is_in_sync_only_if_state_and_master_report_it() -> None:
    """The state and the master, about a slave that lives, is ready and linked to its master."""
    made = running(moves=True)
    assert unfit_reason(made.seen(), "g1-1") == ""
    for unlinked in (True, False):
        seen = made.seen()
        links = tuple(
            replace(r, connected=False) if unlinked else replace(r, in_sync=False)
            for r in seen.answers[BrokerId("g1-0")].replicas
        )
        answer = replace(seen.answers[BrokerId("g1-0")], replicas=links)
        seen = replace(seen, answers={**seen.answers, BrokerId("g1-0"): answer})
        assert (
            unfit_reason(seen, "g1-1") == "g1-1 is not live, not ready, or not linked to its master"
        )
    in_sync = made.seen()
    made.state = replace(made.state, isr=frozenset())
    # The master's answer is older than the state: it still calls the slave in sync.
    seen = replace(made.seen(), answers=in_sync.answers)
    assert unfit_reason(seen, "g1-1") == "g1-1 is not in sync"
    assert successors(seen) == ()
