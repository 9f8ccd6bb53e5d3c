"""Create the topic `orders` and send ten records to it.

python examples/produce.py
"""

import asyncio
import json
import os

import fmqclient

BROKERS = os.environ.get("FMQ_BROKERS", "fmq://127.0.0.1:9876")


async def main() -> None:
    """Send ten orders of three customers."""
    async with fmqclient.connect(BROKERS) as client:
        await client.admin().create_topic("orders", queues=4, if_not_exists=True)
        async with client.producer() as producer:
            for number in range(10):
                customer = f"customer-{number % 3}"
                order = {"id": number, "customer": customer, "amount": number * 5}
                # Records with the same key go to the same queue, and keep their order there.
                result = await producer.send(
                    "orders", json.dumps(order).encode(), key=customer.encode()
                )
                print(f"order {number}: {result.group}/{result.queue} offset {result.offset}")


if __name__ == "__main__":
    asyncio.run(main())
