"""The modules that are mutated, and the tests that must fail.

The tests of a line are ordered from fast to slow; the first failure ends a run. Tests that need a
ZooKeeper process, Spark, or more than some seconds are not listed.
"""

from dataclasses import dataclass
from typing import Final

CORE: Final = "broker/fmqcore/"
PORT: Final = "broker/fmqport/"
BROKER: Final = "broker/fmqbroker/"
OPERATOR: Final = "operator/fmqoperator/"
SPARK: Final = "spark/fmqspark/"


@dataclass(frozen=True, slots=True)
class Module:
    """A file, its tests (without `test_` and `.py`), and the number of mutants in a sample."""

    file: str
    tests: tuple[str, ...]
    count: int

    def paths(self) -> tuple[str, ...]:
        """The test files; they are in the `tests` folder of the same package."""
        top = "/".join(self.file.split("/")[:2])
        return tuple(f"{top}/tests/test_{name}.py" for name in self.tests)


def _of(top: str, count: int, tests: str, *names: str) -> tuple[Module, ...]:
    return tuple(Module(f"{top}{name}.py", tuple(tests.split()), count) for name in names)


_FAILOVER = "claims failover_edges failover_tail failover_why failover_machine"
_STATE = "snap control incarnations offsets_merge topic_numbers state"
_REPLICATE = (
    "replicate_counts replicate_settled replicate_isr replicate_link replicate_hello"
    " replicate_upstream replicate_reconcile replicate_suffix replicate_corners replication"
)
_JOURNAL = (
    "journal_append journal_flush journal_cut journal_tail journal_retire journal_replica"
    " journal_index journal_recover journal_terms journal_doubts journal_resume journal_full"
)
_OFFSETS = (
    "offset_store offset_store_waits offset_store_taker offset_store_disk offset_tail progress_rows"
)
_FETCH = "fetch fetch_end fetch_groups fetch_sessions fetch_stored fetch_epochs fetch_hand_overs"
_PLAN = (
    "contest turns moves plan plan_safety plan_killed plan_moves plan_asked plan_leave"
    " plan_forgotten plan_killed_quiet"
)
_STATUS = "status status_told status_waits told outages figures trouble root_causes sentences"
_CHECK = (
    "ledger progress ends edges edges_replicas damage unread unread_replicas torn gone few whose"
    " codes rebuild"
)

MODULES: Final = (
    *_of(CORE, 8, _FAILOVER, "failover/guards", "failover/machine"),
    *_of(CORE, 5, _FAILOVER, "failover/claims", "failover/rows", "failover/edits"),
    *_of(CORE, 5, _FAILOVER, "failover/moves", "failover/evidence"),
    *_of(CORE, 8, "isr reconcile", "replication/isr", "replication/reconcile"),
    *_of(CORE, 8, "policy isr", "policy"),
    *_of(CORE, 6, "cluster batch", "cluster", "batch"),
    *_of(CORE, 6, "topic_numbers topic_changes", "topic_numbers", "topic_changes"),
    *_of(CORE, 8, f"{_STATE} recovery recovery_ends", "journal/recovery", "journal/state"),
    *_of(CORE, 6, _STATE, "journal/producers", "journal/offsets", "journal/incarnations"),
    *_of(CORE, 6, f"{_STATE} progress", "journal/progress", "journal/checkpoint"),
    *_of(CORE, 6, "scan scan_headers recovery recovery_ends state", "journal/scan"),
    *_of(CORE, 6, "verify_checkpoint scan recovery", "journal/verify_checkpoint"),
    *_of(CORE, 7, "inflight inflight_seen inflight_steps lag ranges", "consume/inflight"),
    *_of(CORE, 5, "ranges inflight lag", "consume/ranges", "consume/lag"),
    *_of(CORE, 5, "assign offsets_merge", "consume/assign", "consume/merge"),
    *_of(CORE, 8, "routing", "routing"),
    *_of(CORE, 6, "index scan", "journal/index"),
    *_of(CORE, 5, f"{_STATE} index", "journal/control"),
    *_of(PORT, 8, "files directory disk_conformance", "files", "open_file", "directory"),
    *_of(PORT, 5, "topic_ids together logs free_ports", "topic_ids", "free_ports"),
    *_of(BROKER, 6, "gate live_node failover_rules", "lease", "gate"),
    *_of(BROKER, 6, "terms failover_rules failover_grants", "terms", "failover"),
    *_of(BROKER, 6, "retention topic_sweep", "retention", "topic_sweep"),
    *_of(BROKER, 6, "steady_clock journal_resume journal_append", "steady_clock"),
    *_of(BROKER, 6, _REPLICATE, "replicate_isr", "replicate_commit", "replicate_link"),
    *_of(BROKER, 6, _REPLICATE, "replicate_upstream", "replicate_master", "commit"),
    *_of(BROKER, 6, _JOURNAL, "journal/head", "journal/flusher", "journal/recover"),
    *_of(BROKER, 6, _JOURNAL, "journal/cutting", "journal/checkpoints", "journal/catalog"),
    *_of(BROKER, 6, "produce produce_ends produce_between", "produce_acks", "produce"),
    *_of(BROKER, 6, f"{_OFFSETS} group_store", "offset_store", "offset_tail", "takeover"),
    *_of(BROKER, 6, _FETCH, "delivery", "fetch", "consumer_groups"),
    *_of(OPERATOR, 10, _PLAN, "plan", "judge", "moves"),
    *_of(OPERATOR, 6, f"steps turns {_PLAN}", "promotion", "turns", "steps"),
    *_of(OPERATOR, 8, f"{_STATUS} status_waits {_PLAN}", "status", "phases", "told"),
    *_of(OPERATOR, 6, f"{_STATUS} {_PLAN}", "trouble", "root_causes"),
    *_of(OPERATOR, 6, "volumes topics", "volumes", "topics"),
    *_of(SPARK, 7, _CHECK, "check/compare", "check/segment", "check/progress"),
    *_of(SPARK, 5, _CHECK, "check/coverage", "check/gone", "check/torn", "source/claims"),
    *_of(SPARK, 5, f"{_CHECK} archive_around", "archive/ledger"),
)
