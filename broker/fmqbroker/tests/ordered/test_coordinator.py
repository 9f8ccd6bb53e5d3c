"""Coordinators of several brokers on a real ZooKeeper: sends begin, and go on in another group."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from fmqadapters.process.clock import SystemClock
from fmqbroker.cluster.chain_nodes import ChainNodes
from fmqbroker.ordered.sender_standing import SenderStanding
from fmqbroker.tests.consume_harness import until
from fmqbroker.tests.ordered_harness import (
    G1,
    G2,
    C,
    Cast,
    Node,
    acting,
    active,
    chain,
    ids_of,
    report,
    sender,
    topic,
)
from fmqcore.errors import NotFound, StorageFull, Unavailable, UnknownTopic
from fmqcore.ids import TopicId
from fmqcore.ordered.evidence import CloseReason
from fmqcore.ordered.senders import Standing
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, Segment, Sender
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import KeptOut
from fmqcore.zk.group_state import Mode
from fmqproto.v1 import client_pb2

pytestmark = pytest.mark.processes

T = topic()


@asynccontextmanager
async def sending(zookeeper: str) -> AsyncIterator[tuple[Cast, Node, SenderStanding]]:
    """Run a coordinator in each of two groups, and a sender at the first one, in segment 1."""
    async with acting(zookeeper) as cast:
        await cast.create(T)
        home = await cast.start(G1)
        await cast.start(G2)
        async with sender(home, T) as copier:
            await active(copier)
            yield cast, home, copier


async def test_first_sender_gets_segment_1_in_the_preferred_group(zookeeper: str) -> None:
    async with acting(zookeeper) as cast:
        await cast.create(T)
        await cast.start(G1)
        other = await cast.start(G2)
        cast.holdings[G1].ends = (5,)
        async with sender(other, T) as copier:
            await active(copier)
            made = await cast.chain(T)
            (segment,) = made.segments
            assert (segment.group, segment.start, segment.first_sequence) == (G1, (5,), (1,))
            assert made.sender == Sender(copier.id, 1)
            state = copier.state()
            assert (state.active, state.sender_epoch, state.group) == (True, 1, "g1")
            assert dict(state.first_sequence) == {0: 1}


async def test_lost_slave_moves_the_sends_to_the_other_group(zookeeper: str) -> None:
    async with sending(zookeeper) as (cast, home, copier):
        cast.holdings[G1].ends = (3,)
        await cast.change_state(G1, isr=frozenset())
        ended = await cast.until(T, lambda c: c.segments[0].end, "the end is given")
        assert ended.closing == "g1 lacks g1-1"
        assert ended.segments[0].end == (3,)
        assert cast.holdings[G1].seals == {1: {1: (3,)}}
        await until(lambda: "has not reported yet" in copier.state().reason)
        report(home, copier, 1, 3)
        moved = await cast.until(T, lambda c: c.next_number == 3, "segment 2 is open")
        second = moved.segments[1]
        assert (second.group, second.start, second.first_sequence) == (G2, (7,), (3,))
        assert (moved.closing, moved.sender.epoch) == (None, 1)


async def test_full_disk_moves_the_sends_though_no_node_shows_it(zookeeper: str) -> None:
    """The sender's place is in the other group: the full group's own master acts for it."""
    async with acting(zookeeper) as cast:
        await cast.create(T)
        home = await cast.start(G1)
        other = await cast.start(G2)
        async with sender(other, T) as copier:
            await active(copier)
            cast.holdings[G1].full = True
            home.coordinator.wake(T.id)  # as a refused batch does
            ended = await cast.until(T, lambda c: c.segments[0].end, "the end is given")
            assert ended.closing == "g1 has reached its disk limit"
            report(other, copier, 1, 1)
            moved = await cast.until(T, lambda c: c.next_number == 3, "segment 2 is open")
            assert moved.last is not None
            assert moved.last.group == G2


async def test_master_without_room_for_a_seal_still_coordinates(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender's place may be at the very master whose disk is full."""

    async def seal(*_: object) -> None:
        raise StorageFull("no room even for a control batch")

    async with sending(zookeeper) as (cast, _, __):
        monkeypatch.setattr(cast.holdings[G1], "seal", seal)
        await cast.change_state(G1, isr=frozenset())
        unknown = await cast.until(T, lambda c: c.segments[0].end_unknown, "the lease is over")
        assert unknown.segments[0].end is None


async def test_report_is_in_the_line_while_sends_wait_after_it(zookeeper: str) -> None:
    """The other group's broker has no session with the sender, and shows people the same reason."""
    async with sending(zookeeper) as (cast, home, copier):
        cast.holdings[G1].ends = (3,)
        await cast.change_state(G1, isr=frozenset())
        ended = await cast.until(T, lambda c: c.segments[0].end, "the end is given")
        report(home, copier, 1, 9)
        await until(lambda: "has lost acknowledged records" in copier.state().reason)
        nodes = ChainNodes(cast.session, C, SystemClock())
        async with asyncio.timeout(30):
            while (found := await nodes.report(ended, (copier.place,))) is None:
                await asyncio.sleep(0.01)
        assert found == copier.report
        assert await nodes.report(replace(ended, closing=None), (copier.place,)) is None


@asynccontextmanager
async def cut_off(zookeeper: str) -> AsyncIterator[tuple[Cast, Node, Node]]:
    """Run the masters of both groups, and a slave of g2 that does not reach its master."""
    async with acting(zookeeper) as cast:
        home = await cast.start(G1)
        await cast.start(G2)
        cut = await cast.start(G2, slave=True)
        cut.caller.cut = frozenset([G2])
        yield cast, home, cut


async def test_other_broker_opens_if_the_senders_is_cut_off(zookeeper: str) -> None:
    """It reaches the next group, and has the report from the line."""
    async with cut_off(zookeeper) as (cast, home, cut):
        await cast.create(T)
        async with sender(cut, T) as copier:
            await active(copier)
            cast.holdings[G1].ends = (3,)
            await cast.change_state(G1, isr=frozenset())
            await cast.until(T, lambda c: c.segments[0].end, "the end is given")
            looks = home.coordinator.looks
            await until(lambda: home.coordinator.looks > looks + 1, "it has looked in vain")
            report(cut, copier, 1, 3)
            moved = await cast.until(T, lambda c: c.next_number == 3, "segment 2 is open")
            second = moved.segments[1]
            assert (second.group, second.start, second.first_sequence) == (G2, (7,), (3,))
            assert moved.sender == Sender(copier.id, 1)


async def test_new_sender_whose_broker_is_cut_off_gets_a_segment(zookeeper: str) -> None:
    async with cut_off(zookeeper) as (cast, home, cut):
        opened = replace(
            chain(T), segments=(Segment(1, G1, 1, (1,), (0,)),), sender=Sender("gone-0000000000", 1)
        )
        await cast.create(T, opened)
        await cast.change_state(G1, isr=frozenset())
        await cast.until(T, lambda c: c.segments[0].end, "the end is given")
        looks = home.coordinator.looks
        await until(lambda: home.coordinator.looks > looks + 1, "no sender was in line")
        async with sender(cut, T) as copier:
            await active(copier)
            moved = await cast.chain(T)
            assert moved.sender == Sender(copier.id, 2)


async def test_group_that_is_kept_out_takes_sends_if_no_other_can(zookeeper: str) -> None:
    async with sending(zookeeper) as (cast, home, copier):
        await cast.configure(G2, kept_out=KeptOut("g2-1 is restarted", 1))
        await until(lambda: home.view.configs[G2].kept_out)
        await cast.change_state(G1, isr=frozenset())
        await cast.until(T, lambda c: c.segments[0].end, "the end is given")
        report(home, copier, 1, 1)
        moved = await cast.until(T, lambda c: c.next_number == 3, "segment 2 is open")
        assert moved.last is not None  # the first one, which is empty, may be dropped by now
        assert (moved.last.group, moved.last.start) == (G2, (7,))


async def test_group_that_is_kept_out_leaves_its_sends_to_another(zookeeper: str) -> None:
    """Its own master coordinates, and knows its own ends before it has asked for the others'."""
    async with sending(zookeeper) as (cast, home, copier):
        cast.holdings[G1].ends = (3,)
        await cast.configure(G1, kept_out=KeptOut("g1-1 is restarted", 1))
        await cast.until(T, lambda c: c.segments[0].end, "the end is given")
        report(home, copier, 1, 4)
        moved = await cast.until(T, lambda c: c.next_number == 3, "segment 2 is open")
        assert (moved.segments[1].group, moved.segments[1].start) == (G2, (7,))


async def test_sends_leave_a_group_that_their_sender_does_not_reach(zookeeper: str) -> None:
    """No node shows it: only the sender knows, and only of groups in the chain."""
    async with sending(zookeeper) as (cast, home, copier):
        cast.holdings[G1].ends = (3,)
        copier.note_links(client_pb2.SenderLinks(cut_groups=["g1", "g9"]))
        assert copier.cut_groups == {G1}
        home.senders.has_moved(T.id)
        closed = await cast.until(T, lambda c: c.segments[0].end, "the end is given")
        assert closed.closing_class == CloseReason.UNREACHED
        assert closed.closing == f"{copier.id} does not reach g1"
        report(home, copier, 1, 4)
        moved = await cast.until(T, lambda c: c.next_number == 3, "segment 2 is open")
        assert moved.segments[1].group == G2


async def test_takeover_reader_gives_the_end_by_its_own_journal(zookeeper: str) -> None:
    async with acting(zookeeper) as cast:
        await cast.create(T)
        home = await cast.start(G1)
        other = await cast.start(G2)
        reader = await cast.start(G1, slave=True)
        async with sender(other, T) as copier:
            await active(copier)
            home.gate.close("killed")
            cast.holdings[G1].held_known = False
            cast.holdings[G1].ends = (4,)
            reader.read()
            await cast.change_state(G1, mode=Mode.SLAVE_CONSUME, reader=reader.id)
            ended = await cast.until(T, lambda c: c.segments[0].end, "the end is given")
            assert ended.segments[0].end == (4,)
            assert ended.closing == "g1 takes no writes: a slave serves its reads"
            assert cast.holdings[G1].seals == {}


async def test_silent_group_leaves_an_unknown_end_and_gives_it_later(zookeeper: str) -> None:
    async with acting(zookeeper) as cast:
        await cast.create(T)
        home = await cast.start(G1)
        other = await cast.start(G2)
        async with sender(other, T) as copier:
            await active(copier)
            home.gate.close("cut off")
            for id in ids_of(G1):
                await cast.session.delete(f"/fmq/c/groups/g1/live/{id}")
            unknown = await cast.until(T, lambda c: c.segments[0].end_unknown, "the end is unknown")
            assert unknown.closing == "g1 does not answer"
            report(other, copier, 1, 2)
            await cast.until(T, lambda c: c.next_number == 3, "segment 2 is open")
            cast.holdings[G1].ends = (2,)
            home.lead()  # it is back, and has heard its slave
            home.gate.changed.notify()
            known = await cast.until(T, lambda c: c.segments[0].end, "the end is given")
            assert (known.segments[0].end, known.segments[0].end_unknown) == ((2,), False)


async def test_master_gives_no_end_before_it_knows_its_members(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fmqbroker.ordered.coordinator._POLLS_MS", (3_600_000,))
    async with sending(zookeeper) as (cast, _, _):
        cast.holdings[G1].held_known = False
        await cast.change_state(G1, isr=frozenset())
        unknown = await cast.until(T, lambda c: c.segments[0].end_unknown, "the end is unknown")
        assert unknown.segments[0].end is None
        cast.holdings[G1].held_known = True
        cast.holdings[G1].known.notify()
        await cast.until(T, lambda c: c.segments[0].end, "the end is given")


async def test_whole_group_lowers_an_end_that_no_member_reaches(zookeeper: str) -> None:
    """A takeover reader gave it, and has lost its disk since."""
    async with acting(zookeeper) as cast:
        segments = (
            Segment(1, G1, 1, (1,), (0,), end=(4,)),
            Segment(2, G2, 1, (2,), (7,), end=(10,)),
            Segment(3, G1, 1, (5,), (4,), end=(4,)),
            Segment(4, G2, 1, (5,), (10,)),
        )
        heads = (("app", (1,)), ("late", (1,)))
        await cast.create(
            T, replace(chain(T), segments=segments, sender=Sender("s", 1), heads=heads)
        )
        cast.holdings[G1].ends = (2,)
        cast.holdings[G1].view = replace(cast.holdings[G1].view, missing=(ids_of(G1)[1],))
        cast.holdings[G1].progress_of = {"app": (3,)}
        home = await cast.start(G1)
        await until(lambda: home.coordinator.looks > 3)
        assert (await cast.chain(T)).segments[0].end == (4,)  # the other member may hold it
        assert home.own.short_segment(await cast.chain(T)) == 1
        cast.holdings[G1].view = replace(cast.holdings[G1].view, missing=())
        lowered = await cast.until(T, lambda c: c.segments[0].end != (4,), "the end is lower")
        (first, *_) = lowered.segments
        assert (first.end, first.passed, first.loss) == ((2,), (("app", (3,)),), False)
        assert lowered.segments[1:] == segments[1:]
        assert home.own.short_segment(lowered) == 0


async def test_topic_created_again_lets_go_of_the_old_line(zookeeper: str) -> None:
    again = replace(T, id=TopicId(2))
    async with acting(zookeeper) as cast:
        await cast.create(T)
        home = await cast.start(G1)
        other = await cast.start(G2)
        async with sender(home, T, "first") as copier:
            await active(copier)
        opening = client_pb2.SenderOpen(topic=T.name, name="old")
        async with home.senders.standing(T, opening) as old:
            await cast.session.delete(layout.topic_node(C, T.name))  # the deletion stops here
            await cast.create(again)
            with pytest.raises(UnknownTopic, match="created again"):
                async with asyncio.timeout(30):
                    await home.senders.follow(old)
        with pytest.raises(UnknownTopic, match="created again"):
            async with home.senders.standing(T, opening):
                pass
        async with sender(other, again, "new") as new:
            await active(new)


async def test_topic_deleted_while_a_sender_opens_is_not_found(
    zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with acting(zookeeper) as cast:
        await cast.create(T)
        home = await cast.start(G1)
        await until(lambda: home.chains.of(T.id), "the chain is cached")
        stored = await home.chains.read(T.name)

        async def read(_: str) -> Versioned[Chain]:
            await ChainNodes(cast.session, C, SystemClock()).delete(T.name, T.id)
            return stored

        monkeypatch.setattr(home.chains, "read", read)
        with pytest.raises(NotFound, match="the topic was deleted"):
            async with home.senders.standing(T, client_pb2.SenderOpen(topic=T.name, name="late")):
                pass


async def test_next_sender_in_line_takes_over_from_one_that_goes(zookeeper: str) -> None:
    async with acting(zookeeper) as cast, AsyncExitStack() as rest:
        await cast.create(T)
        home = await cast.start(G1)
        other = await cast.start(G2)
        async with sender(home, T, "first") as first:
            await active(first)
            gone = await rest.enter_async_context(sender(other, T, "second"))
            third = await rest.enter_async_context(sender(home, T, "third"))
            await until(lambda: third.standing is Standing.WAITING)
            assert third.state().reason == f"sender {first.id} is first in line, 2 before this one"
            cast.holdings[G1].ends = (9,)
            await cast.session.delete(f"/fmq/c/ordered/{T.name}/senders/{gone.place}")
        await active(third)
        await until(lambda: gone.standing is Standing.LOST)
        moved = await cast.chain(T)
        assert moved.sender == Sender(third.id, 2)
        assert moved.closing is None
        assert moved.segments[0].end == (9,)
        assert moved.segments[1].first_sequence == (10,)
        with pytest.raises(Unavailable, match=r"its place in the line.*asks for another by itself"):
            gone.require_place()


async def test_open_groups_broker_acts_if_the_senders_broker_does_not(
    zookeeper: str,
) -> None:
    async with acting(zookeeper) as cast:
        opened = replace(
            chain(T), segments=(Segment(1, G1, 1, (1,), (0,)),), sender=Sender("gone-0000000000", 1)
        )
        await cast.create(T, opened)
        await cast.start(G1)
        await cast.start(G2)
        await cast.change_state(G1, isr=frozenset())
        ended = await cast.until(T, lambda c: c.segments[0].end, "the end is given")
        assert ended.closing == "g1 lacks g1-1"


async def test_journal_below_the_start_closes_the_segment(zookeeper: str) -> None:
    async with acting(zookeeper) as cast:
        await cast.create(T)
        cast.holdings[G1].ends = (5,)
        home = await cast.start(G1)
        await cast.start(G2)
        async with sender(home, T) as copier:
            await active(copier)
            cast.holdings[G1].ends = (4,)
            home.coordinator.wake(T.id)  # as the append does that found it
            lost = await cast.until(T, lambda c: c.closing, "it is closed")
            assert lost.closing == "g1 has lost records from its journal"


async def test_heads_move_and_drained_segments_go(zookeeper: str) -> None:
    async with acting(zookeeper) as cast:
        drained = replace(
            chain(T),
            segments=(Segment(1, G1, 1, (1,), (0,), end=(3,)), Segment(2, G2, 1, (4,), (7,))),
            sender=Sender("gone-0000000000", 1),
            heads=(("billing", (1,)),),
        )
        await cast.create(T, drained)
        home = await cast.start(G1)
        cast.holdings[G1].progress_of = {"billing": (2,)}
        await until(lambda: home.chains.of(T.id))
        home.coordinator.wake(T.id)
        await until(lambda: not home.coordinator.busy)
        assert (await cast.chain(T)).heads == (("billing", (1,)),)
        cast.holdings[G1].progress_of = {"billing": (3,)}
        for due in cast.holdings[G1].due:
            due(T.id)
        moved = await cast.until(T, lambda c: len(c.segments) == 1, "segment 1 is dropped")
        assert moved.heads == (("billing", (2,)),)
        assert moved.floor.number == 1


async def test_idle_topics_have_no_timer_and_are_not_looked_at(zookeeper: str) -> None:
    async with acting(zookeeper) as cast:
        topics = [topic(n) for n in range(1, 6)]
        for each in topics:
            await cast.create(each)
        home = await cast.start(G1)
        await cast.start(G2)
        async with AsyncExitStack() as stack, sender(home, topics[0]) as copier:
            await active(copier)
            await until(lambda: not home.coordinator.busy)
            other = await stack.enter_async_context(sender(home, topics[1], "other"))
            await active(other)
            await until(lambda: not home.coordinator.busy)
            before = home.coordinator.looks
            await cast.change_state(G1, write_token="another")
            async with sender(home, topics[1], "third") as third:
                await until(lambda: third.standing is Standing.WAITING)
            await until(lambda: not home.coordinator.busy)
            assert home.coordinator.looks - before <= 6, "of the one topic whose line has changed"
            assert home.coordinator.alarms == 0
