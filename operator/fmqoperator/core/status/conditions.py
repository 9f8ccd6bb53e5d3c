"""Verdicts on a group, as the status and its conditions report them. Pure.

Each verdict is a reason (one word) and a message (a sentence with the remedy); what is not known is
`Unknown`, never `False`. Messages hold no number that changes with the traffic.
"""

from typing import Final

from fmqcore.ids import BrokerId, Permission
from fmqcore.policy import can_meet
from fmqcore.zk.group_state import Mode
from fmqoperator.api.group import FENCE
from fmqoperator.api.job import Verdict as JobVerdict
from fmqoperator.api.status import Access
from fmqoperator.api.times import of_text
from fmqoperator.core import broker_trouble as trouble
from fmqoperator.core import facts, lost_journals
from fmqoperator.core.children import volumes
from fmqoperator.core.observation import Observation
from fmqoperator.core.outlook import Outlook
from fmqoperator.core.plan_types import Verdict
from fmqoperator.core.status import redundancy, root_causes


def access(seen: Observation) -> Access:
    """Return the permission that the server reports; without ZooKeeper, as known last."""
    state = facts.state_of(seen)
    if seen.zookeeper is None:
        reported = served_without_zookeeper(seen)
        return seen.group.status.access if reported is None else reported[0]
    if elsewhere := facts.serve_elsewhere(seen):
        return Access(max(seen.answers[BrokerId(b)].permission for b in elsewhere).name or "NONE")
    if state.mode not in (Mode.MASTER, Mode.SLAVE_CONSUME):
        return Access.NONE
    server = facts.server_of(state)
    answer = facts.answer_of(seen, server)
    if answer is not None:
        return Access(answer.permission.name or "NONE")
    return Access.UNKNOWN if facts.is_live(seen, server) else Access.NONE


def reader(seen: Observation) -> str:
    """Return the broker that serves reads, for READER: "" while it is known that none does."""
    state, now, last = facts.state_of(seen), access(seen), seen.group.status.reader
    if seen.zookeeper is None:
        reported = served_without_zookeeper(seen)
        if reported is None or reported[0] is Access.UNKNOWN:
            return last
        return reported[1] if Permission[reported[0].value] & Permission.READ else ""
    if elsewhere := facts.serve_elsewhere(seen):
        return elsewhere[0]
    if now is Access.UNKNOWN:
        return facts.server_of(state)
    return facts.server_of(state) if Permission[now.value] & Permission.READ else ""


def served(seen: Observation, writes: Verdict) -> Access:
    """Return what clients get (ACCESS): a master that can acknowledge no send only serves reads.

    `writes` is the verdict WriteAvailable of the same look.
    """
    now = access(seen)
    if now in (Access.NONE, Access.UNKNOWN) or writes.status != "False":
        return now
    return Access((Permission[now.value] & ~Permission.WRITE).name or "NONE")


def served_without_zookeeper(seen: Observation) -> tuple[Access, str] | None:
    """Return the access that a broker reports without ZooKeeper, and that broker; None: not known.

    A broker serves by a lease, and knows by itself whether it still has it. If the last known
    server reports that it no longer serves, what was known last is not so: `UNKNOWN`, as long as
    another broker is silent.
    """
    reports = sorted((a.permission.value, b) for b, a in seen.answers.items())
    if reports and reports[-1][0]:
        return Access(Permission(reports[-1][0]).name), reports[-1][1]
    if not _silent(seen):
        return Access.NONE, ""
    last = seen.group.status
    server = last.reader if last.access is Access.READ else last.master
    return (Access.UNKNOWN, server) if BrokerId(server) in seen.answers else None


def _silent(seen: Observation) -> list[str]:
    return [b for b in seen.group.brokers if BrokerId(b) not in seen.answers]


def verdicts(seen: Observation, what: Outlook) -> list[Verdict]:
    """Return all conditions but Ready."""
    return [
        _writes(seen),
        _reads(seen),
        _replication(seen),
        _failover(seen),
        _offsets(seen),
        zookeeper(seen),
        _progress(seen, what),
        _config(seen, what),
        volumes.verdict(seen),
        fenced(seen),
        _paused(seen),
        redundancy.verdict(seen),
        *_index(seen),
    ]


# ---- one function per condition


def _writes(seen: Observation) -> Verdict:
    kind, now = "WriteAvailable", access(seen)
    if seen.zookeeper is None:
        return _without_zookeeper(seen, kind, Permission.WRITE, "takes writes")
    if now is Access.UNKNOWN:
        return Verdict(kind, "Unknown", "NotKnown", _unknown(seen))
    state, config = facts.state_of(seen), facts.config_of(seen)
    if not Permission[now.value] & Permission.WRITE:
        if cause := lost_journals.waits(seen):
            return Verdict(kind, "False", "JournalsLost", cause)
        return Verdict(kind, "False", "NoMaster", _unserved_reason(seen, Permission.WRITE))
    master = None if config is None else config.member(state.master)
    if config is not None and master is not None:
        zones = {m.id: m.zone for m in config.members if m.id != master.id}
        if cause := can_meet(config.policy, zones, master.zone, state.isr):
            return Verdict(kind, "False", "NotEnoughReplicas", cause)
    if refusal := trouble.refusal(seen, state.master):
        return Verdict(kind, "False", *refusal)
    return Verdict(kind, "True", "Serving", f"{_server(seen)} takes writes")


def _reads(seen: Observation) -> Verdict:
    kind, now = "ReadAvailable", access(seen)
    if seen.zookeeper is None:
        return _without_zookeeper(seen, kind, Permission.READ, "serves reads")
    if now is Access.UNKNOWN:
        return Verdict(kind, "Unknown", "NotKnown", _unknown(seen))
    if not Permission[now.value] & Permission.READ:
        if cause := lost_journals.waits(seen):
            return Verdict(kind, "False", "JournalsLost", cause)
        return Verdict(kind, "False", "NoReader", _unserved_reason(seen, Permission.READ))
    return Verdict(kind, "True", "Serving", f"{_server(seen)} serves reads")


def _server(seen: Observation) -> str:
    elsewhere, server = facts.serve_elsewhere(seen), facts.server_of(facts.state_of(seen))
    return f"{', '.join(elsewhere)} (through another ensemble)" if elsewhere else server


def _without_zookeeper(seen: Observation, kind: str, bit: Permission, does: str) -> Verdict:
    """Return the verdict from brokers' own reports, or as known last."""
    reported = served_without_zookeeper(seen)
    if reported is None:
        last = f"last known: {seen.group.status.access.value}"
        return Verdict(kind, "Unknown", "LastKnown", f"{_UNASKED}; {last}")
    now, server = reported
    if now is Access.UNKNOWN:
        cause = seen.answers[BrokerId(server)].cause or "it does not serve"
        silent = f"no answer from {', '.join(_silent(seen))}"
        return Verdict(kind, "Unknown", "NotKnown", f"{server}: {cause}; {silent}; {_UNASKED}")
    if Permission[now.value] & bit:
        return Verdict(kind, "True", "Serving", f"{server} {does} by its own report; {_UNASKED}")
    message = f"no broker reports that it {does}; {_UNASKED}"
    return Verdict(kind, "False", "NobodyServes", message)


def _unknown(seen: Observation) -> str:
    state = facts.state_of(seen)
    server = facts.server_of(state)
    return f"{server} is live in ZooKeeper, but does not answer the operator"


def _unserved_reason(seen: Observation, bit: Permission) -> str:
    """Return why no broker serves that, from the best source."""
    state = facts.state_of(seen)
    if state.mode is Mode.NEW:
        return facts.opening_wait(seen) or "no master has opened the group yet"
    if state.mode is Mode.MASTER and state.master in facts.fenced(seen):
        remedy = f"remove {state.master} from annotation {FENCE}, or name another master"
        return f"master {state.master} is fenced: {remedy}"
    server = facts.server_of(state)
    if kept := _permission_reason(seen, server, bit if server == state.master else Permission.READ):
        return kept
    answer = facts.answer_of(seen, state.master)
    if answer is not None and answer.cause:
        return f"{state.master}: {answer.cause}"
    if not facts.is_live(seen, server):  # the state's reason is out of date
        there = facts.is_live(seen, state.master)
        message = f"master {state.master} {'does not serve yet' if there else 'is gone'}"
        reader = f", and {server}, which served the reads, is gone"
        return message if server == state.master else f"{message}{reader}"
    return state.reason or f"master {state.master} does not serve"


def _permission_reason(seen: Observation, server: str, bit: Permission) -> str:
    """Return that the server's permission, a person's decision, forbids it; "" = it does not."""
    config = facts.config_of(seen)
    member = None if config is None else config.member(BrokerId(server))
    if member is None or member.permission & bit or not facts.is_live(seen, server):
        return ""
    most = f"only {member.permission.name}" if member.permission else "nothing"
    slave = "" if server == facts.state_of(seen).master else ", or spec.slaveReads"
    by = FENCE if server in facts.fenced(seen) else f"spec.permissions{slave}"
    return f"{server} may serve {most} ({by}): raise its permission, or name another master"


def _replication(seen: Observation) -> Verdict:
    kind, config, state = facts.REPLICATION, facts.config_of(seen), facts.state_of(seen)
    if seen.zookeeper is None or config is None:
        return Verdict(kind, "Unknown", "NotKnown", _not_asked(seen))
    slaves = [str(m.id) for m in config.members if m.id != (state.master or config.master)]
    behind = [b for b in slaves if b not in state.isr]
    if behind:
        return Verdict(kind, "False", "NotInSync", f"not in sync: {', '.join(behind)}")
    message = f"in sync: {', '.join(slaves)}" if slaves else "no slave is declared"
    return Verdict(kind, "True", "InSync", message)


def _failover(seen: Observation) -> Verdict:
    kind, config, state = "FailoverSafe", facts.config_of(seen), facts.state_of(seen)
    if seen.zookeeper is None or config is None:
        return Verdict(kind, "Unknown", "NotKnown", _not_asked(seen))
    if len(config.members) == 1:
        return Verdict(
            kind, "False", "Alone", "the group has one broker: set spec.replicas to 2 or more"
        )
    able = [
        m.id
        for m in config.members
        if m.id in state.isr and facts.is_live(seen, m.id) and m.permission & Permission.READ
        if m.id != state.reader
    ]
    if not able:
        return Verdict(
            kind, "False", "NoSuccessor", "no other broker is in sync, live and permitted to read"
        )
    return Verdict(kind, "True", "SlaveInSync", f"{', '.join(sorted(able))} can take over")


LOSS_SHOWN_MS: Final = 3_600_000
"""For so long a group that lost consumer offsets is not Ready, so that a person sees it."""
_OFFSETS_SYNCED: Final = "OffsetsSynced"
_LOST: Final = "Lost"


def _offsets(seen: Observation) -> Verdict:
    kind, state = _OFFSETS_SYNCED, facts.state_of(seen)
    if seen.zookeeper is None:
        return Verdict(kind, "Unknown", "NotKnown", _not_asked(seen))
    match state.mode:
        case Mode.SLAVE_CONSUME | Mode.HANDOVER:
            place = "in ZooKeeper" if state.offsets_final else f"at {state.reader}"
            cause = f"the newest consumer offsets are {place} until {state.master} returns"
            return Verdict(kind, "False", "AtReader", cause)
        case Mode.NEW | Mode.MASTER:
            if state.degraded:
                return Verdict(kind, "False", _LOST, state.reason)
            return Verdict(kind, "True", "AtMaster")


_NOT_COMPARED: Final = "not compared with the declaration while spec.paused is set"
_NOT_LISTED: Final = "the group's objects cannot be listed"
_UNASKED: Final = "the operator cannot read ZooKeeper (see ZooKeeperConnected)"
UNREADABLE: Final = "Unreadable"
OTHER: Final = "OtherEnsemble"


def _not_asked(seen: Observation) -> str:
    """Return a short note: ZooKeeperConnected alone has the whole sentence."""
    return _UNASKED if seen.zookeeper is None else ""


_CHECK_CONNECT: Final = "check spec.zookeeper.connect"
_AS_OF_LAST: Final = "master, epoch and inSync are as last read"


def zookeeper(seen: Observation) -> Verdict:
    """Return whether the operator and the brokers reach ZooKeeper."""
    kind, where = "ZooKeeperConnected", seen.group.spec.zookeeper.connect
    if seen.zookeeper is None:
        cause = seen.zookeeper_why or f"{where} does not answer"
        if seen.zookeeper_bad:
            return Verdict(kind, "False", UNREADABLE, f"{where} answers, but {cause}")
        if reach := facts.reaching(seen):
            note = f"but {', '.join(reach)} can reach it: brokers fail over by themselves"
            message = f"{cause}, {note}; {_AS_OF_LAST}; {_CHECK_CONNECT}"
            return Verdict(kind, "False", "OperatorCut", message)
        return Verdict(kind, "False", "Unreachable", f"{cause}: {_CHECK_CONNECT}")
    if elsewhere := facts.serve_elsewhere(seen):
        serve = "serves" if len(elsewhere) == 1 else "serve"
        message = (
            f"{where} has no state of this group, but {', '.join(elsewhere)} {serve} it by the "
            "state in another ensemble: set spec.zookeeper.connect back, or restart all brokers to "
            "start the group again there, without topics and consumer offsets"
        )
        return Verdict(kind, "False", OTHER, message)
    cut = sorted(b for b, a in seen.answers.items() if not a.zookeeper_connected)
    if cut:
        return Verdict(
            kind, "False", root_causes.BROKERS_CUT, f"{', '.join(cut)} cannot reach {where}"
        )
    return Verdict(kind, "True", "Connected", where)


def _progress(seen: Observation, what: Outlook) -> Verdict:
    kind = "Progressing"
    if what.step is not None:
        return Verdict(kind, "True", type(what.step).__name__, what.step.cause)
    if what.holds:
        message = "; ".join(h.message for h in what.holds)
        moving = any(h.blocks for h in what.holds)
        return Verdict(kind, "True" if moving else "False", what.holds[0].reason, message)
    if seen.group.spec.paused:
        return Verdict(kind, "False", "Paused", _NOT_COMPARED)
    if what.problem is not None:
        return Verdict(kind, "False", what.problem.reason, what.problem.message)
    if found := trouble.of_pods(seen):
        return Verdict(kind, "True", "Starting", "; ".join(found))
    if seen.zookeeper is None or seen.children is None:
        return Verdict(kind, "Unknown", "NotKnown", _not_asked(seen) or _NOT_LISTED)
    return Verdict(kind, "False", "AsDeclared")


def _config(seen: Observation, what: Outlook) -> Verdict:
    kind = "ConfigApplied"
    if seen.failures:
        message = "; ".join(f"{f.what}: {f.message}" for f in seen.failures)
        return Verdict(kind, "False", seen.failures[0].reason, message)
    if what.problem is not None:
        return Verdict(kind, "False", what.problem.reason, what.problem.message)
    if seen.group.spec.paused:
        return Verdict(kind, "Unknown", "Paused", _NOT_COMPARED)
    if seen.children is None:
        return Verdict(kind, "Unknown", "NotListed", _NOT_LISTED)
    if seen.zookeeper is None:
        return Verdict(kind, "Unknown", "NotKnown", _not_asked(seen))
    if what.config_differs or what.children or what.owners:
        named = [f"{c['kind']} {c['metadata']['name']}" for c, _ in what.children]
        named += [f"PersistentVolumeClaim {change.claim.name}" for change in what.owners]
        return Verdict(kind, "False", "Applying", ", ".join(named) or "configuration in ZooKeeper")
    if facts.outdated(seen):
        pods = ", ".join(p.name for p in facts.outdated(seen))
        return Verdict(kind, "False", "RestartsDue", f"pods to restart: {pods}")
    return Verdict(kind, "True", "Applied")


_INDEX: Final = {
    JobVerdict.CLEAN: ("True", "Clean"),
    JobVerdict.WARNINGS: ("True", "Warnings"),
    JobVerdict.INCONSISTENT: ("False", "Inconsistent"),
    JobVerdict.INCOMPLETE: ("Unknown", "Incomplete"),
    JobVerdict.UNKNOWN: ("Unknown", "Incomplete"),
}


def _index(seen: Observation) -> list[Verdict]:
    """Return the finding of the last BrokerJob of type check; left out if there was none."""
    found = seen.check
    if found is None:
        return []
    status, reason = _INDEX[found.verdict]
    message = f"BrokerJob {found.job} ({found.level}, {found.finished_at}): {found.message}"
    return [Verdict("IndexConsistent", status, reason, message)]


FENCE_WAITS: Final = "NotYet"


def fenced(seen: Observation) -> Verdict:
    """Return the brokers that the annotation fences; one that serves on is not called fenced."""
    asked, vain = facts.fenced(seen), facts.fenced_in_vain(seen)
    if not asked:
        return Verdict("Fenced", "False", "NoSuchBroker" if vain else "NotAsked", vain)
    closed, opens = facts.closed(seen), sorted(asked - facts.closed(seen))
    parts = []
    if found := sorted(asked & closed):
        serve = "serves" if len(found) == 1 else "serve"
        parts.append(f"{', '.join(found)} {serve} nothing (annotation {FENCE})")
    if opens:
        waits = _fence_waits(seen)
        parts.append(f"{', '.join(opens)} may still serve despite annotation {FENCE}: {waits}")
    parts += [vain] if vain else []
    reason = FENCE_WAITS if opens else "Asked"
    return Verdict("Fenced", "True" if found else "False", reason, "; ".join(parts))


def _fence_waits(seen: Observation) -> str:
    if seen.group.spec.paused:
        return "spec.paused is set"
    if seen.zookeeper is None:
        return _UNASKED
    return "it has not applied the fence yet"


def _paused(seen: Observation) -> Verdict:
    if seen.group.spec.paused:
        return Verdict(
            "Paused", "True", "Asked", "spec.paused is set: the operator changes nothing"
        )
    return Verdict("Paused", "False", "NotAsked")


def missing_parts(seen: Observation, found: list[Verdict]) -> list[str]:
    """Return the group's defects while it may serve."""
    bad = ("ReplicationHealthy", _OFFSETS_SYNCED, "ZooKeeperConnected", "StorageReady")
    wrong = [v for v in found if v.type in bad and v.status == "False"]
    out = [v.message or v.reason for v in wrong if not _is_old_loss(seen, v)]
    out += [*trouble.of_disks(seen), *trouble.of_pods(seen)]
    return root_causes.first(root_causes.root_causes(seen, found), out)


def _is_old_loss(seen: Observation, verdict: Verdict) -> bool:
    """Whether a verdict is about offsets that were lost before: nothing is missing any more.

    The condition reports it until the next term. A group that stays Degraded by what no person can
    mend would hide what a person should mend.
    """
    if (verdict.type, verdict.reason) != (_OFFSETS_SYNCED, _LOST):
        return False
    opened, epoch = seen.group.status.last_transition, facts.state_of(seen).epoch
    if opened is None or opened.epoch != epoch:
        return False
    return seen.now_ms - of_text(opened.at) >= LOSS_SHOWN_MS


_STARTING_REASONS: Final = frozenset({"NotInSync", "NotEnoughReplicas", "NoVolume", "NotBound"})


def of_starting_brokers(seen: Observation, found: list[Verdict]) -> list[str]:
    """Return which of these messages are true of every broker that starts."""
    return [*(v.message for v in found if v.reason in _STARTING_REASONS), *trouble.of_pods(seen)]


def broker_permission(seen: Observation, broker: str) -> str:
    """Return the permission it reports; a broker without pod and live node serves nothing."""
    answer = facts.answer_of(seen, BrokerId(broker))
    if answer is not None:
        return answer.permission.name or "NONE"
    absent = seen.pods is not None and broker not in seen.pods
    gone = seen.zookeeper is not None and not facts.is_live(seen, broker)
    return "NONE" if absent and gone else "UNKNOWN"
