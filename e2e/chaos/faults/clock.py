"""Wall clocks that jump, by libfaketime. The monotonic clock goes on, as in a kernel."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from e2e.chaos.fault import Fault, NotFired
from e2e.chaos.ground import faketime_library
from e2e.chaos.stage import Stage
from e2e.history.cluster_events import FaultKind

_BACK, _AHEAD = "-86400", "+3600"
_NOTICE_TIMEOUT_S: Final = 20.0
_EXACT_S: Final = 120.0
_STORED: Final = 50
_POLL_S: Final = 0.1


class ClockJumps(Fault):
    """The wall clock must not matter: no switch, nothing lost, true times."""

    name = "clock-jumps"
    what = "the wall clock of a master jumps a day back, then an hour ahead"
    kind = FaultKind.CLOCK
    needs = ("faketime",)

    def __init__(self) -> None:
        super().__init__()
        self._master = ""

    async def inject(self, stage: Stage) -> str:
        """See `Fault`. The master is restarted in good order with the library before the jumps."""
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
        for offset, text in ((_BACK, "the clock jumped by -"), (_AHEAD, "the clock jumped by 3")):
            _set(clock, offset)
            if not await _is_seen(stage, self._master, text):
                raise NotFired(f"the status of {self._master} does not report {text!r}")
            off_s = await _off_s(stage, group)
            if off_s > _EXACT_S:
                stage.wrong(f"{self._master} stores with a time that is {off_s:.0f} s off")
        if (await cluster.groups.state(group)).epoch != epoch:
            stage.wrong(f"{group} switched because a wall clock jumped")
        return f"the wall clock of {self._master} jumped by {_BACK} s, then by {_AHEAD} s"

    async def heal(self, stage: Stage) -> None:
        """Restore the right time, and remove the library."""
        if self._master:
            stage.cluster.brokers[self._master].environment = {}
            await stage.restart(self._master)


async def _is_seen(stage: Stage, broker: str, text: str) -> bool:
    """Return whether the broker notices that its clock jumped."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_NOTICE_TIMEOUT_S):
            while True:
                status = await stage.cluster.broker_status(broker)
                if status is not None and text in status.reason:
                    return True
                await asyncio.sleep(_POLL_S)
    return False


async def _off_s(stage: Stage, group: str) -> float:
    """Return how many seconds the group's store times are off, at most, for new messages."""
    flow, worst_s, seen = stage.flow, 0.0, 0
    async with (
        asyncio.timeout(_NOTICE_TIMEOUT_S),
        flow.door.client("clock") as client,
        client.consumer(flow.topic, group="clock", start="latest") as consumer,
    ):
        while seen < _STORED:
            for message in await consumer.fetch(100, 0.2):
                if message.group == group:
                    seen += 1
                    worst_s = max(worst_s, abs(message.store_ms / 1000 - time.time()))
                message.ack_now()
    return worst_s


def _set(clock: Path, offset: str) -> None:
    aside = clock.with_suffix(".new")
    aside.write_text(f"{offset}\n")
    aside.replace(clock)
