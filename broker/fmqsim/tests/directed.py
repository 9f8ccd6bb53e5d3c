"""Simulator runs with faults written by hand, step by step, instead of drawn from a seed.

    async def trouble(stage: Stage) -> None:
        stage.kill("g1-1")
        await stage.comes(lambda: not stage.state.isr, "it is out of the in-sync set")
    play(trouble, slaves=1, policy=..., settings={...})

The script starts with a running cluster and traffic. Afterwards everything is healed, becomes
whole, is drained and judged by I1 to I13, as for any seed: a finding fails the test.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar

from e2e.checks.verdict import SIMULATED, Outcome, judge
from e2e.history.client_events import Failed, Place, Sent, Stored, Unsure
from e2e.history.cluster_events import Fault, FaultKind, Step
from e2e.history.events import Event
from e2e.traffic.ports import Door
from e2e.traffic.traffic import Member as Reader
from e2e.traffic.traffic import Plan, Sending
from e2e.traffic.values import value_of
from fmqbroker.journal.journal import Journal
from fmqbroker.replication.commit_frontier import CommitFrontier
from fmqcore.batch.columns import encode
from fmqcore.batch.crc import crc32c
from fmqcore.errors import ErrorCode
from fmqcore.ids import BrokerId, GroupName
from fmqcore.policy import AckPolicy
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState
from fmqproto.v1.client_pb2 import REPLICATED, ProduceBatch, ProduceOpen, ProduceRequest
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.steps import count_steps, read_steps
from fmqsim.report.run import Result, forked
from fmqsim.scenario.hosts import BrokerHost, ClientHost
from fmqsim.scenario.scene import PORT, Scene, Topic, Weather, draw
from fmqsim.scenario.world import World
from fmqwire.methods import PRODUCE

MASTER, SLAVE, THIRD = "g1-0", "g1-1", "g1-2"
_WITHIN_S: Final = 60.0  # of virtual time: later events never come
_SETTINGS: Final = {
    "segment_bytes": 1 << 17,
    "retention_bytes": 0,
    "checkpoint_interval_ms": 400,
    "offsets_interval_ms": 20,
    "takeover_wait_ms": 1500,
}
QUICK = Sending("p", "t", burst=(1, 4), pause_s=(0.02, 0.08), size=(200, 2000))
READER = Reader("m", "t", "billing", nacks=0.0, holds=0.0)

Trouble = Callable[["Stage"], Awaitable[None]]
T = TypeVar("T")


class Stage(World):
    """One group `g1` of a master and slaves, one topic `t` of two queues."""

    def __init__(self, scene: Scene, loop: SimLoop, script: Trouble) -> None:
        super().__init__(scene, loop)
        self._script = script

    async def trouble(self) -> None:
        """Run the test's own faults, then heal everything; see `World`."""
        await self._script(self)
        self.network.heal_all()
        for broker in self.brokers.values():
            broker.node.resume()

    # ---- views
    @property
    def now_state(self) -> GroupState:
        """Return the state in ZooKeeper."""
        return self.state("g1")

    def in_sync(self, broker: str) -> bool:
        """Return whether the state lists the broker as in sync."""
        return BrokerId(broker) in self.now_state.isr

    def journal(self, broker: str) -> Journal:
        """Return the journal of the broker's process, which must run."""
        return _there(self.watcher.of(_there(self.brokers[broker].node.process)).journal)

    def commit(self, broker: str) -> CommitFrontier:
        """Return the commit frontier of the broker's process."""
        return _there(self.watcher.of(_there(self.brokers[broker].node.process)).commit)

    def events(self, *kinds: type[Event], since_ms: float = 0.0) -> list[Any]:
        """Return the recorded events of these kinds."""
        found = self.history.events
        return [e for e in found if isinstance(e, kinds) and e.at_ms >= since_ms]

    def waits_ms(self, since_ms: float, until_ms: float) -> list[float]:
        """Return the sorted waits for an outcome of all messages sent in that period."""
        sent = {e.record: e.at_ms for e in self.events(Sent) if since_ms <= e.at_ms < until_ms}
        ends = self.events(Stored, Failed, Unsure)
        return sorted(e.at_ms - sent[e.record] for e in ends if e.record in sent)

    # ---- actions
    async def comes(self, true: Callable[[], object], what: str) -> None:
        """Wait for a condition."""
        assert await self.until(true, _WITHIN_S), f"in vain: {what}; {self.now_state}"

    async def stored(self, more: int) -> None:
        """Wait until `more` further messages are acknowledged."""
        wanted = len(self.events(Stored)) + more
        await self.comes(lambda: len(self.events(Stored)) >= wanted, f"{more} more are stored")

    def down(self, broker: str) -> BrokerHost:
        """SIGKILL; the broker stays down until `let_go`."""
        host = self.brokers[broker]
        host.hold()
        host.kill()
        return host

    def empty(self, broker: str) -> BrokerHost:
        """Kill the broker and replace its disk by an empty one; it stays down until `let_go`."""
        host = self.down(broker)
        host.storage.files.wipe()
        step = Fault(self.loop.now_ms, 0, FaultKind.DISK_EMPTY, broker, Step.FIRED, "replaced")
        self.history.add(step)
        return host

    def ask_once(self, broker: str) -> ClientHost:
        """Send one message without retries; the task ends with its outcome."""
        return self._client("raw", partial(self._ask_once, broker))

    async def _ask_once(self, broker: str, door: Door) -> None:
        traffic, record = self.traffic, self.traffic.next_record()
        async with door.client("raw") as client:
            topic = await client.admin().topic("t")
        stream = await door.transport.connect(f"{broker}:{PORT}").open(PRODUCE, 10)
        await stream.send(ProduceRequest(open=ProduceOpen(topics=["t"])))
        await stream.receive()
        attrs, payload = encode([value_of(record, 100)])
        batch = ProduceBatch(
            topic_id=topic.id,
            record_count=1,
            attrs=attrs,
            payload_crc=crc32c(payload),
            payload=payload,
            ack=REPLICATED,
        )
        traffic.sent(Sent(self.loop.now_ms, "raw", record, "t", "replicated"))
        await stream.send(ProduceRequest(batches=[batch]))
        (ack,) = (await stream.receive()).acks
        now_ms, reason = self.loop.now_ms, ErrorCode(int(ack.code)).name
        head = (now_ms, "raw", record)
        if ack.code == ErrorCode.OK:
            traffic.settled(Stored(*head, Place("t", "g1", 0), ack.base_offset), "raw", record)
        else:
            traffic.settled(Unsure(*head, reason), "raw", record)

    def cut(self, one: str, other: str) -> None:
        """Cut both directions silently."""
        self.network.cut(one, other)
        self.network.cut(other, one)

    def heal(self, one: str, other: str) -> None:
        """Heal both directions."""
        self.network.heal(one, other)
        self.network.heal(other, one)


def _there(found: T | None) -> T:
    assert found is not None
    return found


def play(
    script: Trouble,
    *,
    slaves: int = 1,
    policy: AckPolicy | None = None,
    settings: dict[str, Any] | None = None,
    sending: tuple[Sending, ...] = (QUICK,),
    members: tuple[Reader, ...] = (READER,),
    after: Callable[[Stage], None] = lambda _: None,
    charged: bool = False,
) -> None:
    """Run `script` and judge the run; then `after` may inspect the stage.

    `charged`: long turns take time and fail the run.

    It has its own process, like every simulation: dead parts are never torn down.
    """
    brokers = [BrokerId(f"g1-{n}") for n in range(slaves + 1)]
    members_of_group = tuple(Member(b, f"{b}:{PORT}") for b in brokers)
    group = GroupConfig(GroupName("g1"), brokers[0], members_of_group, policy or AckPolicy())
    scene = Scene(
        seed=1,
        groups=(group,),
        settings=draw(1).settings | _SETTINGS | (settings or {}),
        topics=(Topic("t", 2),),
        weather=Weather(0.1, 0.1, 0.0, 4 << 20, 0.2, 0.0001),
        plan=Plan(sending, members),
        shuffle=False,
    )

    def run(seed: int) -> Result:
        stage = Stage(scene, SimLoop(seed, shuffle=False), script)
        if charged:
            stage.loop.charge_for(read_steps)
        try:
            stage.loop.run_until_complete(stage.run())
        except AssertionError as error:
            raise AssertionError(f"{error}; {stage.loop.problems}") from error
        bugs = [*stage.loop.problems, *map(repr, stage.traffic.bugs)]
        verdict = judge(stage.history.events, stage.journals(), SIMULATED)
        assert not bugs, bugs
        assert not verdict.findings, str(verdict)
        after(stage)
        return Result(seed, Outcome.OK)

    if charged:
        count_steps()
    (result,) = forked([scene.seed], 1, run)
    assert result.outcome is Outcome.OK, result.story
