"""Wall clocks that jump, by libfaketime. The monotonic clock goes on, as it does in a kernel."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.ground import faketime_library
from e2e.chaos.stage import Stage
from e2e.events import FaultKind

_BACK, _AHEAD = "-86400", "+3600"
_SEEN_S: Final = 20.0
_EXACT_S: Final = 120.0
_STORED: Final = 50


class ClockJumps(Fault):
    """Nothing that counts may hang on the wall clock: no switch, nothing lost."""

    name = "clock-jumps"
    what = "the wall clock of a master jumps a day back, then an hour ahead"
    kind = FaultKind.CLOCK
    needs = ("faketime",)

    def __init__(self) -> None:
        super().__init__()
        self._master = ""

    async def inject(self, stage: Stage) -> str:
        """See `Fault`. It is started anew, in good order, with the library before the jumps."""
        cluster = stage.cluster
        group, self._master = await stage.some_master()
        clock = stage.directory / "clock"
        _set(clock, "+0")
        cluster.brokers[self._master].environment = {
            "LD_PRELOAD": faketime_library(),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        await stage.restart(self._master)
        epoch = (await cluster.groups.state(group)).epoch
        _set(clock, _BACK)  # store times never fall, so nothing shows it
        await stage.flow.moved(_STORED, [group], _SEEN_S)
        _set(clock, _AHEAD)
        if not await _stores_with(stage, group, float(_AHEAD)):
            raise NotFired(f"{self._master} stores with the right time still")
        if (await cluster.groups.state(group)).epoch != epoch:
            stage.wrong(f"{group} switched because a wall clock jumped")
        return f"the wall clock of {self._master} jumped by {_BACK} s, then by {_AHEAD} s"

    async def heal(self, stage: Stage) -> None:
        """The right time, and the library is gone."""
        if self._master:
            stage.cluster.brokers[self._master].environment = {}
            await stage.restart(self._master)


async def _stores_with(stage: Stage, group: str, jump_s: float) -> bool:
    """Whether the group's master stores with a clock that is so far off: a consumer is told."""
    flow = stage.flow
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(_SEEN_S),
            flow.door.client("clock") as client,
            client.consumer(flow.topic, group="clock", start="latest") as consumer,
        ):
            while True:
                for message in await consumer.fetch(100, 0.2):
                    off_s = message.store_ms / 1000 - time.time() - jump_s
                    if message.group == group and abs(off_s) < _EXACT_S:
                        return True
                    message.ack_now()
    return False


def _set(clock: Path, offset: str) -> None:
    aside = clock.with_suffix(".new")
    aside.write_text(f"{offset}\n")
    aside.replace(clock)
