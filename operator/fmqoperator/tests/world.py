"""A small world for plans: a cluster, ZooKeeper and brokers, in as much detail as a plan sees.

`do` performs an action, `turn` what would then happen by itself: the StatefulSet creates and
deletes pods, pods start, the master opens the group, slaves join, reads move and come back. The
simulator (`fmqsim`) runs real brokers; here it is enough that they look the same.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fmqcore.ids import BrokerId, Epoch, Permission, Position
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState, Mode, begin_again_state
from fmqcore.zk.live_broker import LiveBroker
from fmqoperator.api.base import Json
from fmqoperator.api.group import RESTART, BrokerGroup
from fmqoperator.core.actions import (
    Action,
    ApplyChild,
    BeginAgain,
    ChangeAnnotation,
    DeleteChild,
    EmitEvent,
    GrowClaim,
    KeepVolumes,
    OwnClaim,
    PutGroupConfig,
    RemoveAnnotation,
    Requeue,
    RestartPod,
    SwitchSends,
)
from fmqoperator.core.children import names
from fmqoperator.core.observation import (
    Answer,
    Claim,
    Defaults,
    Failure,
    InZooKeeper,
    Node,
    Observation,
    Periods,
    Pod,
    PodPhase,
    Replica,
)
from fmqoperator.core.ordered_sends import asks
from fmqoperator.core.plan import plan
from fmqoperator.core.status.group import status
from fmqoperator.core.topics.chain_status import ChainSeen
from fmqoperator.tests.chain_samples import switched
from fmqoperator.tests.samples import group


@dataclass
class World:
    """One group, in its cluster."""

    body: Json
    moves: bool = False  # brokers follow a wanted master, and report that they do
    opens: bool = True  # a broker that claimed the mastership opens its term
    now_ms: int = 1_800_000_000_000
    children: dict[tuple[str, str], Json] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    config: Versioned[GroupConfig] | None = None
    state: GroupState = GroupState()
    silent: set[str] = field(default_factory=set)  # brokers that do not answer the operator
    periods: dict[str, Periods] = field(default_factory=dict)  # what brokers report
    broken: set[str] = field(default_factory=set)  # brokers that cannot run
    bad_images: set[str] = field(default_factory=set)
    zookeeper_away: bool = False
    pods_unknown: bool = False
    failures: tuple[Failure, ...] = ()
    image: str = "fmq-broker:test"  # the operator's default
    updating: tuple[str, ...] = ()  # other groups that have their turn
    rolling: tuple[str, ...] = ()  # groups of this cluster that have their turn
    chains: tuple[ChainSeen, ...] | None = ()  # ordered topics
    goes_on: bool = True  # another group takes over what is switched off
    events: list[EmitEvent] = field(default_factory=list)
    done: list[Action] = field(default_factory=list)
    made: int = 0
    terms: list[str] = field(default_factory=list)  # the broker that opened each term

    # ---- what is seen
    @property
    def group(self) -> BrokerGroup:
        return BrokerGroup.model_validate(self.body)

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def live(self) -> dict[BrokerId, LiveBroker]:
        return {
            BrokerId(b): LiveBroker(
                BrokerId(b),
                pod.uid,
                "a",
                self.state.epoch,
                Position(1000),
                supports_switchover=self.moves,
            )
            for b, pod in sorted(self.pods.items())
            if pod.phase is PodPhase.RUNNING and not pod.deleting and not pod.waiting
        }

    def serves(self, broker: str) -> Permission:
        state = self.state
        member = None if self.config is None else self.config.value.member(BrokerId(broker))
        if member is None:
            return Permission.NONE
        if state.mode is Mode.MASTER and broker == state.master and not state.required_epoch:
            return member.permission
        if (
            state.mode is Mode.SLAVE_CONSUME
            and broker == state.reader
            and not state.successor_incarnation
        ):
            return Permission.READ & member.permission
        return Permission.NONE

    def answers(self) -> dict[BrokerId, Answer]:
        links = tuple(
            Replica(b, connected=True, in_sync=b in self.state.isr)
            for b in self.live
            if b != self.state.master
        )
        return {
            b: Answer(
                b,
                self.serves(b),
                self.state.epoch,
                Position(1000),
                replicas=links if b == self.state.master else (),
                zookeeper_connected=not self.zookeeper_away,
                periods=self.periods.get(b),
            )
            for b in self.live
            if b not in self.silent
        }

    def seen(self) -> Observation:
        here = None
        if not self.zookeeper_away:
            here = InZooKeeper(self.config, self.state, self.live, self.chains != ())
        looked = Observation(
            group=self.group,
            now_ms=self.now_ms,
            defaults=Defaults(self.image),
            children=self.children,
            pods=None if self.pods_unknown else dict(self.pods),
            claims=self.claims,
            nodes=self.nodes,
            zookeeper=here,
            zookeeper_why="zk:2181 does not answer" if self.zookeeper_away else "",
            answers=self.answers(),
            failures=self.failures,
            updating=self.updating,
            rolling=self.rolling,
        )
        return replace(looked, chains=self.chains) if asks(looked) else looked

    # ---- what the operator does
    def round(self, killed_after: int | None = None) -> list[Action]:
        """Observe, plan, act, write the status; with `killed_after` only that many actions."""
        seen = self.seen()
        actions = plan(seen)
        for action in actions[:killed_after]:
            self.do(action)
        if killed_after is not None:
            return actions
        self.body["status"] = json.loads(json.dumps(status(seen)))
        return actions

    def do(self, action: Action) -> None:
        match action:
            case ApplyChild(manifest=manifest):
                self._apply(json.loads(json.dumps(manifest)))
            case DeleteChild(kind=kind, name=name):
                self.children.pop((kind, name), None)
            case GrowClaim(claim=claim, size=size):
                self.claims[claim] = replace(self.claims[claim], requested=size, capacity=size)
            case OwnClaim(claim=claim, uid=uid, goes=goes, drops=drops):
                assert self.claims[claim].uid == uid
                owners = {o for o in self.claims[claim].owners if o[1] not in drops}
                owners |= {("BrokerGroup", self.group.metadata.uid)} if goes else set()
                self.claims[claim] = replace(self.claims[claim], owners=frozenset(owners))
            case KeepVolumes(name=name):
                sts = json.loads(json.dumps(self.children["StatefulSet", name]))
                sts["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"] = "Retain"
                self._apply(sts)
            case PutGroupConfig(config=config, version=version):
                assert version == (-1 if self.config is None else self.config.version)
                self.config = Versioned(config, version + 1)
            case BeginAgain(epoch=epoch):
                assert self.state.epoch == epoch
                self.state = begin_again_state(self.state)
            case RestartPod(pod=pod, uid=uid):
                assert self.pods[pod].uid == uid
                self.pods[pod] = replace(self.pods[pod], deleting=True, ready=False)
            case RemoveAnnotation(name=name, value=value):
                if self.body["metadata"]["annotations"].get(name) == value:
                    del self.body["metadata"]["annotations"][name]
            case ChangeAnnotation(name=name, value=value, to=to):
                if self.body["metadata"]["annotations"].get(name) == value:
                    self.body["metadata"]["annotations"][name] = to
            case SwitchSends(topic=topic, segment=segment, cause=cause):
                self.switch(topic, segment, cause)
            case EmitEvent():
                self.events.append(action)
            case Requeue():
                pass
        if not isinstance(action, EmitEvent | Requeue):
            self.done.append(action)

    def _apply(self, child: Json) -> None:
        key = (child["kind"], child["metadata"]["name"])
        there = self.children.get(key)
        generation = 1 if there is None else there["metadata"]["generation"] + 1
        child["metadata"] |= {"generation": generation, "uid": f"uid-{key[0]}"}
        if child["kind"] == "StatefulSet":
            child["status"] = {
                "observedGeneration": generation,
                "updateRevision": names.digest(child["spec"]["template"]),
            }
        self.children[key] = child

    def switch(self, topic: str, segment: int, cause: str) -> None:
        """As a broker: close the segment; the topic then goes on in the other group."""
        assert self.chains is not None
        self.chains = tuple(
            replace(each, chain=switched(each.chain, segment, cause, goes_on=self.goes_on))
            if each.chain is not None and each.chain.topic == topic
            else each
            for each in self.chains
        )

    # ---- what happens by itself
    def turn(self) -> None:
        self.now_ms += 1000
        self._stateful_set()
        self._start()
        self._brokers()

    def _stateful_set(self) -> None:
        sts = self.children.get(("StatefulSet", self.name))
        if sts is None:
            return
        for name, pod in list(self.pods.items()):
            if pod.deleting:
                del self.pods[name]
                rule = sts["spec"]["persistentVolumeClaimRetentionPolicy"]["whenScaled"]
                leaves = rule == "Delete" and names.ordinal(name) >= sts["spec"]["replicas"]
                if leaves and not self.claims[f"data-{name}"].owners:  # besides its pod
                    del self.claims[f"data-{name}"]
            elif names.ordinal(name) >= sts["spec"]["replicas"]:
                self.pods[name] = replace(pod, deleting=True, ready=False)
        template = sts["spec"]["template"]
        for at in range(sts["spec"]["replicas"]):
            name = f"{self.name}-{at}"
            size = sts["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]
            self.claims.setdefault(
                f"data-{name}",
                Claim(f"data-{name}", size["storage"], size["storage"], uid=f"claim-{name}"),
            )
            if name not in self.pods:
                self.made += 1
                notes = template["metadata"]["annotations"]
                self.pods[name] = Pod(
                    name,
                    f"uid-{self.made}",
                    PodPhase.PENDING,
                    revision=sts["status"]["updateRevision"],
                    restart=notes.get(RESTART, ""),
                    node=self._node(name),
                    image=template["spec"]["containers"][0]["image"],
                    settings=notes[names.SETTINGS_HASH],
                )

    def _node(self, name: str) -> str:
        able = [n.name for n in self.nodes.values() if not n.drain_reason]
        return able[names.ordinal(name) % len(able)] if able else ""

    def _start(self) -> None:
        for name, pod in self.pods.items():
            if pod.deleting:
                continue
            if pod.image in self.bad_images:
                self.pods[name] = replace(pod, waiting="ImagePullBackOff", ready=False)
            elif name in self.broken or self.config is None:
                since_ms = pod.unready_since_ms or self.now_ms
                pod = replace(pod, phase=PodPhase.RUNNING, waiting="CrashLoopBackOff")
                self.pods[name] = replace(pod, exit_code=78, unready_since_ms=since_ms)
            elif pod.phase is PodPhase.PENDING or pod.waiting:
                self.pods[name] = replace(pod, phase=PodPhase.RUNNING, waiting="", ready=False)
            else:
                self.pods[name] = replace(pod, ready=True, unready_since_ms=None)

    def _brokers(self) -> None:
        """Change the state at most once a turn, as a compare-and-set would."""
        if self.zookeeper_away or self.config is None:
            return
        up = frozenset(self.live)
        if self.state.mode is Mode.NEW:
            if (master := self.config.value.master) in up:
                self._open(master, frozenset(), f"{master} opened the group")
        elif self.state.mode is Mode.MASTER:
            self._with_master(self.config.value, self.state, up)
        else:
            self._with_reader(self.config.value, self.state, up)

    def _with_master(self, config: GroupConfig, state: GroupState, up: frozenset[BrokerId]) -> None:
        master, wanted = state.master, config.master
        in_sync = frozenset(m.id for m in config.members if m.id in up and m.id != master)
        if master not in up:
            able = sorted(b for b in state.isr & up if self._reads(b) and self._reads(master))
            if able:
                self._give(able[0], f"{able[0]} serves reads: {master} is gone")
        elif state.required_epoch:  # it claimed the mastership and opens its term now
            others = {m.id for m in config.members} - {master, state.declared_lost}
            if self.opens and (not state.declared_lost or others <= up):
                self._open(master, in_sync & state.isr, f"{master} is master now")
        elif self.moves and wanted != master and wanted in state.isr & in_sync:
            if self.serves_all(wanted):
                cause = f"master {master} gives way to {wanted}, as the configuration wants"
                self._give(wanted, cause, self._process(wanted))
        elif in_sync != state.isr:
            self.state = replace(state, isr=in_sync)

    def _with_reader(self, config: GroupConfig, state: GroupState, up: frozenset[BrokerId]) -> None:
        master, reader = state.master, state.reader
        others = {m.id for m in config.members} - {master, reader}
        lost = (
            config.declared_lost == master
            and master not in up
            and reader in state.isr
            and others <= up
        )
        inherits = (
            state.successor_incarnation != ""
            and state.successor_incarnation == self._process(reader)
        )
        if self.moves and config.master == reader and reader in up and (inherits or lost):
            self.state = replace(
                state,
                mode=Mode.MASTER,
                epoch=Epoch(state.epoch + 1),
                master=reader,
                isr=state.isr - {reader} | ({master} if inherits else set()),
                successor_incarnation="",
                required_epoch=Epoch(state.epoch if inherits else state.epoch + 1),
                declared_lost=BrokerId("") if inherits else master,
                reason=f"{reader} becomes master",
            )
        elif master in up:
            self._open(master, state.isr & up, f"master {master} is back")
        elif reader not in up and (able := sorted(state.isr & up)):
            self._give(able[0], f"{able[0]} serves reads: {reader} is gone")
        elif reader in up and state.successor_incarnation:
            self.state = replace(state, epoch=Epoch(state.epoch + 1), successor_incarnation="")

    def _give(self, reader: BrokerId, cause: str, successor: str = "") -> None:
        self.state = replace(
            self.state,
            mode=Mode.SLAVE_CONSUME,
            epoch=Epoch(self.state.epoch + 1),
            reader=reader,
            successor_incarnation=successor,
            reason=cause,
        )

    def _process(self, broker: str) -> str:
        """Return the id of the broker's incarnation."""
        return self.pods[broker].uid if broker in self.live else ""

    def _open(self, master: str, isr: Iterable[BrokerId], cause: str) -> None:
        who = BrokerId(master)
        epoch = Epoch(self.state.epoch + 1)
        self.terms.append(who)
        self.state = GroupState(
            Mode.MASTER, epoch, who, who, frozenset(isr), reason=cause, last_opened_epoch=epoch
        )

    def _reads(self, broker: str) -> bool:
        assert self.config is not None
        member = self.config.value.member(BrokerId(broker))
        return member is not None and bool(member.permission & Permission.READ)

    def serves_all(self, broker: str) -> bool:
        assert self.config is not None
        member = self.config.value.member(BrokerId(broker))
        return member is not None and member.permission is Permission.FULL

    # ---- for tests
    def run(self, until: Callable[["World"], bool] | None = None, most: int = 200) -> None:
        """Run rounds and turns until the condition holds (default: all is calm for some turns)."""
        quiet = 0
        for _ in range(most):
            calm = self.round() == [Requeue(30_000)]
            quiet = quiet + 1 if calm else 0
            if until is not None and until(self):
                return
            if until is None and quiet == 6:
                return
            self.turn()
        raise AssertionError(f"never: {self.body['status']['phase']}: {self.sentence()}")

    def sentence(self) -> str:
        text: str = self.body.get("status", {}).get("message", "")
        return text

    def condition(self, kind: str) -> Json:
        found: Json = next(c for c in self.body["status"]["conditions"] if c["type"] == kind)
        return found

    def spec(self, **change: Any) -> None:
        """Edit the resource."""
        self.body["spec"] |= change
        self.body["metadata"]["generation"] += 1

    def annotate(self, name: str, value: str) -> None:
        self.body["metadata"].setdefault("annotations", {})[name] = value


def world(moves: bool = False, **spec: Any) -> World:
    """Return a world of three nodes with nothing applied yet."""
    made = group(**spec).as_json()
    made.pop("status")
    nodes = {f"n{at}": Node(f"n{at}", zone=f"z{at}") for at in range(3)}
    return World(made, moves=moves, nodes=nodes)


def running(moves: bool = False, **spec: Any) -> World:
    """Return a world in which all is as declared."""
    made = world(moves, **spec)
    made.run()
    made.events.clear()
    made.done.clear()
    return made
