"""Faults of the simulated network, and how each end learns of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fmqport.tests.transport_kit import answered, asked, echo
from fmqport.transport import CallContext, Connection, Stream, TransportError
from fmqproto.v1 import client_pb2
from fmqsim.adapters.transport import SimTransport
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.network import Network
from fmqsim.engine.node import Node, Process
from fmqwire import methods

ADDRESS = "server:9000"


class Stage:
    """A server's machine, a client's machine, and a network between them."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.loop = loop
        self.network = Network(loop)
        self.server, self.client = Node(loop, "server"), Node(loop, "client")
        self.calls = 0
        self.ended: list[str] = []

    async def start(self) -> None:
        async def serve(process: Process) -> None:
            await SimTransport(self.network, process).serve(
                ADDRESS, {methods.ROUTES: self.routes, methods.PRODUCE: self.handle}
            )
            await self.loop.create_future()

        self.server.start(serve)
        await asyncio.sleep(0.01)

    async def routes(self, _: CallContext, __: client_pb2.RouteRequest) -> client_pb2.RouteReply:
        self.calls += 1
        return client_pb2.RouteReply(cluster="c")

    async def handle(self, _: CallContext, stream: Stream) -> None:
        try:
            await echo(stream)
        except TransportError as error:
            self.ended.append(str(error))
            raise

    async def as_client(self, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        """Run it on the client's machine; return the result."""
        done = self.loop.create_future()

        async def main(process: Process) -> None:
            try:
                done.set_result(await work(SimTransport(self.network, process).connect(ADDRESS)))
            except TransportError as error:
                done.set_exception(error)
            await self.loop.create_future()

        self.client.crash("another one comes")
        self.client.start(main)
        return await done

    async def stream(self) -> Stream:
        stream: Stream = await self.as_client(lambda c: c.open(methods.PRODUCE, 5))
        await self.spoken(stream, 1)
        return stream

    async def spoken(self, stream: Stream, number: int) -> None:
        await stream.send(asked(number))
        assert await stream.receive() == answered(number, "0")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    await stage.start()
    yield stage
    for node in (stage.server, stage.client):
        node.crash("the test is over")


async def refused(stage: Stage, within_s: float) -> None:
    before = stage.loop.now
    with pytest.raises(TransportError, match=ADDRESS):
        await stage.as_client(lambda c: c.open(methods.PRODUCE, 30))
    assert stage.loop.now - before < within_s


async def test_a_dead_process_refuses_and_a_dark_machine_is_silent(stage: Stage) -> None:
    stage.server.crash("kill -9")
    await refused(stage, 0.1)
    stage.network.dark.add("server")
    before = stage.loop.now
    await refused(stage, 1.1)
    assert stage.loop.now - before > 0.9


async def test_killed_peer_is_noticed_at_once_powerless_peer_later(
    stage: Stage,
) -> None:
    stream = await stage.stream()
    before = stage.loop.now
    stage.server.crash("kill -9")
    with pytest.raises(TransportError):
        await stream.receive()
    assert stage.loop.now - before < 0.1

    await stage.start()
    stream = await stage.stream()
    stage.network.dark.add("server")
    before = stage.loop.now
    stage.server.crash("power")
    with pytest.raises(TransportError, match="keepalive"):
        await stream.receive()
    assert 1.9 < stage.loop.now - before < 4.1


@pytest.mark.parametrize("way", [("client", "server"), ("server", "client")])
async def test_a_cut_in_either_direction_ends_the_stream_at_both_ends(
    stage: Stage, way: tuple[str, str]
) -> None:
    stream = await stage.stream()
    before = stage.loop.now
    stage.network.cut(*way)
    await stream.send(asked(2))
    with pytest.raises(TransportError, match="keepalive"):
        await stream.receive()
    assert 1.9 < stage.loop.now - before < 4.1
    await asyncio.sleep(3)
    assert stage.ended, "the server has noticed, too"
    await refused(stage, 1.1)


async def test_data_held_by_a_short_cut_arrives_in_order(stage: Stage) -> None:
    stream = await stage.stream()
    stage.network.cut("client", "server")
    for number in range(2, 6):
        await stream.send(asked(number))
    await asyncio.sleep(1)
    stage.network.heal("client", "server")
    for number in range(2, 6):
        assert (await stream.receive()).acks[0].correlation == number
    await asyncio.sleep(10)
    await stage.spoken(stream, 6)


async def test_a_stall_holds_data_back_and_ends_nothing(stage: Stage) -> None:
    stream = await stage.stream()
    stage.network.stall("client", "server")
    await stream.send(asked(2))
    await asyncio.sleep(30)
    assert not stage.ended
    stage.network.heal("client", "server")
    assert (await stream.receive()).acks[0].correlation == 2


async def test_a_reset_fails_both_ends_at_once(stage: Stage) -> None:
    stream = await stage.stream()
    assert stage.network.reset("client", "server") == 1
    assert stage.network.resets_known_s > stage.loop.now, "no peer knows yet: no time to be calm"
    with pytest.raises(TransportError, match="reset"):
        await stream.receive()
    await asyncio.sleep(0.1)
    assert stage.ended


async def test_network_is_not_calm_while_an_end_awaits_a_silent_peer(
    stage: Stage,
) -> None:
    stream = await stage.stream()
    assert not stage.network.silent
    stage.network.cut("client", "server")
    assert stage.network.silent
    with pytest.raises(TransportError, match="keepalive"):
        await stream.receive()
    assert stage.network.resets_known_s > stage.loop.now
    await asyncio.sleep(5)
    assert not stage.network.silent, "both have given up"


async def test_a_lost_reply_leaves_its_effect(stage: Stage) -> None:
    stage.network.link("server", "client").lose_next_reply = 1
    with pytest.raises(TransportError):
        await stage.as_client(lambda c: c.call(methods.ROUTES, client_pb2.RouteRequest(), 5))
    assert stage.calls == 1


async def test_a_stopped_peer_is_noticed_a_wedged_one_is_not(stage: Stage) -> None:
    stream = await stage.stream()
    stage.server.wedge()
    await stream.send(asked(2))
    await asyncio.sleep(30)
    stage.server.resume()
    assert (await stream.receive()).acks[0].correlation == 2
    stage.server.pause()
    with pytest.raises(TransportError, match="keepalive"):
        await stream.receive()
    await refused(stage, 1.1)


async def test_lost_packets_cost_time_and_no_message(stage: Stage) -> None:
    for link in (stage.network.link("client", "server"), stage.network.link("server", "client")):
        link.loss = 0.3
    stream = await stage.stream()
    before = stage.loop.now
    for number in range(2, 52):
        await stream.send(asked(number))
    got = [(await stream.receive()).acks[0].correlation for _ in range(50)]
    assert got == list(range(2, 52))
    assert stage.loop.now - before > 0.2


async def test_messages_are_copies(stage: Stage) -> None:
    stream = await stage.stream()
    message = asked(2, 10)
    await stream.send(message)
    message.batches[0].correlation = 99
    assert (await stream.receive()).acks[0].correlation == 2


@pytest.mark.parametrize("seed", range(8))
async def test_no_message_overtakes_data_held_by_a_cut(stage: Stage, seed: int) -> None:
    """Even messages in flight when the link was healed."""
    stage.loop.random.seed(seed)
    stream = await stage.stream()
    for number in range(100):
        if number == 20:
            stage.network.cut("client", "server")
        if number == 60:
            stage.network.heal("client", "server")
        await stream.send(asked(number))
        await asyncio.sleep(0.0001)
    got = [(await stream.receive()).acks[0].correlation for _ in range(100)]
    assert got == list(range(100))


async def test_link_cut_again_releases_nothing(stage: Stage) -> None:
    stream = await stage.stream()
    stage.network.cut("client", "server")
    await stream.send(asked(2))
    await asyncio.sleep(0.01)
    stage.network.heal("client", "server")
    stage.network.cut("client", "server")
    with pytest.raises(TransportError):  # not its answer
        await stream.receive()


async def test_last_messages_of_a_dying_peer_may_be_lost(stage: Stage) -> None:
    heard: set[bool] = set()
    for seed in range(20):
        stage.loop.random.seed(seed)
        stream = await stage.stream()
        await stream.send(asked(2))
        await asyncio.sleep(0.0006)  # it has been read, and answered, most likely
        stage.server.crash("kill -9")
        try:
            heard.add(await stream.receive() is not None)
        except TransportError:
            heard.add(False)
        await stage.start()
    assert heard == {True, False}


async def test_a_reset_does_not_come_through_a_link_that_is_cut(stage: Stage) -> None:
    for seed in range(8):
        stage.loop.random.seed(seed)
        stream = await stage.stream()
        stage.network.cut("server", "client")
        stage.server.crash("kill -9")
        before = stage.loop.now
        with pytest.raises(TransportError, match="keepalive"):
            await stream.receive()
        assert stage.loop.now - before > 1.9
        stage.network.heal("server", "client")
        await stage.start()


async def test_one_reply_is_lost_and_the_next_is_not(stage: Stage) -> None:
    link = stage.network.link("server", "client")
    for healed in (False, True):
        link.lose_next_reply = 1
        if healed:
            stage.network.heal_all()
        else:
            with pytest.raises(TransportError):
                await stage.as_client(
                    lambda c: c.call(methods.ROUTES, client_pb2.RouteRequest(), 5)
                )
        reply = await stage.as_client(
            lambda c: c.call(methods.ROUTES, client_pb2.RouteRequest(), 5)
        )
        assert reply.cluster == "c"


async def test_stream_end_wakes_a_sender_waiting_for_room(stage: Stage) -> None:
    stage.network.window_bytes = 1000
    stream = await stage.stream()
    stage.network.stall("client", "server")
    await stream.send(asked(2, 2000))
    waits = asyncio.ensure_future(stream.send(asked(3)))
    await asyncio.sleep(0.1)
    assert not waits.done()
    stage.network.reset("client", "server")
    with pytest.raises(TransportError, match="reset"):
        async with asyncio.timeout(10):
            await waits


async def test_window_room_is_returned_in_full(stage: Stage) -> None:
    stage.network.window_bytes = 200
    stream = await stage.stream()
    async with asyncio.timeout(60):
        for number in range(2, 202):
            await stage.spoken(stream, number)


async def test_a_client_that_stands_still_is_noticed_too(stage: Stage) -> None:
    await stage.stream()
    stage.client.pause()
    await asyncio.sleep(5)
    assert stage.ended
