"""Copy a change log into the ordered topic `changes`, and go on where an earlier run stopped.

    python examples/ordered.py

Two copies may run: one waits until the other is gone. Order is strict, whatever broker is lost.
The topic needs two broker groups; `ALLOW_SINGLE=1` uses groups without slaves, for a try.
"""

import asyncio
import os

import fmqclient

BROKERS = os.environ.get("FMQ_BROKERS", "fmq://127.0.0.1:9876")
ENDED = (fmqclient.SenderFenced, fmqclient.DeliveryUnknown, fmqclient.Unavailable)
CHANGES = [f"change {number}" for number in range(1, 21)]  # your source, in its order


async def copy(producer: fmqclient.OrderedProducer) -> None:
    """Send every change after the last one that the topic holds."""
    last = producer.last.get(0)
    if last is not None and not last.readable:  # its brokers are away, or retention deleted it
        raise SystemExit("the last record cannot be read: `fmq ordered status`, then start again")
    done = 0 if last is None else int(last.headers["position"])
    print(f"active; {done} changes are stored", flush=True)
    # Not one by one: many are under way at a time, and still in one order.
    results = await asyncio.gather(
        *(
            producer.send_nowait(change.encode(), headers={"position": str(position)})
            for position, change in enumerate(CHANGES[done:], done + 1)
        )
    )
    print(f"{len(results)} more are stored", flush=True)


async def main() -> None:
    """Copy until all is stored; whatever ends a producer, `last` shows where to go on."""
    async with fmqclient.connect(BROKERS) as client:
        groups = sorted({status.group for status in await client.admin().status()})
        await client.admin().ordered.create(
            "changes", groups, if_not_exists=True, allow_single="ALLOW_SINGLE" in os.environ
        )
        while True:
            try:
                async with client.ordered_producer("changes", name="copier") as producer:
                    await copy(producer)
                    return
            except ENDED as error:
                print(f"asking for the role again: {error}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
