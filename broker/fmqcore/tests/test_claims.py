"""The small rules of failover: who is bound to whom for how long, what is left of a term."""

from fmqcore.failover.claims import FOREVER, Tenure, after_announce, granted_until
from fmqcore.failover.evidence import Link
from fmqcore.words import BrokerId, Epoch

S, T, U = BrokerId("s"), BrokerId("t"), BrokerId("u")
LINKS = {S: Link(lease_until_ms=300), T: Link(lease_until_ms=100), U: Link(lease_until_ms=200)}


def test_a_lease_by_grants_ends_with_the_first_of_them() -> None:
    assert granted_until([S, T, U], LINKS) == 100  # F5: one that did not grant may claim
    assert granted_until([S, U], LINKS) == 200
    assert granted_until([S, BrokerId("never heard of")], LINKS) == 0


def test_nobody_in_sync_is_unanimous() -> None:
    assert granted_until([], LINKS) == FOREVER


def test_a_term_survives_its_live_node_only_if_all_were_bound_meanwhile() -> None:
    tenure = Tenure(Epoch(7), 3)
    assert after_announce(tenure, 3, granted_now=False) == tenure
    assert after_announce(tenure, 4, granted_now=True) == Tenure(Epoch(7), 4)
    assert after_announce(tenure, 4, granted_now=False) is None
    assert after_announce(None, 4, granted_now=True) is None
