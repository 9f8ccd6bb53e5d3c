"""Mistakes in failover: who serves, and with what right."""

from typing import Final

from fmqsim.mutants.mutant import (
    CACHE_ONE,
    DURABLE_ONE,
    GRANTED,
    LONG_GRANTS,
    POWER,
    STANDSTILL,
    ZOOKEEPER,
    Mutant,
    mutant,
)
from fmqsim.scenario.scene import Focus

GUARDS: Final = "fmqcore/failover/guards.py"
MACHINE: Final = "fmqcore/failover/machine.py"
CLAIMS: Final = "fmqcore/failover/term_rules.py"
TERMS: Final = "fmqbroker/failover/transitions.py"
LEASE: Final = "fmqbroker/serving/lease.py"

_EMPTIED: Final = "broker/fmqsim/tests/test_emptied_brokers.py::"
DECIDING: Final[tuple[Mutant, ...]] = (
    mutant(
        "an emptied reader shows what it has",
        "consumers begin at 0 there, and that counts more than what they had (C2)",
        (
            "fmqcore/failover/table.py",
            "        (g.NOT_SERVING, g.SHOWS_ALL, g.SESSION, g.STATE_CURRENT),\n",
            "        (g.NOT_SERVING, g.SESSION, g.STATE_CURRENT),\n",
        ),
        tests=(_EMPTIED + "test_emptied_reader_delivers_nothing_before_its_refill[1]",),
        alone="the only slave must lose its disk while it reads, before anybody acks there",
    ),
    mutant(
        "an emptied master believes who hands over",
        "another in sync had more: it is refused for ever, and its offsets are given again",
        (
            "fmqcore/failover/guards.py",
            "    if case.evidence.unproven and policy.how_many is HowMany.NONE:\n",
            "    if case.evidence.unproven and policy.how_many is HowMany.ALL:\n",
        ),
        tests=(_EMPTIED + "test_emptied_master_trusts_no_slave_if_none_had_to_ack",),
        alone="a disk is lost, and who had most of two is down just then; the checks excuse it",
    ),
    mutant(
        "READ given on the watch",
        "a state that was only seen gives a permission: the old reader serves beside the new one",
        (
            MACHINE,
            "    if member is None or not g.HELD.holds(case):\n"
            "        return Permission.NONE, LeaseRule.NONE\n",
            "    if member is None:\n        return Permission.NONE, LeaseRule.NONE\n",
        ),
        tests=("broker/fmqcore/tests/failover/test_machine.py::test_every_combination",),
        alone="without a tenure no lease is renewed: a second guard",
    ),
    mutant(
        "claim without lease expiry",
        "a slave that has promised to wait does not: the master still serves by its grants",
        (
            GUARDS,
            "    lambda c: c.now_ms > c.evidence.promised_until_ms,\n",
            "    lambda c: True,\n",
        ),
        focus=Focus(1, DURABLE_ONE, LONG_GRANTS, GRANTED),
        seeds=(0,),
    ),
    mutant(
        "promises forgotten on restart",
        "a slave that is restarted claims although it had just bound itself to its master",
        (
            "fmqbroker/replication/slave.py",
            "self.upstream = UpstreamView(promised_until_ms=promised_until_ms)",
            "self.upstream = UpstreamView()",
        ),
        focus=Focus(1, DURABLE_ONE, LONG_GRANTS, (*GRANTED, "kill")),
        seeds=(28,),
    ),
    mutant(
        "a promise is as long as the next life makes them",
        "after a shorter promise, a slave that is restarted claims while its master still serves",
        (
            "fmqbroker/replication/slave.py",
            "longest_ms = max(granted_ms, settings.grant_ms)",
            "longest_ms = settings.grant_ms",
        ),
        tests=(
            "broker/fmqbroker/tests/serving/test_identity.py::test_starting_broker_claims_nothing_before_its_promise_ends",
        ),
        alone="it takes a cut, a kill and a shorter promise within the one that still runs",
    ),
    mutant(
        "lease renewed by a wedged loop",
        "ZooKeeper's client keeps the session of a broker that does nothing: it never loses it",
        (
            LEASE,
            "            and not self._stalled_since(sent_ms)\n",
            "",
        ),
        tests=(
            "broker/fmqbroker/tests/serving/test_gate.py::test_renewal_during_a_loop_stall_does_not_count",
        ),
        alone="the lease counts from its sending, and a session ends with its loop: more guards",
    ),
    mutant(
        "lease counts from its answer",
        "an answer that was long on its way gives a right that is over",
        (
            LEASE,
            "self._gate.extend_lease(proof.sent_ms + lease_ms(",
            "self._gate.extend_lease(self._clock.monotonic_ms() + lease_ms(",
        ),
        tests=(
            "broker/fmqbroker/tests/serving/test_gate.py::test_a_renewal_counts_from_when_it_was_sent",
        ),
        alone="an answer that is late by so much comes over a connection that has been given up",
    ),
    mutant(
        "a session that is over keeps its lease",
        "a broker whose live node is gone serves on beside the broker that claimed",
        (LEASE, "        self._gate.end_lease()\n", ""),
        tests=(
            "broker/fmqbroker/tests/serving/test_gate.py::test_a_session_that_is_over_ends_its_lease_at_once",
        ),
        alone="its session must be ended early, and its network cut in the next moment: 1 of 3,000",
    ),
    mutant(
        "lease for the whole session",
        "it runs out when the session does, not before: another may have claimed already",
        (LEASE, "return session_timeout_ms * 2 // 3", "return session_timeout_ms * 2"),
        focus=Focus(1, DURABLE_ONE, (), ("isolate",)),
        seeds=(0,),
    ),
    mutant(
        "a grant without a lease",
        "the role alone lets a broker serve, however long it has heard nothing of ZooKeeper",
        (
            "fmqbroker/serving/gate.py",
            "return self._permission if self._permission and self.leased() else Permission.NONE",
            "return self._permission",
        ),
        focus=Focus(1, DURABLE_ONE, (), (*ZOOKEEPER, *STANDSTILL)),
        seeds=(0,),
    ),
    mutant(
        "any slave's grant is enough",
        "one that did not grant may claim while the master serves on",
        (
            CLAIMS,
            "return min((links.get(b, Link()).lease_until_ms for b in isr), default=FOREVER)",
            "return max((links.get(b, Link()).lease_until_ms for b in isr), default=FOREVER)",
        ),
        tests=(
            "broker/fmqcore/tests/failover/test_term_rules.py::test_a_grant_of_each_in_sync_slave_is_needed",
        ),
        alone="it takes two cuts at once, and the slave that is cut off to claim",
    ),
    mutant(
        "a grant while claiming",
        "a slave binds itself to a master that it is about to replace",
        (
            "fmqbroker/replication/slave_stream.py",
            "        if view.claiming or not serves:\n",
            "        if not serves:\n",
        ),
        tests=(
            "broker/fmqbroker/tests/replication/test_replication.py::test_grant_promise_is_stored_before_it_is_sent",
        ),
        alone="it takes an ack within the milliseconds of a claim",
    ),
    mutant(
        "claim ignores the master's live node",
        "a slave that is only cut off from its master takes the reads from it",
        (
            GUARDS,
            "    lambda c: c.state.master not in c.evidence.live,\n",
            "    lambda c: not c.evidence.upstream_connected,\n",
        ),
        tests=("broker/fmqcore/tests/failover/test_machine.py::test_every_combination",),
        alone="the master sees the claim within milliseconds: two serve for too short",
    ),
    mutant(
        "claim out of sync",
        "a slave that was left behind takes over without what was acknowledged since",
        (GUARDS, "    lambda c: c.me in c.state.isr,\n", "    lambda c: True,\n"),
        tests=("broker/fmqcore/tests/failover/test_machine.py::test_every_combination",),
        alone="a simulated slave is out of sync only for moments",
    ),
    mutant(
        "claim on a stale look",
        "evidence of a moment ago is taken for the present: no synced read before the step",
        (
            MACHINE,
            "    if not evidence.fresh and row.action not in _WITHOUT_LOOK:\n",
            "    if not evidence.fresh and row.action is Action.LOOK:\n",
        ),
        tests=("broker/fmqcore/tests/failover/test_machine.py::test_every_combination",),
        alone="the compare-and-set by version refuses most cases: a second guard",
    ),
    mutant(
        "a term survives its session",
        "its live node was gone for a while: somebody may have claimed meanwhile",
        (
            CLAIMS,
            "return Tenure(tenure.epoch, standing) if granted_now else None",
            "return Tenure(tenure.epoch, standing)",
        ),
        tests=(
            "broker/fmqcore/tests/failover/test_term_rules.py::test_a_tenure_ends_on_a_gap_of_the_live_node",
        ),
        alone="a synced read renews the lease and shows who claimed: a second guard",
    ),
    mutant(
        "opened without hearing the slaves",
        "a master that lost its cache serves without what only its slaves have",
        (GUARDS, "    if not case.evidence.may_lack:\n        return True\n", "    return True\n"),
        focus=Focus(1, CACHE_ONE, (), POWER),
        seeds=(0,),
    ),
    mutant(
        "a change without an answer counts as not made",
        "it may stand: the in-sync set is another than the one that is waited for",
        (
            "fmqbroker/serving/broker_group_state.py",
            "        except Unavailable:\n            return await self._settle(new.write_token)\n",
            "        except Unavailable:\n            self._settled()\n            return False\n",
        ),
        tests=(
            "broker/fmqbroker/tests/serving/test_broker_group_state.py::test_a_change_without_an_answer_is_settled_by_its_token",
        ),
        alone="it takes a lost answer just when the in-sync set changes, and a loss after that",
    ),
    mutant(
        "a stop makes a successor",
        "the master goes without waiting until who is wanted has all that it has",
        (
            "fmqbroker/failover/loop.py",
            "decision.edit if decision.action in _LAST_STEPS else None",
            "decision.edit",
        ),
        tests=(
            "broker/fmqbroker/tests/failover/test_orderly_stop.py::test_stopping_master_names_no_successor",
        ),
        alone="it must become ready between the wish and the stop, and no slave may read",
    ),
    mutant(
        "a term has the live node that stands once it is set",
        "it was gone in between: who looked then claims, and the holder goes on as if none could",
        (
            TERMS,
            "        self.tenure = Tenure(edit.epoch, standing)\n",
            "        self.tenure = Tenure(edit.epoch, p.group.standing)\n",
        ),
        tests=(
            "broker/fmqbroker/tests/failover/test_transitions.py::test_term_belongs_to_the_live_node_from_before_it_was_set",
        ),
        alone="a session must end, and the next begin, while a compare-and-set is under way",
    ),
    mutant(
        "a recreated live node has its number from before",
        "whoever saw it gone may claim, and its broker keeps its term",
        (
            "fmqbroker/serving/live_node.py",
            "        if node is None:\n            self._session = 0\n",
            "        if node is None:\n",
        ),
        tests=(
            "broker/fmqbroker/tests/serving/test_live_node.py::test_recreated_live_node_has_new_number_even_if_unnoticed",
        ),
        alone="no fault takes a live node away within its session in a simulation",
    ),
)
