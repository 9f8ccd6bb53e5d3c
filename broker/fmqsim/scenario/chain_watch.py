"""Checks each write of a chain in ZooKeeper: K1 to K12 and K18, of any writer."""

from fmqcore.ordered.invariants import broken_invariants, broken_step
from fmqcore.zk import layout
from fmqcore.zk.chain import Chain, chain_from_json
from fmqsim.engine.loop import SimLoop
from fmqsim.scenario.scene import CLUSTER


class ChainWatch:
    """The chains as written so far."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._before: dict[str, Chain] = {}

    @property
    def sending_group(self) -> str:
        """The group of the newest segment; "" without one."""
        newest = [chain.last.group for chain in self._before.values() if chain.last is not None]
        return str(newest[-1]) if newest else ""

    def wrote(self, path: str, data: bytes) -> None:
        """Check a written node, if it is a chain: the line of senders lies below it."""
        if not data or path.rpartition("/")[0] != layout.ordered_node(CLUSTER):
            return
        chain = chain_from_json(data)
        broken = broken_invariants(chain)
        before = self._before.get(path)
        if before is not None and before.topic_id == chain.topic_id:
            broken += broken_step(before, chain)
        self._before[path] = chain
        self._loop.note(f"chain {chain.topic}: {_summary(chain)}")
        self._loop.problems += [f"chain {chain.topic}: {text}" for text in broken]


def _summary(chain: Chain) -> str:
    segments = ", ".join(
        f"{s.number} in {s.group} from {s.start} to "
        f"{'?' if s.end_unknown else s.end if s.end is not None else 'open'}"
        for s in chain.segments[-3:]
    )
    closing = f", closing: {chain.closing}" if chain.closing is not None else ""
    return f"sender {chain.sender.id} epoch {chain.sender.epoch}; {segments}{closing}"
