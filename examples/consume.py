"""Print the messages of the topic `orders` until Ctrl-C.

    python examples/consume.py

Start it twice: the two processes share the queues of the topic.
"""

import asyncio
import json
import os
from contextlib import suppress

import fmqclient

BROKERS = os.environ.get("FMQ_BROKERS", "fmq://127.0.0.1:9876")


async def main() -> None:
    """Read as a member of the consumer group `billing`."""
    async with (
        fmqclient.connect(BROKERS) as client,
        client.consumer("orders", group="billing") as consumer,
    ):
        async for message in consumer:
            order = json.loads(message.value)
            print(f"order {order['id']} of {order['customer']}: {order['amount']}", flush=True)
            # Only now: a message that was not acknowledged is delivered again after a crash.
            await message.ack()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
