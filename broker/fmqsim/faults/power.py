"""The faults of `table.py` that cut the power of machines; the others are in `acts.py`."""

from collections.abc import Iterable

from fmqsim.engine.filesystem import Trap
from fmqsim.faults.api import Act


async def cut_power(act: Act) -> None:
    """Cut the power of one machine."""
    await _dark(act, [act.on])


async def cut_power_of_group(act: Act) -> None:
    """Cut the power of all machines of a group at once."""
    await _dark(act, [act.on, *act.peers()])


async def cut_power_of_all(act: Act) -> None:
    """Cut the power of all brokers at once."""
    await _dark(act, list(act.world.brokers))


async def _dark(act: Act, names: Iterable[str]) -> None:
    hosts = [act.world.brokers[name] for name in names]
    for host in hosts:
        host.hold()
        host.cut_power()
    act.fired(", ".join(host.name for host in hosts))
    await act.last(0.2, 3.0)
    for host in hosts:
        host.power_on()
        host.let_go()
    act.healed()


async def cut_power_at_step(act: Act) -> None:
    """Cut the power of a machine in the middle of a file operation."""
    host, dice = act.target, act.dice
    kinds = ("pwritev", "fsync", "fsync directory", "rename", "rename", "unlink", "allocate")
    trap = Trap(
        kind=dice.choice(kinds),
        after=dice.randint(1, 3),
        behind=dice.random() < 0.5,
        small=dice.random() < 0.5,
        spring=lambda: None,
    )
    sprung = False

    def dark() -> None:
        host.hold()  # also if another fault has ended it: one `let_go` follows
        if host.node.alive:
            host.cut_power()

    def spring() -> None:
        nonlocal sprung
        sprung = True
        act.world.loop.at_world(0, dark)

    trap.spring = spring
    host.storage.files.trap = trap
    if not await act.world.until(lambda: sprung, 4):
        host.storage.files.trap = None
        await _dark(act, [act.on])
        return
    act.fired(f"{'behind' if trap.behind else 'before'} a {trap.kind}")
    await act.last(0.2, 2.0)
    host.power_on()
    host.let_go()
    act.healed()
