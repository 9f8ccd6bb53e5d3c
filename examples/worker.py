"""Work on the messages of `orders`: retry what fails, then set it aside in `orders-failed`.

    python examples/worker.py

Delivery is at least once, so `handle` may see an order twice: make its effect idempotent.
"""

import asyncio
import json
import os
from contextlib import suppress

import fmqclient

BROKERS = os.environ.get("FMQ_BROKERS", "fmq://127.0.0.1:9876")
MAX_ATTEMPTS = 3
FIRST_RETRY_MS = 200


async def handle(value: bytes) -> None:
    """Work on one order; raise an exception if that fails."""
    order = json.loads(value)
    if order["amount"] == 0:
        raise ValueError("an order needs an amount")
    print(f"order {order['id']}: done", flush=True)


async def work_on(message: fmqclient.Message, producer: fmqclient.Producer) -> None:
    """Handle one message, and acknowledge it unless it is to be delivered again."""
    try:
        await handle(message.value)
    except Exception as error:
        print(f"attempt {message.delivery_count} failed: {error}", flush=True)
        if message.delivery_count < MAX_ATTEMPTS:
            await message.nack(delay_ms=FIRST_RETRY_MS * 2 ** (message.delivery_count - 1))
            return
        # First store it elsewhere, then acknowledge it here: a crash in between loses nothing.
        headers = {**message.headers, "error": str(error).encode()}
        await producer.send("orders-failed", message.value, key=message.key, headers=headers)
        print("set aside in orders-failed", flush=True)
    await message.ack()


async def main() -> None:
    """Work on one message after another until Ctrl-C."""
    async with fmqclient.connect(BROKERS) as client:
        for topic in ("orders", "orders-failed"):
            await client.admin().create_topic(topic, queues=4, if_not_exists=True)
        async with (
            client.producer() as producer,
            client.consumer("orders", group="worker") as consumer,
        ):
            async for message in consumer:
                await work_on(message, producer)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
