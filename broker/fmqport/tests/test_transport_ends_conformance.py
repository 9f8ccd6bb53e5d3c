"""Ends of streams with every transport adapter: orderly, cancelled, peer dead or closed."""

import asyncio

import pytest

from fmqport.tests.transport_kit import HOST, SOON, Node, answered, asked, echo, read_for_ever
from fmqport.transport import Stream, TransportError
from fmqwire import methods


async def test_half_close_ends_peers_receive_and_answers_still_come(node: Node) -> None:
    async def answer_at_the_end(stream: Stream) -> None:
        await read_for_ever(stream)
        for number in range(3):
            await stream.send(answered(number))

    stream = await node.open(answer_at_the_end)
    await stream.send(asked(1))
    await stream.done_sending()
    assert [(await stream.receive()).acks[0].correlation for _ in range(3)] == [0, 1, 2]
    assert await stream.receive() is None
    assert await stream.receive() is None, "and again"


async def test_a_cancel_by_the_client_fails_both_ends(node: Node) -> None:
    connection = node.connect(await node.serve(echo))
    for _ in range(20):
        stream = await connection.open(methods.PRODUCE, SOON)
        await stream.send(asked(1))
        await stream.receive()
        stream.cancel()
        stream.cancel()
        with pytest.raises(TransportError):
            await stream.receive()
        with pytest.raises(TransportError):
            await stream.send(asked(2))
        assert isinstance(await node.how_it_ended(), TransportError), "never a half close"


async def test_a_cancel_by_the_server_fails_both_ends(node: Node) -> None:
    async def give_up(stream: Stream) -> None:
        await stream.receive()
        stream.cancel()
        stream.cancel()
        await stream.receive()

    stream = await node.open(give_up)
    await stream.send(asked(1))
    with pytest.raises(TransportError):
        await stream.receive()
    with pytest.raises(TransportError):
        await stream.send(asked(2))
    assert isinstance(await node.how_it_ended(), TransportError)


async def test_cancel_wakes_a_pending_receive_at_either_end(node: Node) -> None:
    async def cancel_beside(stream: Stream) -> None:
        reading = asyncio.create_task(stream.receive())
        await stream.send(answered(1))
        await asyncio.sleep(0.05)
        stream.cancel()
        with pytest.raises(TransportError):
            await reading

    stream = await node.open(cancel_beside)
    assert (await stream.receive()).acks[0].correlation == 1
    with pytest.raises(TransportError):
        await stream.receive()
    assert await node.how_it_ended() is None

    other = await node.connections[0].open(methods.PRODUCE, SOON)
    await other.receive()
    reading = asyncio.create_task(other.receive())
    await asyncio.sleep(0.01)
    other.cancel()
    with pytest.raises(TransportError):
        await reading


async def test_a_cancelled_receive_tears_the_stream_down(node: Node) -> None:
    stream = await node.open(read_for_ever)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await stream.receive()
    assert isinstance(await node.how_it_ended(), TransportError)
    with pytest.raises(TransportError):
        await stream.receive()


async def test_receive_abandoned_by_a_handler_tears_the_stream_down(node: Node) -> None:
    after: list[BaseException] = []

    async def give_up(stream: Stream) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await stream.receive()
        with pytest.raises(TransportError) as refused:
            await stream.send(answered(1))
        after.append(refused.value)

    stream = await node.open(give_up)
    with pytest.raises(TransportError):
        await stream.receive()
    await node.how_it_ended()
    assert after


async def test_a_closed_connection_is_a_dead_peer(node: Node) -> None:
    stream = await node.open(read_for_ever)
    await stream.send(asked(1))
    reading = asyncio.create_task(stream.receive())
    await asyncio.sleep(0)
    await node.connections[0].close()
    assert isinstance(await node.how_it_ended(), TransportError)
    with pytest.raises(TransportError):
        await reading
    with pytest.raises(TransportError):
        await node.connections[0].open(methods.PRODUCE, SOON)
    await node.connections[0].close()


async def test_idle_handler_is_cancelled_when_its_peer_dies(
    node: Node,
) -> None:
    started = asyncio.Event()

    async def wait_for_ever(stream: Stream) -> None:
        started.set()
        await asyncio.Event().wait()

    stream = await node.open(wait_for_ever)
    await stream.send(asked(1))
    await started.wait()
    stream.cancel()
    assert isinstance(await node.how_it_ended(), asyncio.CancelledError)


async def test_a_closed_server_fails_its_streams_and_ends_its_handlers(node: Node) -> None:
    stream = await node.open(echo)
    await stream.send(asked(1))
    await stream.receive()  # the handler runs
    await node.servers[0].close(0)
    with pytest.raises(TransportError):
        await stream.receive()
    assert isinstance(await node.how_it_ended(), TransportError)
    await node.servers[0].close(0)


async def test_closing_server_lets_calls_end_within_its_grace(node: Node) -> None:
    stream = await node.open(echo)
    await stream.send(asked(1))
    await stream.receive()
    closing = asyncio.create_task(node.servers[0].close(SOON))
    await asyncio.sleep(0.05)
    await stream.send(asked(2))
    assert (await stream.receive()).acks[0].correlation == 2
    await stream.done_sending()
    assert await stream.receive() is None
    await closing


async def test_two_hundred_streams_leave_nothing_behind(node: Node) -> None:
    server = await node.serve(echo)
    tasks = len(asyncio.all_tasks())
    for number in range(200):
        connection = node.transport.connect(f"{HOST}:{server.port}")
        stream = await connection.open(methods.PRODUCE, SOON)
        await stream.send(asked(number))
        await stream.receive()
        if number % 2:
            stream.cancel()
        await connection.close()
        assert isinstance(await node.how_it_ended(), TransportError)
    await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) <= tasks + 2
