"""Promises of acks, and the losses that may break them: a table, and laws for the whole table."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.checks.losses import Losses
from e2e.checks.premature_visibility import SeenEnds
from e2e.checks.promises import TAKES, Copy, Loss, may_lose, promise_of
from e2e.history.cluster_events import Down, Ending, Ends, Fault, FaultKind, GroupSetup, Step, Up
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts

ALL3 = ("m", "a", "b")
SENT, ACKED = 100.0, 200.0
LEVELS = ("received", "persisted", "replicated", "all")


def group(policy: AckPolicy | None = None, members: tuple[str, ...] = ALL3) -> GroupSetup:
    return GroupSetup("g", "m", members, policy or AckPolicy(), ("here", "here", "there"))


def lost(broker: str, takes: Copy, from_ms: float = 300.0, until_ms: float = inf) -> Loss:
    return Loss(broker, from_ms, until_ms, takes)


def excuse(level: str, policy: AckPolicy, *losses: Loss, isr: tuple[str, ...] = ("a", "b")) -> bool:
    promise = promise_of(level, group(policy), [frozenset(isr)], SENT, ACKED)
    return bool(may_lose(promise, losses))


FSYNC_ONE = AckPolicy()
CACHE_ONE = AckPolicy(Flush.OS_CACHE)
CACHE_RECEIVED = AckPolicy(Flush.OS_CACHE, counts=SlaveCounts.RECEIVED)
CACHE_SENT = AckPolicy(Flush.OS_CACHE, counts=SlaveCounts.SENT)
CACHE_ALONE = AckPolicy(Flush.OS_CACHE, how_many=HowMany.NONE)
FSYNC_ALONE = AckPolicy(how_many=HowMany.NONE)
CACHE_ALL = AckPolicy(Flush.OS_CACHE, how_many=HowMany.ALL)
CACHE_MAJORITY = AckPolicy(Flush.OS_CACHE, how_many=HowMany.MAJORITY)
CACHE_ZONES = AckPolicy(Flush.OS_CACHE, how_many=HowMany.ZONES)

KILL, POWER, DISK = Copy.MEMORY, Copy.CACHE, Copy.DISK
TABLE: list[tuple[str, AckPolicy, tuple[Loss, ...], bool]] = [
    # one_way is never excusable the other way round: nothing was promised
    ("one_way", FSYNC_ONE, (), True),
    ("received", FSYNC_ONE, (), False),
    ("received", FSYNC_ONE, (lost("m", KILL),), True),
    ("received", FSYNC_ONE, (lost("a", DISK),), False),
    ("persisted", FSYNC_ONE, (lost("m", POWER),), False),
    ("persisted", FSYNC_ONE, (lost("m", DISK),), True),
    ("replicated", FSYNC_ONE, (lost("m", POWER), lost("a", POWER), lost("b", POWER)), False),
    ("replicated", FSYNC_ONE, (lost("m", DISK),), False),
    ("replicated", FSYNC_ONE, (lost("m", DISK), lost("a", DISK)), True),
    ("replicated", FSYNC_ALONE, (lost("m", DISK),), True),
    ("replicated", FSYNC_ALONE, (lost("m", POWER),), False),
    ("replicated", CACHE_ONE, (lost("m", POWER),), False),
    ("replicated", CACHE_ONE, (lost("m", POWER), lost("a", POWER)), False),
    ("replicated", CACHE_ONE, (lost("m", POWER), lost("a", DISK)), True),
    ("replicated", CACHE_ALONE, (lost("m", KILL),), False),
    ("replicated", CACHE_ALONE, (lost("m", POWER),), True),
    ("replicated", CACHE_RECEIVED, (lost("m", POWER), lost("a", KILL)), True),
    ("replicated", CACHE_RECEIVED, (lost("m", KILL), lost("a", KILL)), False),
    ("replicated", CACHE_SENT, (lost("m", POWER),), True),
    ("replicated", CACHE_ALL, (lost("m", POWER), lost("a", DISK)), False),
    ("replicated", CACHE_ALL, (lost("m", POWER), lost("a", DISK), lost("b", DISK)), True),
    ("replicated", CACHE_MAJORITY, (lost("m", POWER), lost("b", DISK)), True),
    ("replicated", CACHE_ZONES, (lost("m", POWER), lost("b", DISK)), False),
    ("replicated", CACHE_ZONES, (lost("m", POWER), lost("a", DISK), lost("b", DISK)), True),
    ("all", CACHE_ALONE, (lost("m", POWER), lost("a", POWER), lost("b", POWER)), False),
    ("all", CACHE_ALONE, (lost("m", DISK), lost("a", DISK)), False),
    ("all", CACHE_ALONE, (lost("m", DISK), lost("a", DISK), lost("b", DISK)), True),
]


@pytest.mark.parametrize(("level", "policy", "losses", "wanted"), TABLE)
def test_the_table(level: str, policy: AckPolicy, losses: tuple[Loss, ...], wanted: bool) -> None:
    assert excuse(level, policy, *losses) is wanted


def test_a_loss_before_it_was_sent_is_no_excuse() -> None:
    assert not excuse("replicated", CACHE_ALONE, lost("m", POWER, SENT - 1))
    assert excuse("replicated", CACHE_ALONE, lost("m", POWER, SENT))


def test_copies_must_be_lost_at_the_same_moment() -> None:
    first, second = lost("m", POWER, 300, 400), lost("a", DISK, 350, 500)
    assert excuse("replicated", CACHE_ONE, first, second)
    assert not excuse("replicated", CACHE_ONE, lost("m", POWER, 300, 340), second)
    assert not excuse("replicated", CACHE_ONE, lost("m", POWER, 300, 350), second)


def test_only_slaves_in_sync_count() -> None:
    losses = lost("m", DISK), lost("b", DISK)
    assert excuse("replicated", FSYNC_ONE, *losses, isr=("a", "b"))
    assert not excuse("replicated", FSYNC_ONE, *losses, isr=("a",))


def test_any_in_sync_set_of_the_time_may_have_made_the_ack() -> None:
    isrs = [frozenset("a"), frozenset("b")]
    promise = promise_of("replicated", group(), isrs, SENT, ACKED)
    assert may_lose(promise, [lost("m", DISK), lost("b", DISK)])
    assert may_lose(promise, [lost("m", DISK), lost("a", DISK)])
    assert not may_lose(promise, [lost("m", DISK)])


def test_strict_means_every_configured_slave() -> None:
    strict = AckPolicy(how_many=HowMany.ALL, strict=True)
    losses = lost("m", DISK), lost("a", DISK)
    assert not excuse("replicated", strict, *losses, isr=("a",))


def test_memory_and_cache_reach_the_disk_after_the_interval() -> None:
    interval = AckPolicy(Flush.INTERVAL, 500, how_many=HowMany.NONE)
    assert excuse("replicated", interval, lost("m", POWER, ACKED + 2400))
    assert not excuse("replicated", interval, lost("m", POWER, ACKED + 2600))
    assert excuse("received", FSYNC_ONE, lost("m", KILL, ACKED + 1900))
    assert not excuse("received", FSYNC_ONE, lost("m", KILL, ACKED + 2100))
    stood = lost("m", POWER, ACKED + 2600)._replace(idle=((ACKED + 100, inf),))
    assert excuse("replicated", interval, stood), "it stood still meanwhile"
    woke = stood._replace(idle=((ACKED + 10, ACKED + 1000), (ACKED + 1200, ACKED + 1400)))
    assert excuse("replicated", interval, woke), "it has not had the time"
    assert not excuse("replicated", interval, woke._replace(from_ms=ACKED + 3700))


@pytest.mark.parametrize("policy", [CACHE_ALONE, AckPolicy(Flush.INTERVAL, how_many=HowMany.NONE)])
def test_batches_present_at_recovery_count_as_on_disk(policy: AckPolicy) -> None:
    later = lost("m", POWER, ACKED + 100)
    assert excuse("replicated", policy, later._replace(settled_ms=ACKED - 1))
    assert not excuse("replicated", policy, later._replace(settled_ms=ACKED))
    assert excuse("replicated", policy, later._replace(settled_ms=ACKED, takes=DISK))


def test_batch_seen_after_the_fault_was_not_lost_by_it() -> None:
    isrs = [frozenset({"a", "b"})]
    promise = promise_of("replicated", group(CACHE_ALONE), isrs, SENT, ACKED, below=5000)
    assert may_lose(promise, [lost("m", POWER)._replace(kept=4999)])
    assert not may_lose(promise, [lost("m", POWER)._replace(kept=5000)])
    assert may_lose(promise, [lost("m", DISK)._replace(kept=5000)]), "damage is not always seen"


def test_every_fault_kind_names_the_copies_it_takes() -> None:
    assert set(TAKES) == set(FaultKind)


def test_an_unknown_level_is_no_promise_to_guess() -> None:
    with pytest.raises(ValueError, match="acks=most"):
        promise_of("most", group(), [], SENT, ACKED)


# ---- laws

policies = st.builds(
    AckPolicy,
    st.sampled_from(Flush),
    st.just(500),
    st.sampled_from(SlaveCounts),
    st.sampled_from(HowMany),
    st.booleans(),
)
losses_ = st.lists(
    st.builds(
        lambda broker, takes, at, lasts: Loss(broker, at, at + lasts, takes),
        st.sampled_from(ALL3),
        st.sampled_from([Copy.MEMORY, Copy.CACHE, Copy.DISK]),
        st.floats(0, 9000),
        st.floats(1, 9000),
    ),
    max_size=6,
)


@given(st.sampled_from(LEVELS), policies, losses_, losses_)
def test_more_losses_excuse_no_less(
    level: str, policy: AckPolicy, some: list[Loss], more: list[Loss]
) -> None:
    if excuse(level, policy, *some):
        assert excuse(level, policy, *some, *more)


@given(st.sampled_from(LEVELS), policies, losses_)
def test_without_a_loss_of_the_master_nothing_is_excused(
    level: str, policy: AckPolicy, some: list[Loss]
) -> None:
    assert not excuse(level, policy, *(x for x in some if x.broker != "m"))


@given(policies, losses_)
def test_all_promises_no_less_than_the_policy(policy: AckPolicy, some: list[Loss]) -> None:
    if excuse("all", policy, *some):
        assert excuse("persisted", policy, *some)
        if policy.how_many is HowMany.ONE:
            assert excuse("replicated", policy, *some)


@given(st.sampled_from(LEVELS), policies, losses_)
def test_a_better_flush_excuses_no_more(level: str, policy: AckPolicy, some: list[Loss]) -> None:
    better = AckPolicy(Flush.FSYNC, 500, SlaveCounts.DURABLE, policy.how_many, policy.strict)
    if excuse(level, better, *some):
        assert excuse(level, policy, *some)


# ---- losses out of a history


def _at(broker: str, at_ms: float, end: int) -> Ends:
    return Ends(at_ms, at_ms, broker, "g", 0, end, end, end)


def test_loss_ends_when_the_broker_has_what_any_broker_had() -> None:
    lives: dict[str, list[Up | Down]] = {
        "m": [Down(300, "m", "g", Ending.POWER), Up(400, "m", "g", 0, 10, 10)]
    }
    ends = {
        "m": [_at("m", 290, 50), _at("m", 410, 40), _at("m", 420, 60)],
        "a": [_at("a", 100, 90), _at("a", 295, 60)],  # it was truncated meanwhile
    }
    (loss,) = Losses([], lives, ends).all
    assert loss == Loss("m", 300, 420, Copy.CACHE, kept=10)
    (loss,) = Losses([], lives, {"m": ends["m"][:2], "a": ends["a"]}).all
    assert loss.until_ms == inf
    sampled = {name: [e._replace(asked_ms=e.asked_ms - 1) for e in of] for name, of in ends.items()}
    (loss,) = Losses([], lives, sampled).all
    assert loss.kept == -1, "it may have grown before it was seen"


@pytest.mark.parametrize(("down_ms", "seen"), [(None, 5), (90, 5), (110, None), (190, None)])
def test_ends_of_an_earlier_incarnation_are_not_used(
    down_ms: float | None, seen: int | None
) -> None:
    """Sent at 100 ms, delivered at 200, seen at 205; sampled, as in real processes."""
    ends = [Ends(at - 1, at, "m", "g", 0, of, of, of) for at, of in ((150, 50), (206, 5))]
    life = [] if down_ms is None else [Down(down_ms, "m", "g", Ending.KILLED)]
    found = SeenEnds(ends, life, ()).most(100, 200)
    assert (None if found is None else found.commit_end) == seen


def test_standstill_counts_as_idle_time() -> None:
    faults = [
        Fault(100, 1, FaultKind.PAUSE, "m", Step.FIRED),
        Fault(200, 5, FaultKind.WEDGE, "m", Step.FIRED),
        Fault(300, 2, FaultKind.POWER, "m", Step.FIRED),
        Fault(400, 1, FaultKind.PAUSE, "m", Step.HEALED),
        Fault(450, 5, FaultKind.WEDGE, "m", Step.HEALED),
        Fault(500, 3, FaultKind.POWER, "m", Step.FIRED),
        Fault(500, 4, FaultKind.CUT, "m", Step.FIRED),
    ]
    losses = Losses(faults, {}, {}).all
    assert [loss.idle for loss in losses] == [((100, 400), (400, 450))] * 2
    assert not Losses(faults, {}, {}).damaged(("m",))


@pytest.mark.parametrize(("how", "idle"), [(Ending.KILLED, True), (Ending.STOPPED, False)])
def test_ended_broker_writes_nothing(how: Ending, idle: bool) -> None:
    """Killed, and not up again when its power fails, though a start was under way."""
    last_end = Down(900, "m", "g", Ending.POWER)
    life: list[Up | Down] = [Up(50, "m", "g", 0, 10, 10), Down(100, "m", "g", how), last_end]
    power = [Fault(900, 1, FaultKind.POWER, "m", Step.FIRED)]
    loss = Losses(power, {"m": life}, {}).all[0]
    assert loss.idle == ((100, 900),)
    assert loss.settled_ms == (50 if idle else 100), "who stops in order has written all"
    life.insert(2, Up(500, "m", "g", 0, 10, 10))
    loss = Losses(power, {"m": life}, {}).all[0]
    assert (loss.idle, loss.settled_ms) == ((), 500), "up in between"


def test_full_disk_takes_memory_only_from_a_stopping_broker() -> None:
    full = [
        Fault(100, 1, FaultKind.DISK_FULL, "m", Step.FIRED),
        Fault(300, 1, FaultKind.DISK_FULL, "m", Step.HEALED),
    ]
    stopped = Down(200, "m", "g", Ending.STOPPED)
    assert Losses(full, {}, {}).all == []
    (loss,) = Losses(full, {"m": [stopped]}, {}).all
    assert (loss.takes, loss.settled_ms) == (Copy.MEMORY, -inf)
    assert Losses(full, {"m": [stopped._replace(at_ms=400)]}, {}).all == []


def test_start_seen_late_settles_nothing_before_it_was_asked() -> None:
    life: list[Up | Down] = [Down(100, "m", "g", Ending.KILLED), Up(250, "m", "g", 0, 10, 10)]
    power = [Fault(900, 1, FaultKind.POWER, "m", Step.FIRED)]
    for asked_ms, settled_ms in ((250, 250), (240, 100)):
        ends = {"m": [Ends(asked_ms, 250, "m", "g", 0, 10, 10, 10)]}
        assert Losses(power, {"m": life}, ends).all[0].settled_ms == settled_ms
