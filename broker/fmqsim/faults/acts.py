"""The faults of a simulation, one coroutine each; `table.py` has their weights.

A coroutine does it, reports that it has fired, lets it last, undoes it, and reports that it is
healed.
"""

from collections.abc import Callable, Iterable

from fmqbroker.journal.upkeep import SPACE_RETRY_S
from fmqcore.ids import Permission
from fmqcore.policy import HowMany
from fmqsim.engine.zookeeper_wire import Break
from fmqsim.faults.api import Act
from fmqsim.scenario.hosts import BrokerHost, ClientHost
from fmqsim.scenario.operator_stand_in import NAME as OPERATOR

# ---- processes


async def kill(act: Act) -> None:
    """Kill a broker with SIGKILL; it is down for a while."""
    await kill_host(act, act.target, 0.05, 3.5)


async def kill_host(act: Act, host: BrokerHost | ClientHost, least_s: float, most_s: float) -> None:
    """Kill a process with SIGKILL, and let it start again after a time between the two."""
    host.hold()
    host.kill()
    act.fired(on=host.name)
    await act.last(least_s, most_s)
    host.let_go()
    act.healed()


async def stop(act: Act) -> None:
    """Stop a broker with SIGTERM, as an upgrade does."""
    host = act.target
    host.hold()
    host.stop()
    act.fired()
    await act.world.until(lambda: not host.node.alive, 20)
    await act.last(0.05, 2.0)
    host.let_go()
    act.healed()


async def pause(act: Act) -> None:
    """Stop a broker with SIGSTOP, perhaps past its session, and let it go on."""
    node = act.target.node
    await _halt(act, node.pause, node.resume, 4.0)


async def wedge(act: Act) -> None:
    """Block a broker's event loop; ZooKeeper's client goes on."""
    node = act.target.node
    await _halt(act, node.wedge, node.resume, 3.5)


async def _halt(
    act: Act, halt: Callable[[], None], resume: Callable[[], None], most_s: float
) -> None:
    await _heard(act)
    halt()
    act.fired()
    await act.last(0.1, most_s)
    resume()
    act.healed()


async def _heard(act: Act) -> None:
    """Wait until the target knows of a session that was ended early: see `expire`."""
    route = act.world.ensemble.route(act.on)
    await act.world.until(lambda: route.ended_early in (0, route.heard_of), 3)


async def kill_client(act: Act) -> None:
    """Kill a producer or consumer."""
    clients = [c for c in act.world.clients.values() if c.node.alive and c.name != OPERATOR]
    if not clients:
        return
    await kill_host(act, act.dice.choice(clients), 0.1, 1.5)


async def pause_client(act: Act) -> None:
    """Pause a producer or consumer."""
    clients = [c for c in act.world.clients.values() if c.node.alive and c.name != OPERATOR]
    if not clients:
        return
    host = act.dice.choice(clients)
    host.node.pause()
    act.fired(on=host.name)
    await act.last(0.1, 4.0)
    host.node.resume()
    act.healed()


# ---- ZooKeeper


async def cut_from_zookeeper(act: Act) -> None:
    """Cut a broker off from ZooKeeper: reset, or a black hole in one direction or both."""
    route = act.world.ensemble.route(act.on)
    how = act.dice.choice(("reset", "both", "to", "back"))
    if how == "reset":
        route.cut()
    else:
        route.hold(to=how != "back", back=how != "to")
    act.fired(how)
    await act.last(0.3, 4.0)
    route.heal()
    act.healed()


async def isolate(act: Act) -> None:
    """Cut a broker off from ZooKeeper and its group; clients still reach it."""
    route = act.world.ensemble.route(act.on)
    route.hold()
    links = _between(act, act.peers(), both=True)
    act.fired()
    await act.last(0.5, 4.0)
    route.heal()
    _heal(act, links)
    act.healed()


async def expire(act: Act) -> None:
    """End a broker's session on the server, though the broker lives.

    This is sooner than any server would end it: leases rest on that. So the broker must
    learn about the end, and does, whatever is cut in the next moment.
    """
    ensemble, route = act.world.ensemble, act.world.ensemble.route(act.on)

    def within_reach() -> bool:
        reached = not (route.refused or any(route.held) or act.target.node.frozen)
        return bool(ensemble.session_of(act.on)) and reached

    if not await act.world.until(within_reach, 20):
        return
    number = ensemble.session_of(act.on)
    route.ended_early = number
    ensemble.expire(number)
    act.fired(f"session {number:x}")
    act.healed()


async def lose_answer(act: Act) -> None:
    """Do a broker's next write to ZooKeeper, or not, and lose the answer."""
    route = act.world.ensemble.route(act.on)
    before = route.broken
    route.break_next = act.dice.choice((Break.BEFORE, Break.AFTER, Break.AFTER))
    how = route.break_next.name.lower()
    await act.world.until(lambda: route.broken > before, 3)
    if route.broken == before:  # it wrote nothing: at the least the connection breaks
        route.break_next = None
        route.reset()
        how = "reset"
    act.fired(how)
    act.healed()


async def stop_zookeeper(act: Act) -> None:
    """Stop one ZooKeeper server, or enough to lose the quorum."""
    ensemble, dice = act.world.ensemble, act.dice
    count = dice.choice((1, 1, 2))
    numbers = dice.sample(range(len(ensemble.servers)), count)
    for number in numbers:
        ensemble.stop_server(number)
    act.fired(f"servers {numbers}")
    await act.last(0.3, 3.0)
    for number in numbers:
        ensemble.start_server(number)
    act.healed()


async def late_zookeeper(act: Act) -> None:
    """Let followers lag, and watches come late."""
    ensemble, dice = act.world.ensemble, act.dice
    before = ensemble.late_watch_s
    ensemble.late_watch_s = (0.0, dice.choice((0.1, 1.0)))
    for number in range(len(ensemble.servers)):
        if dice.random() < 0.5:
            ensemble.cut_off(number, dice.uniform(0.1, 1.0))
    act.fired()
    await act.last(0.5, 3.0)
    ensemble.late_watch_s = before
    act.healed()


# ---- the network


def _between(act: Act, others: Iterable[str], *, both: bool) -> list[tuple[str, str]]:
    """Cut the links between the target and others; return the cut links as (from, to)."""
    way = "both" if both else act.dice.choice(("both", "to", "from"))
    links = []
    for other in others:
        if way != "from":
            links.append((act.on, other))
        if way != "to":
            links.append((other, act.on))
    for link in links:
        act.world.network.cut(*link)
    return links


def _heal(act: Act, links: Iterable[tuple[str, str]]) -> None:
    for link in links:
        act.world.network.heal(*link)


async def cut_from_group(act: Act) -> None:
    """Cut a broker off from members of the group, in both directions or one."""
    peers = act.peers()
    if not peers:
        return
    chosen = act.dice.sample(peers, act.dice.randint(1, len(peers)))
    links = _between(act, chosen, both=False)
    act.fired(" ".join(f"{a}->{b}" for a, b in links))
    await act.last(0.3, 5.0)
    _heal(act, links)
    act.healed()


async def cut_from_clients(act: Act) -> None:
    """Cut a broker off from some clients, in both directions or one."""
    clients = list(act.world.clients)
    chosen = act.dice.sample(clients, act.dice.randint(1, len(clients)))
    links = _between(act, chosen, both=False)
    act.fired(f"{len(links)} links")
    await act.last(0.3, 4.0)
    _heal(act, links)
    act.healed()


async def reset(act: Act) -> None:
    """Reset a broker's connections, all or some."""
    world = act.world
    others = [*act.peers(), *world.clients]
    chosen = act.dice.sample(others, act.dice.randint(1, len(others)))
    count = sum(world.network.reset(act.on, other) for other in chosen)
    act.fired(f"{count} connections")
    act.healed()


async def lose_reply(act: Act) -> None:
    """Lose a broker's next reply with the connection, after the call has had its effect."""
    network = act.world.network
    others = [*act.peers(), *act.world.clients]
    chosen = act.dice.sample(others, act.dice.randint(1, min(4, len(others))))
    links = [network.link(act.on, other) for other in chosen]
    for link in links:
        link.lose_next_reply = 1

    def lost() -> int:
        return sum(not link.lose_next_reply for link in links)

    if not await act.world.until(lost, 3):
        network.reset(act.on, act.dice.choice(others))
    network.broke()
    act.fired(f"{lost()} of {len(links)}")
    for link in links:
        link.lose_next_reply = 0
    act.healed()


async def stall(act: Act) -> None:
    """Stall messages between a broker and others, though the connections live."""
    world = act.world
    others = [*act.peers(), *world.clients]
    chosen = act.dice.sample(others, act.dice.randint(1, min(3, len(others))))
    links = [(act.on, other) if act.dice.random() < 0.5 else (other, act.on) for other in chosen]
    for link in links:
        world.network.stall(*link)
    act.fired(" ".join(f"{a}->{b}" for a, b in links))
    await act.last(0.3, 4.0)
    _heal(act, links)
    act.healed()


async def slow_network(act: Act) -> None:
    """Make a broker's links slow and lossy."""
    network = act.world.network
    others = [*act.peers(), *act.world.clients]
    links = [network.link(*pair) for o in others for pair in ((act.on, o), (o, act.on))]
    delay_s, loss = act.dice.choice((0.0, 0.02, 0.15)), act.dice.choice((0.01, 0.1))
    for link in links:
        link.delay_s, link.jitter_s, link.loss = delay_s, delay_s / 2 + 0.001, loss
    act.fired(f"{delay_s * 1000:.0f} ms, {loss:.0%} lost")
    await act.last(0.5, 4.0)
    for link in links:
        network.calm(link)
    act.healed()


# ---- disks and clocks


async def failing_sync(act: Act) -> None:
    """Fail a broker's next fsync with EIO: the kernel may have dropped the pages."""
    await _fails(act, "failing_syncs")


async def failing_write(act: Act) -> None:
    """Fail a broker's next write with EIO."""
    await _fails(act, "failing_writes")


async def _fails(act: Act, what: str) -> None:
    host = act.target
    files = host.storage.files
    files.on_failure = act.fired  # at that moment: what was in the cache may be gone from then on
    setattr(files, what, 1)
    if not await act.world.until(lambda: not getattr(files, what), 5):
        setattr(files, what, 0)
        host.kill()  # it wrote nothing, perhaps it was down: at the least it is killed
        act.fired("killed instead")
    files.on_failure = _nothing
    act.healed()


def _nothing() -> None:
    return None


async def full_disk(act: Act) -> None:
    """Fill a broker's disk; later there is space again."""
    files = act.target.storage.files
    files.taken = max(0, files.free + files.taken - act.dice.choice((0, 1 << 20, 3 << 19)))
    act.fired(f"{files.free} bytes left")
    await act.last(0.5, 3.0)
    files.taken = 0
    act.target.doubt(SPACE_RETRY_S)
    act.healed()


async def slow_disk(act: Act) -> None:
    """Make a broker's disk slow: each write and fsync takes longer, or none ends for a while."""
    world, speed = act.world, act.target.storage.speed
    if act.dice.random() < 0.5:
        speed.write_ms = act.dice.choice((20.0, 100.0))
        act.fired(f"{speed.write_ms:.0f} ms a write")
    else:
        speed.stalled_until_s = world.loop.now + act.dice.uniform(0.2, 3.0)
        act.fired(f"no write ends until {speed.stalled_until_s:.3f} s")
    await act.last(0.5, 3.0)
    stalls_s = speed.stalled_until_s - world.loop.now
    if stalls_s > 0:  # what waits for it does so to its end
        act.target.doubt(stalls_s)
    speed.write_ms, speed.stalled_until_s = world.scene.weather.write_ms, 0.0
    act.healed()


async def set_clock(act: Act) -> None:
    """Set the wall clock, by seconds or days."""
    ms = act.dice.choice((-1, 1)) * act.dice.choice((1500, 60_000, 86_400_000))
    act.target.node.jump_wall(ms)
    act.fired(f"{ms} ms")
    act.healed()


# ---- the operator


async def permit(act: Act) -> None:
    """Limit what a broker may serve, for a while."""
    world, group = act.world, act.target.group
    less = act.dice.choice((Permission.READ, Permission.WRITE, Permission.NONE))
    world.operator.permit(group, act.on, less)
    act.fired(less.name or "")
    await act.last(0.3, 3.0)
    if any(str(m.id) == act.on for m in world.configs[group].members):
        world.operator.permit(group, act.on, Permission.FULL)
    act.healed()


async def remove_member(act: Act) -> None:
    """Remove a slave from its group and stop it; later make it a member again."""
    world, name = act.world, act.target.group
    config = world.configs[name]
    master = world.state(name).master
    slaves = [str(member.id) for member in config.slaves if member.id != master]
    if len(slaves) < 2 or config.policy.how_many is HowMany.MAJORITY:
        await permit(act)  # without it the policy would ask for less, and the checks do not know
        return
    act.on = act.on if act.on in slaves else act.dice.choice(slaves)
    host = act.target
    host.hold()
    world.operator.remove(name, act.on)
    act.fired()
    await act.last(0.0, 0.5)
    host.stop()
    await act.last(0.3, 3.0)
    world.operator.take_back(name, act.on, config)
    host.let_go()
    act.healed()
