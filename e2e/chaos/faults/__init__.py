"""All faults, in the order in which a run makes them."""

from collections.abc import Sequence
from typing import Final

from e2e.chaos.fault import Fault
from e2e.chaos.faults.clock import ClockJumps
from e2e.chaos.faults.cuts import (
    CutClients,
    CutMasterFromBoth,
    CutMasterFromSlaves,
    CutMasterFromZooKeeper,
    OneWayToMaster,
    OneWayToSlave,
    OneWayToZooKeeper,
    ResetLinks,
)
from e2e.chaos.faults.damage import (
    BitFlipOnMaster,
    BitFlipOnSlave,
    EmptyDiskOnMaster,
    EmptyDiskOnSlave,
    TruncatedOnSlave,
)
from e2e.chaos.faults.descriptors import NoDescriptors
from e2e.chaos.faults.disk_errors import (
    DiskFullOnMaster,
    DiskFullOnSlave,
    SyncFailsOnMaster,
    SyncFailsOnSlave,
)
from e2e.chaos.faults.kill import KillAll, KillMaster, KillSlave, KillTaker, KillZooKeeperLeader
from e2e.chaos.faults.pause import PauseMaster, PauseSlave
from e2e.chaos.faults.power import PowerLossAll, PowerLossMaster, PowerLossSlave, PowerLossUnflushed
from e2e.chaos.faults.wedge import WedgeMaster
from e2e.chaos.faults.zookeeper import AllSessionsExpired, QuorumLost, SessionExpired
from e2e.chaos.faults.zookeeper_data import ZooKeeperEmpty, ZooKeeperOlder

FAULTS: Final[Sequence[type[Fault]]] = (
    KillMaster,
    KillSlave,
    KillTaker,
    KillZooKeeperLeader,
    KillAll,
    PauseMaster,
    PauseSlave,
    WedgeMaster,
    CutMasterFromSlaves,
    CutMasterFromZooKeeper,
    CutMasterFromBoth,
    CutClients,
    OneWayToMaster,
    OneWayToSlave,
    OneWayToZooKeeper,
    ResetLinks,
    QuorumLost,
    SessionExpired,
    AllSessionsExpired,
    ZooKeeperEmpty,
    ZooKeeperOlder,
    PowerLossMaster,
    PowerLossSlave,
    PowerLossAll,
    PowerLossUnflushed,
    SyncFailsOnMaster,
    SyncFailsOnSlave,
    DiskFullOnMaster,
    DiskFullOnSlave,
    NoDescriptors,
    ClockJumps,
    BitFlipOnSlave,
    BitFlipOnMaster,
    TruncatedOnSlave,
    EmptyDiskOnSlave,
    EmptyDiskOnMaster,
)
