"""A producer of the traffic: bursts of records, by key or pinned, until it is stopped."""

import asyncio
import random
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from e2e.history.client_events import Failed, Place, Sent, Stored, Unsure
from e2e.traffic.ports import Door
from e2e.traffic.state import TrafficState
from e2e.traffic.values import value_of
from fmqclient.producer.batches import SendResult
from fmqclient.producer.producer import Producer
from fmqcore.errors import DeliveryUnknown, FmqError

_AGAIN_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Sending:
    """One producer. `pins`: (group, queue) to which some bursts go."""

    name: str
    topic: str
    level: str = "replicated"
    keys: int = 4  # number of keys; 0 = none
    burst: tuple[int, int] = (1, 6)  # records at a time
    pause_s: tuple[float, float] = (0.02, 0.12)  # between bursts
    size: tuple[int, int] = (24, 200)  # bytes of a value
    window: int = 200  # records without an outcome at most
    pins: tuple[tuple[str, int], ...] = ()
    linger_ms: float = 0.0
    delivery_timeout_s: float = 60.0


async def produce(traffic: TrafficState, sending: Sending, door: Door) -> None:
    """Run until the traffic is stopped and every send has an outcome."""
    sending = replace(sending, name=traffic.born(sending.name))  # it may have been killed before
    dice = traffic.dice(sending.name)
    while traffic.sending:
        try:
            async with (
                door.client(sending.name) as client,
                client.producer(
                    acks=sending.level,
                    linger_ms=sending.linger_ms,
                    delivery_timeout_s=sending.delivery_timeout_s,
                    close_timeout_s=sending.delivery_timeout_s + 5,
                ) as producer,
            ):
                while traffic.sending:
                    await _burst(traffic, sending, producer, dice)
                await producer.flush()
        except FmqError:  # no broker answers: later
            await asyncio.sleep(_AGAIN_S)


async def _burst(
    traffic: TrafficState, sending: Sending, producer: Producer, dice: random.Random
) -> None:
    pin = dice.choice(sending.pins) if sending.pins and dice.random() < 0.3 else None
    for _ in range(dice.randint(*sending.burst)):
        if producer.outstanding < sending.window:
            _send(traffic, sending, producer, dice, pin)
    await asyncio.sleep(dice.uniform(*sending.pause_s) * traffic.slowness)


def _send(
    traffic: TrafficState,
    sending: Sending,
    producer: Producer,
    dice: random.Random,
    pin: tuple[str, int] | None,
) -> None:
    record = traffic.next_record()
    value = value_of(record, dice.randint(*sending.size))
    where: dict[str, Any] = {}
    key = order = ""
    if pin is not None:
        where = {"group": pin[0], "queue": pin[1]}
        order = f"{pin[0]}/{pin[1]}"
    elif sending.keys:
        key = order = f"{sending.name}-{dice.randrange(sending.keys)}"
    traffic.sent(
        Sent(traffic.now_ms(), sending.name, record, sending.topic, sending.level, key, order)
    )
    try:
        future = producer.send_nowait(sending.topic, value, key=key.encode() or None, **where)
    except FmqError as error:
        _settle(traffic, sending, record, error)
    else:
        future.add_done_callback(partial(_answered, traffic, sending, record))


def _answered(
    traffic: TrafficState, sending: Sending, record: int, future: "asyncio.Future[SendResult]"
) -> None:
    error = asyncio.CancelledError() if future.cancelled() else future.exception()
    if error is not None:
        _settle(traffic, sending, record, error)
        return
    result = future.result()
    place = Place(sending.topic, str(result.group), result.queue)
    event = Stored(traffic.now_ms(), sending.name, record, place, int(result.offset))
    traffic.settled(event, sending.name, record)


def _settle(traffic: TrafficState, sending: Sending, record: int, error: BaseException) -> None:
    """Record a failed send: every error but two means that the record was not stored."""
    text = f"{type(error).__name__}: {error}"
    unsure = isinstance(error, DeliveryUnknown | asyncio.CancelledError)
    if not unsure and not isinstance(error, FmqError):
        traffic.bugs.append(error)
        unsure = True
    kind = Unsure if unsure else Failed
    traffic.settled(kind(traffic.now_ms(), sending.name, record, text), sending.name, record)
