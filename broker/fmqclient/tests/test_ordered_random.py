"""Ordered producers against the real core, with faults drawn from a seed."""

from collections import Counter

import pytest

from fmqclient.tests.ordered_model import ClusterModel
from fmqcore.errors import SenderFenced

STEPS = 3_000
SETTLE = 30_000


def run(seed: int, *, queues: int, senders: int) -> ClusterModel:
    """Let everything happen, then heal, then wait until each record has an outcome."""
    model = ClusterModel(seed, queues=queues, senders=senders, records=60)
    for _ in range(STEPS):
        model.step()
    model.heal()
    for _ in range(SETTLE):
        model.step()
        if model.idle() and all(s.added == [60] * queues or s.failed for s in model.senders):
            break
    return model


def check(model: ClusterModel) -> None:
    acked = {record for sender in model.senders for record in sender.acked}
    assert len(acked) == sum(len(sender.acked) for sender in model.senders), "acked twice"
    per_queue = [model.consumed(queue) for queue in range(model.queues)]
    for got in per_queue:
        assert max(Counter(got).values(), default=1) == 1, "delivered twice"
        for name in {name for name, _ in got}:
            numbers = [number for program, number in got if program == name]
            assert numbers == list(range(1, len(numbers) + 1)), "a gap, or out of order"
        names = [name for at, (name, _) in enumerate(got) if not at or got[at - 1][0] != name]
        assert len(names) == len(set(names)), "a fenced sender stored more"
    assert acked <= {record for got in per_queue for record in got}, "an acked record is lost"
    for sender in model.senders:
        for _, queue, _, (program, _) in sender.offsets:
            assert program.endswith(f"/{queue}")


@pytest.mark.parametrize("seed", range(25))
def test_one_sender_keeps_order_over_switches(seed: int) -> None:
    model = run(seed, queues=1, senders=1)
    (sender,) = model.senders
    assert sender.failed is None or isinstance(sender.failed, SenderFenced)
    if not model.lost_places:
        assert sender.failed is None
    if sender.failed is None:
        assert len(sender.acked) == 60, sender.state.reason
    check(model)


@pytest.mark.parametrize("seed", range(100, 115))
def test_order_is_kept_per_queue(seed: int) -> None:
    check(run(seed, queues=3, senders=1))


@pytest.mark.parametrize("seed", range(200, 225))
def test_fenced_sender_stores_nothing_more(seed: int) -> None:
    model = run(seed, queues=1, senders=2)
    check(model)
    assert all(s.failed is None or isinstance(s.failed, SenderFenced) for s in model.senders)


def test_random_ways_reach_the_hard_places() -> None:
    """Places lost with records in doubt, roles lost to another sender, and many switches."""
    alone = [run(seed, queues=1, senders=1) for seed in range(300, 330)]
    assert any(model.lost_places for model in alone)
    assert all(model.senders[0].failed is None for model in alone), "it is the same sender again"
    assert max(model.switches for model in alone) > 8
    pairs = [run(seed, queues=1, senders=2) for seed in range(300, 330)]
    assert any(sender.failed is not None for model in pairs for sender in model.senders)
