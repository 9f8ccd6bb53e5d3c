"""The parts of a development cluster, and the file that remembers them. No process here.

Leaves in the cluster's folder: `cluster.json` (options, ports, process ids), `cluster.lock`.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from fmqcore.errors import InvalidArgument
from fmqcore.ids import BrokerId, GroupName, Permission
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts
from fmqcore.zk.group_config import GroupConfig, Member

STATE_FILE: Final = "cluster.json"
CLUSTER_LOCK: Final = "cluster.lock"
"""Held by the command that starts, changes or removes the cluster in a folder."""
ZOOKEEPER: Final = "zookeeper"
"""Name of the ZooKeeper process, and of the folder for its data."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The shape of a cluster. `settings` are `BrokerSettings` fields, the same for all brokers."""

    cluster: str = "dev"
    groups: int = 2
    slaves: int = 1
    first_port: int = 0  # asked for the first broker; 0 = any free one
    policy: AckPolicy = AckPolicy()
    zones: tuple[str, ...] = ()  # member n of a group lies in zones[n mod length]
    permissions: Mapping[str, Permission] = field(default_factory=dict)  # by broker; else FULL
    settings: Mapping[str, str | int] = field(default_factory=dict)
    strict_takeover: bool = False
    zookeeper: str = ""  # use this ensemble instead of an own server
    proxied: bool = False  # brokers reach ZooKeeper and their master over links that can be cut

    def __post_init__(self) -> None:
        if self.groups < 1 or not 0 <= self.slaves <= 9:
            raise InvalidArgument(
                f"a cluster has at least 1 group, and 0 to 9 slaves in each; "
                f"not {self.groups} and {self.slaves}"
            )


@dataclass(slots=True)
class BrokerPlan:
    """One broker: its identity, addresses and folder."""

    id: BrokerId
    group: GroupName
    zone: str
    port: int  # where it listens
    address: str  # what the group's configuration says: its port, or a link's
    zookeeper: str
    directory: Path
    host: str = "127.0.0.1"  # where it listens
    under: tuple[str, ...] = ()  # a command that runs it, as `nsenter ...` does
    environment: Mapping[str, str] = field(default_factory=dict)  # beside what we have

    @property
    def data(self) -> Path:
        """The directory of the broker's journal."""
        return self.directory / "data"

    @property
    def lock(self) -> Path:
        """The lock file, held by the process that works on the journal."""
        return self.data / "lock"

    @property
    def log(self) -> Path:
        """The broker's log file."""
        return self.directory / "broker.log"

    @property
    def listen(self) -> str:
        """The `host:port` on which the broker really listens."""
        return f"{self.host}:{self.port}"


def state_folder(name: str) -> Path:
    """Return the default folder for the files of `fmq dev` and `fmq demo`.

    Raises `InvalidArgument` if this user has no home, as in many containers.
    """
    try:
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError:
        raise InvalidArgument("there is no home folder here: name one with --dir") from None
    return Path(home) / "fmq" / name


def broker_names(options: ClusterOptions) -> list[tuple[GroupName, BrokerId, str]]:
    """Return (group, broker, zone) of all brokers; the first of each group is its master."""
    zones = options.zones or ("",)
    return [
        (GroupName(f"g{group}"), BrokerId(f"g{group}-{n}"), zones[n % len(zones)])
        for group in range(1, options.groups + 1)
        for n in range(options.slaves + 1)
    ]


def group_configs(options: ClusterOptions, brokers: Iterable[BrokerPlan]) -> list[GroupConfig]:
    """Return the group configurations to write to ZooKeeper."""
    members: dict[GroupName, list[Member]] = {}
    for b in brokers:
        permission = options.permissions.get(b.id, Permission.FULL)
        members.setdefault(b.group, []).append(Member(b.id, b.address, b.zone, permission))
    return [
        GroupConfig(group, of[0].id, tuple(of), options.policy, options.strict_takeover)
        for group, of in members.items()
    ]


# ---- the state file


@dataclass(slots=True)
class Running:
    """A process as the state file knows it."""

    name: str  # `ZOOKEEPER` or a broker's id
    port: int
    pid: int
    born: float


@dataclass(slots=True)
class ClusterFile:
    """What `fmq dev` must know of a cluster that an earlier command started."""

    options: ClusterOptions
    processes: list[Running]

    def port_of(self, name: str) -> int:
        """Return the port of a process; 0 if it is not known."""
        return next((p.port for p in self.processes if p.name == name), 0)


def write_file(directory: Path, file: ClusterFile) -> None:
    """Write the file, whole or not at all."""
    data = asdict(file)
    data["options"]["permissions"] = {
        broker: permission.name for broker, permission in file.options.permissions.items()
    }
    aside = directory / f"{STATE_FILE}.new"
    aside.write_text(json.dumps(data, indent=2, default=lambda value: value.value))
    aside.replace(directory / STATE_FILE)


def read_file(directory: Path) -> ClusterFile | None:
    """Read the file; None if there is no cluster in this folder. Raises `InvalidArgument`."""
    path = directory / STATE_FILE
    try:
        data = json.loads(path.read_text())
        return ClusterFile(
            _options(data["options"]), [Running(**process) for process in data["processes"]]
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"{path} does not describe the cluster in its folder ({error!r}): it is from another "
            "version, or damaged; end the processes that still run, and remove that folder"
        ) from error


def remove_cluster(directory: Path, options: ClusterOptions) -> list[str]:
    """Remove a cluster's files; the folder too, unless something else is in it.

    Returns what else. The folder may be a project's, or a user's home.
    """
    folders = [str(broker) for _, broker, _ in broker_names(options)]
    for name in folders if options.zookeeper else [*folders, ZOOKEEPER]:
        if (directory / name).exists():
            shutil.rmtree(directory / name)
    for name in (f"{STATE_FILE}.new", STATE_FILE):  # the last: till then it can be done again
        (directory / name).unlink(missing_ok=True)
    others = sorted({path.name for path in directory.iterdir()} - {CLUSTER_LOCK})
    (directory / CLUSTER_LOCK).unlink(missing_ok=True)
    if not others and not directory.is_symlink():
        with suppress(OSError):  # the next command has made its lock there
            directory.rmdir()
    return others


def broker_ports(directory: Path) -> list[int]:
    """Return the ports of the cluster's brokers; none if there is no cluster in this folder."""
    try:
        known = read_file(directory)
    except (OSError, InvalidArgument):
        return []  # of another version, perhaps: nothing depends on it
    brokers = {broker for _, broker, _ in broker_names(known.options)} if known else set()
    return [p.port for p in known.processes if p.name in brokers] if known else []


def _options(data: dict[str, Any]) -> ClusterOptions:
    policy = data["policy"]
    return ClusterOptions(
        **{
            **data,
            "zones": tuple(data["zones"]),
            "permissions": {b: Permission[name] for b, name in data["permissions"].items()},
            "policy": AckPolicy(
                **{
                    **policy,
                    "flush": Flush(policy["flush"]),
                    "counts": SlaveCounts(policy["counts"]),
                    "how_many": HowMany(policy["how_many"]),
                }
            ),
        }
    )
