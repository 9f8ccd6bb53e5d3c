"""Repeats at a master that takes no messages: their outcomes are settled there (P9)."""

from pathlib import Path

import pytest

from fmqbroker.tests import journal_kit
from fmqbroker.tests.produce_harness import FAR, Bench, batch, bench
from fmqcore.errors import ErrorCode, StorageFull
from fmqcore.ids import Epoch, Permission, TopicId
from fmqproto.v1 import client_pb2 as wire

QUEUE = (TopicId(1), 2)


def drain(b: Bench, permission: Permission = Permission.READ) -> None:
    """Take the permission to write away, as a person does: the broker stays master."""
    b.gate.count_grants(lambda: 0)
    b.gate.grant(permission, "drained")


async def test_batch_waits_for_its_policy_after_its_group_is_drained(tmp_path: Path) -> None:
    async with bench(tmp_path) as b, b.session() as s:
        await s.send(batch())
        assert await s.silent()
        drain(b)
        assert await s.silent(), "its outcome is not known yet"
        await s.send(batch(sequence=1))
        b.commit_all()
        first, second = await s.ack(), await s.ack()
        assert (first.code, first.base_offset) == (ErrorCode.OK, 0)
        assert second.code == ErrorCode.NO_PERMISSION


@pytest.mark.parametrize("permission", [Permission.READ, Permission.NONE])
async def test_a_drained_master_answers_repeats_and_appends_nothing(
    tmp_path: Path, permission: Permission
) -> None:
    async with bench(tmp_path) as b:
        async with b.session() as lost:
            await lost.send(batch())
            assert await lost.silent()
        drain(b, permission)
        end = b.journal.end
        async with b.session(settle=True) as s:
            assert (s.opened.HasField("error"), s.opened.settles_only) == (False, True)
            await s.send(batch(), batch(sequence=1))
            assert await s.silent()
            b.commit_all()
            first, second = await s.ack(), await s.ack()
        assert (first.code, first.base_offset) == (ErrorCode.OK, 0)
        assert (second.code, second.never_appended) == (ErrorCode.NO_PERMISSION, True)
        assert b.journal.end == end


async def test_a_repeat_of_an_unknown_level_is_refused(tmp_path: Path) -> None:
    """No end is known for which its ack could wait."""
    async with bench(tmp_path) as b:
        async with b.session() as lost:
            await lost.send(batch())
            assert await lost.silent()
        drain(b)
        async with b.session(settle=True) as s:
            await s.send(batch(ack=9), batch())
            refused = await s.ack()
            assert (refused.code, refused.never_appended) == (ErrorCode.NO_PERMISSION, False)
            b.commit_all()
            assert (await s.ack()).code == ErrorCode.OK


@pytest.mark.parametrize("drained", [True, False])
async def test_a_repeat_is_settled_after_its_topic_left_the_group(
    tmp_path: Path, drained: bool
) -> None:
    """The topic leaves a group that is removed before all producers have their answers."""
    async with bench(tmp_path) as b:
        b.gate.count_grants(lambda: 0)
        async with b.session() as lost:
            await lost.send(batch())
            assert await lost.silent()
        if drained:
            drain(b)
        b.commit_all()
        async with b.session(settle=True) as s:
            b.view.there = ()
            b.view.set()
            await s.send(batch(), batch(sequence=1))
            first, second = await s.ack(), await s.ack()
        assert (first.code, first.base_offset) == (ErrorCode.OK, 0)
        assert second.never_appended


async def test_a_settling_session_refuses_an_epoch_over_the_limit(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        drain(b)
        async with b.session(5, 1 << 16, settle=True) as s:
            assert ErrorCode(int(s.opened.error.code)) == ErrorCode.INVALID_ARGUMENT


async def test_a_broker_that_is_not_master_settles_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        async with b.session(settle=True) as s:
            await s.send(batch())
            assert await s.silent()
            b.gate.close("deposed")
            await s.send(batch(sequence=1))
            acks = [await s.ack(), await s.ack()]
        assert [a.code for a in acks] == [ErrorCode.DELIVERY_UNKNOWN, ErrorCode.NO_PERMISSION]
        assert not any(a.never_appended for a in acks)
        async with b.session(settle=True) as s:
            assert ErrorCode(int(s.opened.error.code)) == ErrorCode.NO_PERMISSION


@pytest.mark.parametrize("how", ["lease", "term", "stopping"])
async def test_a_master_that_may_be_deposed_settles_nothing(tmp_path: Path, how: str) -> None:
    async with bench(tmp_path) as b:
        drain(b)
        async with b.session(settle=True) as s:
            if how == "lease":
                b.gate.end_lease()
            elif how == "term":
                b.gate.epoch = Epoch(3)
            else:
                b.service.intake.stopping = True
            await s.send(batch())
            ack = await s.ack()
        assert (ack.code, ack.never_appended) == (ErrorCode.NO_PERMISSION, False)


async def test_earlier_sessions_of_a_settling_producer_are_over(tmp_path: Path) -> None:
    """Else a late copy of a batch that was "never appended" could still be appended."""
    async with bench(tmp_path) as b, b.session(5, 1) as stalled, b.session(6, 1) as other:
        drain(b)
        async with b.session(5, 1, settle=True) as s:
            await s.send(batch())
            assert (await s.ack()).never_appended
        b.gate.grant(Permission.FULL, "again")
        await stalled.send(batch(ack=wire.RECEIVED))
        assert (await stalled.ack()).code == ErrorCode.PRODUCER_FENCED
        await other.send(batch(queue_id=1, ack=wire.RECEIVED))
        assert (await other.ack()).code == ErrorCode.OK
        assert b.journal.next_offset(*QUEUE) == 0


async def test_a_session_that_settled_takes_messages_once_it_may(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        drain(b)
        async with b.session(settle=True) as s:
            b.gate.grant(Permission.FULL, "again")
            await s.send(batch(ack=wire.RECEIVED))
            assert (await s.ack()).code == ErrorCode.OK


@pytest.mark.parametrize("reason", ["full disk", "too few replicas"])
async def test_a_refused_repeat_that_was_never_appended_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """The group is the only one that can settle it, and may refuse it for hours."""

    def full(*_: object) -> None:
        raise StorageFull("no room")

    async with bench(tmp_path) as b:
        b.gate.count_grants(lambda: 0)
        async with b.session(settle=True) as s, b.session(6) as plain:
            await s.send(batch(ack=wire.RECEIVED))
            assert (await s.ack()).code == ErrorCode.OK
            if reason == "full disk":
                monkeypatch.setattr(b.journal, "append", full)
            else:
                b.commit.refuse("too few", FAR)
            await s.send(batch(sequence=1), batch(ack=wire.RECEIVED), batch(sequence=7))
            await plain.send(batch(sequence=9))
            new, known, gap = await s.ack(), await s.ack(), await s.ack()
            refused = await plain.ack()
        code = ErrorCode.STORAGE_FULL if reason == "full disk" else ErrorCode.NOT_ENOUGH_REPLICAS
        assert (new.code, new.never_appended) == (code, True)
        assert (known.code, known.never_appended) == (ErrorCode.OK, False)
        assert (gap.code, gap.never_appended) == (ErrorCode.OUT_OF_SEQUENCE, False)
        assert (refused.code, refused.never_appended) == (code, False), "it did not ask"


@pytest.mark.parametrize(("more", "forgotten"), [(0, 0), (1, 0), (0, 1)])
async def test_a_producer_that_may_be_forgotten_is_not_called_new(
    tmp_path: Path, more: int, forgotten: int
) -> None:
    """64 KiB segments: a quarter of one holds 91 producers. Its first batch may be stored."""
    async with bench(tmp_path, segment_bytes=64 * 1024) as b:
        b.clock.wall_ms = journal_kit.Clock().wall_ms  # type: ignore[method-assign]
        for producer in range(100, 190 + more):
            first = {"producer_id": producer, "base_sequence": 0}
            draft = journal_kit.data(b"v", queue=2, **first)
            b.journal.append(draft._replace(topic_id=QUEUE[0]))
        b.journal.state.producers.forgotten = forgotten
        drain(b)
        async with b.session(settle=True) as s, b.session(producer, settle=True) as known:
            await s.send(batch())
            assert (await s.ack()).never_appended is (more == forgotten == 0)
            await known.send(batch(sequence=1))
            assert (await known.ack()).never_appended, "the table shows that it is not there"
