"""Made-up samples for each alert, and samples one step away from it, for `test_alerts.py`."""

from fmqoperator.tests.alert_samples import (
    BLIND,
    BROKER,
    GROUP,
    JOB,
    LAG,
    MEMBERS,
    MUCH,
    NEGLECTED,
    NEW,
    OPERATOR,
    ORDERED,
    OTHER,
    PROGRESS,
    READ,
    RELEASE,
    SLAVE,
    STEP_S,
    TOPIC,
    WORKS,
    WRITE,
    Case,
    of,
    seen,
    slave_alone,
)

MASTER_UNSEEN = [
    # A slave is linked to it, and it serves, as the operator reports or as no part denies.
    Case("FmqGroupTakesNoWrites", slave_alone("1x240"), None),
    Case("FmqGroupServesNoReads", slave_alone("1x240"), None),
    Case("FmqGroupTakesNoWrites", slave_alone("1x240") | {seen("serves", WRITE): "1x240"}, None),
    Case("FmqGroupServesNoReads", slave_alone("1x240") | {seen("serves", READ): "1x240"}, None),
    Case(
        "FmqBrokersNotScraped",
        slave_alone("1x240"),
        300,
        summary="Prometheus does not scrape all brokers of group g",
    ),
    # It runs and serves nothing: the operator knows.
    Case(
        "FmqGroupTakesNoWrites",
        slave_alone("1x240") | {seen("serves", WRITE): "1x3 0x240"},
        60 + 60,
        summary="Group g takes no messages",
    ),
    Case(
        "FmqGroupServesNoReads",
        slave_alone("1x240") | {seen("serves", READ): "1x3 0x240"},
        60 + 30,
        summary="Group g serves no reads",
    ),
    # It is away: no slave is linked to it, or a slave has taken over.
    Case(
        "FmqGroupTakesNoWrites",
        slave_alone("1x3 0x240"),
        60 + 60,
        summary="Group g takes no messages",
    ),
    Case(
        "FmqGroupServesNoReads",
        slave_alone("1x3 0x240"),
        60 + 30,
        summary="Group g serves no reads",
    ),
    Case(
        "FmqGroupTakesNoWrites",
        slave_alone("1x240", ',mode="SLAVE_CONSUME"'),
        60,
        summary="Group g takes no messages",
    ),
    Case("FmqBrokersNotScraped", slave_alone("0x240"), None),
    # The master is scraped and reports that it serves nothing, whatever the operator knew last.
    Case(
        "FmqGroupTakesNoWrites",
        slave_alone("1x240")
        | of("fmq_master", "1x240", "0x240")
        | of("fmq_serves", "0x240", more=WRITE)
        | {seen("serves", WRITE): "1x240"},
        60,
        summary="Group g takes no messages",
    ),
    Case(
        "FmqBrokersNotScraped",
        slave_alone("1x240")
        | of("fmq_master", "1x240", "0x240")
        | of("fmq_broker_info", "1x240", "1x240")
        | {seen("ready_brokers", ""): "2x240"},
        None,
    ),
    Case(  # one of another group of that name is the master there
        "FmqBrokersNotScraped",
        slave_alone("1x240") | {f"fmq_master{{{OTHER}}}": "1x240"},
        300,
        summary="Prometheus does not scrape all brokers of group g",
    ),
    # A slave that is not scraped.
    Case(
        "FmqBrokersNotScraped",
        of("fmq_master", "1x240")
        | of("fmq_broker_info", "1x240")
        | {seen("ready_brokers", ""): "1x3 2x240"},
        60 + 300,
        summary="Prometheus does not scrape all brokers of group g",
    ),
]
OPERATOR_FAILS = [
    Case(
        "FmqGroupNotLookedAfter",
        {NEGLECTED % "g": "0x3 75x240", NEGLECTED % "h": "30x240"},
        60 + 300,
        summary="The operator has not reconciled group g for 1m 15s",
    ),
    Case(  # slow; and a round that fails now and then
        "FmqGroupNotLookedAfter",
        {NEGLECTED % "g": "60x240", NEGLECTED % "h": "75x18 0x1 75x18 0x1 75x18"},
        None,
    ),
    Case(
        "FmqOperatorFails",
        {BLIND % "a": "0x3 75x240", BLIND % "b": "0x240"},
        60 + 300,
        RELEASE,
        "The operator has reconciled no group for 1m 15s",
    ),
    Case(
        "FmqOperatorFails",
        {BLIND % "a": "0x240", NEGLECTED % "g": "90x240", NEGLECTED % "h": "0x3 75x240"},
        60 + 300,
        RELEASE,
        "The operator has reconciled no group for 1m 15s",
    ),
    Case(  # one of two groups
        "FmqOperatorFails",
        {BLIND % "a": "60x240", NEGLECTED % "g": "90x240", NEGLECTED % "h": "30x240"},
        None,
    ),
]
_WAITS, _UNKNOWN, _BLOCKED = "unavailable_seconds", "unknown_ends", "blocked_subscriptions"
_TOPIC = {"cluster": "c", "topic": "t"}
ORDERED_TOPICS = [
    Case(
        "FmqOrderedUnavailable",
        {ORDERED % (_WAITS, "g-0"): "0x240", ORDERED % (_WAITS, "g-1"): "0x3 12x240"},
        60,
        _TOPIC,
        "Ordered topic t has taken no sends for 12s",
    ),
    Case("FmqOrderedUnavailable", {ORDERED % (_WAITS, "g-0"): "10x240"}, None),
    Case(
        "FmqOrderedEndUnknown",
        {ORDERED % (_UNKNOWN, "g-0"): "0x3 1x240", ORDERED % (_UNKNOWN, "g-1"): "0x240"},
        60 + 60,
        _TOPIC,
        "Ordered topic t: the end of a segment is not known",
    ),
    Case("FmqOrderedEndUnknown", {ORDERED % (_UNKNOWN, "g-0"): "0x3 1x3 0x240"}, None),
    Case(
        "FmqOrderedConsumersBlocked",
        {ORDERED % (_BLOCKED, "g-0"): "0x3 2x240"},
        60 + 60,
        _TOPIC,
        "Ordered topic t: 2 consumer groups cannot read on",
    ),
    Case("FmqOrderedConsumersBlocked", {ORDERED % (_UNKNOWN, "g-0"): "1x240"}, None),
]
CASES = [
    *ORDERED_TOPICS,
    *MASTER_UNSEEN,
    *OPERATOR_FAILS,
    Case(
        "FmqGroupTakesNoWrites",
        of("fmq_serves", "0x240", "0x240", more=WRITE),
        60,
        summary="Group g takes no messages",
    ),
    Case("FmqGroupTakesNoWrites", of("fmq_serves", "1x240", "0x240", more=WRITE), None),
    Case("FmqGroupTakesNoWrites", of("fmq_serves", "1x3 0x3 1x240", "0x240", more=WRITE), None),
    Case(
        "FmqGroupTakesNoWrites",
        of("fmq_serves", "0x240", "0x240", more=WRITE)
        | {f"fmq_serves{{{OTHER}{WRITE}}}": "1x240", f"fmq_mode{{{OTHER}{NEW}}}": "1x240"},
        60,
        summary="Group g takes no messages",
    ),
    Case(  # no master has opened it yet: its first master's image is on its way
        "FmqGroupTakesNoWrites",
        of("fmq_serves", "0x240", more=WRITE) | of("fmq_mode", "1x240", more=NEW),
        None,
    ),
    Case(
        "FmqGroupServesNoReads",
        of("fmq_serves", "0x240", more=READ) | of("fmq_mode", "1x240", more=NEW),
        None,
    ),
    Case(  # a person let it begin again, and its master does not open the next term
        "FmqGroupTakesNoWrites",
        of("fmq_serves", "0x240", more=WRITE)
        | of("fmq_mode", "1x240", more=NEW)
        | of("fmq_epoch", "7x240"),
        60,
        summary="Group g takes no messages",
    ),
    Case(  # a person let it begin again, and its master does not open the next term
        "FmqGroupServesNoReads",
        of("fmq_serves", "0x240", more=READ)
        | of("fmq_mode", "1x240", more=NEW)
        | of("fmq_epoch", "7x240"),
        30,
        summary="Group g serves no reads",
    ),
    Case(
        "FmqPolicyUnmet",
        of("fmq_master", "1x240", "0x240") | of("fmq_policy_unmet", "0x3 1x240", "0x240"),
        60 + 60,
        summary="Group g refuses messages: too few slaves are in sync",
    ),
    Case(  # a broker that was master once
        "FmqPolicyUnmet",
        of("fmq_master", "1x240", "0x240") | of("fmq_policy_unmet", "0x240", "1x240"),
        None,
    ),
    Case(
        "FmqGroupServesNoReads",
        of("fmq_serves", "0x240", "0x240", more=READ),
        30,
        summary="Group g serves no reads",
    ),
    Case("FmqGroupServesNoReads", of("fmq_serves", "0x240", "1x240", more=READ), None),
    Case(
        "FmqTwoMasters",
        of("fmq_serves", "1x240", "0x3 1x240", more=WRITE),
        60 + 120,
        summary="Two brokers of group g report that they may take messages",
    ),
    Case("FmqTwoMasters", of("fmq_serves", "1x240", "0x240", more=WRITE), None),
    Case(  # one of two refuses messages, and still counts as a master
        "FmqTwoMasters",
        of("fmq_serves", "1x240", "0x240", more=WRITE)
        | of("fmq_granted", "1x240", "0x3 1x240", more=WRITE),
        60 + 120,
        summary="Two brokers of group g report that they may take messages",
    ),
    Case(  # a move, half-way for as long as a minute's scrapes may see it
        "FmqTwoMasters",
        of("fmq_serves", "1x8 0x240", "0x4 1x240", more=WRITE),
        None,
    ),
    Case(
        "FmqGroupUnseen",
        {seen("serves", READ): "1x3 0x240"},
        60 + 60,
        summary="No broker of group g answers",
    ),
    Case("FmqGroupUnseen", {seen("serves", READ): "1x240"}, None),
    Case(  # running brokers report what they serve: another alert's
        "FmqGroupUnseen",
        {seen("serves", READ): "0x240"} | of("fmq_serves", "0x240", more=READ),
        None,
    ),
    Case("FmqGroupUnseen", {seen("serves", WRITE): "0x240"}, None),
    Case(
        "FmqGroupUnseen",
        {seen("serves", READ): "0x240", f"fmq_serves{{{OTHER}{READ}}}": "1x240"},
        60,
        summary="No broker of group g answers",
    ),
    Case(  # it has just been woken: it has five minutes
        "FmqGroupUnseen",
        {seen("serves", READ): "_x60 0x240", seen("brokers", ""): "0x60 2x240"},
        61 * STEP_S + 300 + 60,
        summary="No broker of group g answers",
    ),
    Case(
        "FmqGroupNotReady",
        {seen("condition", ',type="Ready"'): "0x240"},
        900,
        summary="Group g is not as declared",
    ),
    Case("FmqGroupNotReady", {seen("condition", ',type="Ready"'): "0x58 1x3 0x40 1x240"}, None),
    Case(
        "FmqDamageFound",
        {seen("condition", ',type="IndexConsistent"'): "1x3 0x240"},
        60,
        summary="A check found damage in the data of group g",
    ),
    Case("FmqDamageFound", {seen("condition", ',type="IndexConsistent"'): "1x240"}, None),
    Case("FmqDamageFound", {seen("condition", ',type="Degraded"'): "0x240"}, None),
    Case(
        "FmqTopicNotReady",
        {TOPIC: "1x3 0x240"},
        60 + 900,
        {"cluster": "c", "topic": "t"},
        "Topic t is not as declared",
    ),
    Case("FmqTopicNotReady", {TOPIC: "0x50 1x190"}, None),
    Case(
        "FmqJobFailed",
        {JOB: "0x3 1x240"},
        60,
        {"job_namespace": "n", "group": "g", "broker_job": "j"},
        "BrokerJob j of group g failed",
    ),
    Case(
        "FmqJobFailed", {'fmq_operator_jobs_in_phase{type="check",phase="Failed"}': "1x240"}, None
    ),
    Case(
        "FmqBrokersNotScraped",
        {seen("serves", READ): "1x240"},
        300,
        summary="Prometheus does not scrape all brokers of group g",
    ),
    Case(
        "FmqBrokersNotScraped",
        {seen("serves", READ): "1x240"} | of("fmq_serves", "1x240", more=READ),
        None,
    ),
    Case("FmqOperatorAway", {}, 300, {}, "No replica of the operator is active"),
    Case(
        "FmqOperatorAway",
        {WORKS % "a": "0x240", WORKS % "b": "0x240"},
        300,
        {},
        "No replica of the operator is active",
    ),
    Case("FmqOperatorAway", {WORKS % "a": "0x240", WORKS % "b": "1x240"}, None),
    Case(  # one of two releases
        "FmqOperatorAway",
        {
            'fmq_operator_lease_held{namespace="a",job="o"}': "1x240",
            'fmq_operator_lease_held{namespace="b",job="o"}': "1x3 _x240",
        },
        # A sample counts for five minutes where the target is not seen to be gone.
        60 + 300 + 300,
        {"namespace": "b", "job": "o"},
        "No replica of the operator is active",
    ),
    Case(
        "FmqNoSlaveInSync",
        of("fmq_master", "1x240", "0x240")
        | of("fmq_in_sync_slaves", "0x240", "1x240")  # what a slave reports about it may be old
        | of("fmq_slave_connected", "0x240", more=SLAVE),
        120,
        summary="No slave of group g is in sync",
    ),
    Case(
        "FmqNoSlaveInSync",
        of("fmq_master", "1x240", "0x240")
        | of("fmq_in_sync_slaves", "1x240", "0x240")
        | of("fmq_slave_connected", "1x240", more=SLAVE),
        None,
    ),
    Case(  # it has no slave
        "FmqNoSlaveInSync",
        of("fmq_master", "1x240") | of("fmq_in_sync_slaves", "0x240"),
        None,
    ),
    Case(
        "FmqSlaveLags",
        of("fmq_slave_lag_bytes", f"{MUCH + 1}x240", more=SLAVE),
        300,
        GROUP | {"slave": "g-1"},
        "Slave g-1 is 64MiB behind",
    ),
    Case("FmqSlaveLags", of("fmq_slave_lag_bytes", f"{MUCH}x240", more=SLAVE), None),
    Case(
        "FmqDiskFull",
        of("fmq_journal_full", "0x3 1x240", "0x240"),
        60,
        BROKER,
        "Broker g-0 refuses messages: its disk is full",
    ),
    Case("FmqDiskFull", of("fmq_journal_full", "0x240", "0x240"), None),
    Case(
        "FmqClockInDoubt",
        of("fmq_clock_in_doubt", "0x3 1x240", "0x240"),
        60 + 60,
        BROKER,
        "The clock of broker g-0 jumped or differs from another broker's, "
        "or its journal holds times of the future",
    ),
    Case(
        "FmqClockInDoubt",
        of("fmq_store_time_ahead_seconds", "61x240"),
        60,
        BROKER,
        "The clock of broker g-0 jumped or differs from another broker's, "
        "or its journal holds times of the future",
    ),
    Case(
        "FmqClockInDoubt",
        of("fmq_clock_in_doubt", "0x240") | of("fmq_store_time_ahead_seconds", "60x240"),
        None,
    ),
    Case(
        "FmqStateNearlyFull",
        of("fmq_state_used", "70x3 81x240", "0x240", more=PROGRESS)
        | of("fmq_state_limit", "100x240", "100x240", more=PROGRESS),
        60 + 300,
        GROUP | {"table": "progress"},
        "The table of progress of group g is 81% full",
    ),
    Case(
        "FmqStateNearlyFull",
        of("fmq_state_used", "80x240", more=PROGRESS)
        | of("fmq_state_limit", "100x240", more=PROGRESS),
        None,
    ),
    Case(
        "FmqZooKeeperAway",
        of("fmq_zookeeper_connected", "0x240", "1x240"),
        60,
        BROKER,
        "Broker g-0 has no answer from ZooKeeper",
    ),
    Case("FmqZooKeeperAway", of("fmq_zookeeper_connected", "1x240", "1x240"), None),
    Case(  # of two groups together
        "FmqConsumersLag",
        {LAG % ("g", "g-0"): "600000x240", LAG % ("h", "h-0"): "600000x240"}
        | {MEMBERS % ("g", "g-0"): "1 0x239", MEMBERS % ("h", "h-0"): "0x240"},
        600,
        {"cluster": "c", "topic": "t", "consumer_group": "r"},
        "Consumers r are 1.2M messages behind on t",
    ),
    Case(
        "FmqConsumersLag",
        {LAG % ("g", "g-0"): "1000000x240", MEMBERS % ("g", "g-0"): "1x240"},
        None,
    ),
    Case(  # two brokers report the same lag
        "FmqConsumersLag",
        {LAG % ("g", "g-0"): "600000x240", LAG % ("g", "g-1"): "600000x240"}
        | {MEMBERS % ("g", "g-0"): "1x240"},
        None,
    ),
    Case(  # no reader for a day: the group is away, its progress is kept for a while
        "FmqConsumersLag",
        {LAG % ("g", "g-0"): "2000000x240", MEMBERS % ("g", "g-0"): "0x240"},
        None,
    ),
    Case(
        "FmqOperatorStalls",
        {OPERATOR: "0x3 75x240"},
        120,
        {},
        "A group has waited for the operator for 1m 15s",
    ),
    Case("FmqOperatorStalls", {OPERATOR: "60x240"}, None),
]
