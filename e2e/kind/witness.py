"""Traffic and a watch from a pod.

Usage: python -m e2e.kind.witness GROUPS NAMESPACE BROKERS ZOOKEEPER SEED [ORDERED]

GROUPS, BROKERS: names, with commas between. ORDERED: an ordered topic that exists.

Runs inside the broker's image, with the modules of `e2e` that it needs. It has the traffic and the
watch of `e2e/chaos`: clients through the group's Services, Admin.Status of each broker, the state
in ZooKeeper. Prints `started MS` when messages flow, and ends its traffic once a file `finish`
exists; then prints `over` and waits until its files are read and the pod is deleted. Leaves in
/tmp: `history.jsonl`, `seen.json`.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.chaos.flow import READERS, Flow, FlowFailed
from e2e.chaos.watch import Watch, now_ms, setup_of
from e2e.history.history import History, to_line
from e2e.traffic.ports import Door
from fmqadapters.grpc import GrpcTransport
from fmqdev.group_nodes import Groups

FOLDER: Final = Path("/tmp")  # of the pod
STARTED: Final = "started"
OVER: Final = "over"
FINISH: Final = "finish"
_WARM_UP_MESSAGES: Final = 100  # in each group, before and after the watched time
_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Seat:
    """A broker, as the watch asks it."""

    id: str
    group: str
    listen: str


class Place:
    """The groups on Kubernetes, as the watch needs them."""

    def __init__(self, names: Sequence[str], groups: Groups, seats: Sequence[Seat]) -> None:
        self.brokers = {seat.id: seat for seat in seats}
        self.group_names = names
        self.groups = groups


async def main(
    names: str, namespace: str, brokers: str, zookeeper: str, seed: str, ordered: str = ""
) -> int:
    """See the module; does not return."""
    groups, group_names = Groups(zookeeper, namespace), names.split(",")
    services = (f"{name}-{role}:9876" for name in group_names for role in ("rw", "ro"))
    url = f"fmq://{','.join(services)}"
    place = Place(group_names, groups, [_seat(broker) for broker in brokers.split(",")])
    with (FOLDER / "history.jsonl").open("w") as file:
        history = History(sink=lambda event: print(to_line(event), file=file))
        history.add(await setup_of(place))
        watch = Watch(place, history, READERS)
        watching = asyncio.create_task(watch.run())
        flow = Flow(
            history, Door(url, GrpcTransport()), f"story-{seed}", int(seed), int(seed) << 32
        )
        try:
            lacks = await _play(flow, group_names, ordered)
        except FlowFailed as error:
            lacks = [str(error)]
        finally:
            await flow.stop()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await groups.close()
    (FOLDER / "seen.json").write_text(
        json.dumps([[*s[:3], s.permission.value] for s in watch.seen])
    )
    print(f"{OVER} {json.dumps(lacks)}", flush=True)
    await asyncio.Event().wait()
    return 0


def _seat(broker: str) -> Seat:
    group = broker.rpartition("-")[0]
    return Seat(broker, group, f"{broker}.{group}-brokers:9876")


async def _play(flow: Flow, groups: list[str], ordered: str) -> list[str]:
    await flow.start(declared=ordered)
    await flow.moved(_WARM_UP_MESSAGES, groups, _TIMEOUT_S)
    print(f"{STARTED} {now_ms():.0f}", flush=True)
    while not (FOLDER / FINISH).exists():
        flow.check()
        await asyncio.sleep(_POLL_S)
    await flow.moved(_WARM_UP_MESSAGES, groups, _TIMEOUT_S)
    return await flow.finish(_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
