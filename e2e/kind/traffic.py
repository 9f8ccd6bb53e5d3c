"""Traffic from a pod: send numbered messages, receive them, print a verdict as one line of JSON.

Runs inside the broker's image, which has `fmqclient`; the pod gets this file as text, so it
imports no other module of FMQ. Usage: python traffic.py BROKERS TOPIC SECONDS EVERY_MS
"""

import asyncio
import json
import sys
import time
from typing import Any

import fmqclient
from fmqclient import FmqError

Figures = dict[str, Any]

TIMEOUT_S = 60.0
BITE = 4  # messages of the backlog at once; the backlog must outlast the traffic
INTERVAL_S = 0.02


class Gap:
    """The longest time between two successes."""

    def __init__(self) -> None:
        self.longest_ms = 0
        self._last = time.monotonic()

    def success(self) -> None:
        now = time.monotonic()
        self.longest_ms = max(self.longest_ms, int((now - self._last) * 1000))
        self._last = now


async def produce(client: fmqclient.Client, topic: str, seconds: float, every_s: float) -> Figures:
    """Send; return acknowledged, unanswered and refused messages."""
    acked, unknown, gap = [], [], Gap()
    end, n = time.monotonic() + seconds, 0
    async with client.producer(delivery_timeout_s=TIMEOUT_S) as producer:
        while time.monotonic() < end:
            try:
                await producer.send(topic, b"%d" % n, key=b"%d" % (n % 7))
                acked.append(n)
                gap.success()
            except FmqError as error:
                unknown.append([n, f"{type(error).__name__}: {error}"])
            n += 1
            await asyncio.sleep(every_s)
    gap.success()
    return {"acked": acked, "unknown": unknown, "gap_ms": gap.longest_ms}


async def consume(client: fmqclient.Client, topic: str, done: asyncio.Event) -> Figures:
    """Receive until nothing more arrives after all was sent."""
    seen: set[int] = set()
    again = 0
    async with client.consumer(topic, group="traffic", start="earliest") as subscription:
        while True:
            batch = await subscription.fetch(500, timeout=3)
            if not batch and done.is_set():
                break
            for message in batch:
                number = int(message.value)
                again += number in seen
                seen.add(number)
                await message.ack()
        await subscription.commit()
    return {"seen": seen, "again": again}


async def read_backlog(client: fmqclient.Client, topic: str, done: asyncio.Event) -> int:
    """Read the backlog slowly; measure the longest time without a message."""
    gap = Gap()
    async with client.consumer(topic, group="slow", start="earliest") as subscription:
        while not done.is_set():
            for message in await subscription.fetch(BITE, timeout=1):
                gap.success()
                await message.ack()
            await asyncio.sleep(INTERVAL_S)
    return gap.longest_ms


async def main(brokers: str, topic: str, seconds: str, every_ms: str) -> int:
    async with fmqclient.connect(brokers) as client:
        await client.admin().create_topic(topic, queues=4, if_not_exists=True)
        backlog = f"{topic}-backlog"
        await client.admin().create_topic(backlog, queues=4, if_not_exists=True)
        async with client.producer(delivery_timeout_s=TIMEOUT_S) as producer:
            enough = int(float(seconds) * 2 / INTERVAL_S * BITE)
            await producer.send_batch(backlog, [b"%d" % n for n in range(enough)])
        done = asyncio.Event()
        consuming = asyncio.create_task(consume(client, topic, done))
        reading = asyncio.create_task(read_backlog(client, backlog, done))
        print("started", flush=True)
        sent = await produce(client, topic, float(seconds), int(every_ms) / 1000)
        done.set()
        got, longest_ms = await consuming, await reading
    lost = sorted(set(sent["acked"]) - got["seen"])
    verdict = {
        "acked": len(sent["acked"]),
        "unknown": sent["unknown"][:5],
        "lost": lost[:20],
        "again": got["again"],
        "longest_without_ack_ms": sent["gap_ms"],
        "longest_without_message_ms": longest_ms,
    }
    print("verdict " + json.dumps(verdict), flush=True)
    return 1 if lost or not sent["acked"] else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
