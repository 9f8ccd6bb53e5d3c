"""When a disk may be damaged: never two of one group at once."""

from types import SimpleNamespace
from typing import Any

import pytest

from fmqbroker.journal.loss_flags import Doubts
from fmqcore.ids import BrokerId, Epoch, GroupName
from fmqcore.zk.group_config import GroupConfig, Member
from fmqcore.zk.group_state import GroupState, Mode
from fmqsim.faults.disk_damage import spare

G1, M, S = GroupName("g1"), BrokerId("g1-0"), BrokerId("g1-1")
CONFIG = GroupConfig(G1, M, (Member(M, "a:1"), Member(S, "b:1")))
WHOLE = GroupState(Mode.MASTER, Epoch(1), M, M, frozenset([S]), last_opened_epoch=Epoch(1))


def act(*, emptied: bool, epoch: int = 1, alive: bool = True) -> Any:
    """A fault on the slave; the master is as given."""
    doubts = Doubts(lacks=emptied, tail_lost=emptied, unproven=emptied, acked_under=0)
    journals = {
        "g1-0": SimpleNamespace(epoch=epoch, doubts=doubts),
        "g1-1": SimpleNamespace(
            epoch=1, doubts=Doubts(lacks=False, tail_lost=False, unproven=False, acked_under=0)
        ),
    }
    hosts = {
        name: SimpleNamespace(
            name=name, group=G1, node=SimpleNamespace(alive=name == S or alive, process=name)
        )
        for name in journals
    }
    watcher = SimpleNamespace(of=lambda name: SimpleNamespace(journal=journals[name]))
    world = SimpleNamespace(
        configs={G1: CONFIG}, state=lambda _: WHOLE, brokers=hosts, watcher=watcher
    )
    return SimpleNamespace(world=world, target=hosts["g1-1"])


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ({"emptied": False}, True),
        ({"emptied": True}, False),  # its checkpoint was damaged, and no slave has proved it yet
        ({"emptied": False, "epoch": 0}, False),
        ({"emptied": False, "alive": False}, False),
    ],
)
def test_no_disk_is_damaged_while_another_is_in_doubt(
    master: dict[str, Any], expected: bool
) -> None:
    assert spare(act(**master)) is expected
