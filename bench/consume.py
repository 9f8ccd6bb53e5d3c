"""`python -m bench.consume URL TOPIC...`: the benchmark's consumer process.

Prints `ready` when it consumes; reads a number from standard input, and prints `done` when it has
consumed that number of messages.
"""

import asyncio
import sys

import fmqclient


class _Count:
    def __init__(self) -> None:
        self.consumed = 0
        self.wanted: int | None = None
        self.reached = asyncio.Event()

    def check(self) -> None:
        if self.wanted is not None and self.consumed >= self.wanted:
            self.reached.set()


async def main(url: str, topics: list[str]) -> None:
    """Consume all topics until as many records arrived as standard input asks for."""
    count = _Count()
    loop = asyncio.get_running_loop()
    async with fmqclient.connect(url) as client:
        tasks = [asyncio.create_task(_consume(client, topic, count)) for topic in topics]
        print("ready", flush=True)
        count.wanted = int(await loop.run_in_executor(None, sys.stdin.readline))
        count.check()
        await count.reached.wait()
        print("done", flush=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _consume(client: fmqclient.Client, topic: str, count: _Count) -> None:
    async with client.consumer(topic, group="bench", start="earliest", ack="auto") as subscription:
        async for _ in subscription:
            count.consumed += 1
            if count.wanted is not None:
                count.check()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
