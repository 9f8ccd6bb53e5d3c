"""A cluster as a file describes it: read, checked, compared, written. Without ZooKeeper.

    [groups.g1]                       # TOML, or the same as JSON
    master = "g1-0"                   # left out: the first member
    members = [{id = "g1-0", address = "10.0.0.1:9876", zone = "a"}, ...]
    [groups.g1.policy]                # left out: the file's [policy]; that left out: the defaults

Every mistake is reported with its place. `fmq cluster show -o json` prints this form too, with the
`version` of each group: a file that names a version is refused once the group's wishes (members,
policy, strict_takeover) have changed.
"""

import json
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fmqcli.stdio.input_paths import name_of, read_table
from fmqcore.address import is_host
from fmqcore.errors import InvalidArgument
from fmqcore.ids import BrokerId, GroupName, Permission
from fmqcore.names import NAME_PATTERN, NAME_RULE
from fmqcore.policy import AckPolicy, Flush, HowMany, SlaveCounts, can_meet
from fmqcore.zk.codec import Versioned
from fmqcore.zk.group_config import GroupConfig, Member

_PROBLEMS: Final = {
    "missing": "must be given",
    "extra_forbidden": "there is no field of that name",
    "string_pattern_mismatch": f"is no name: {NAME_RULE}",
    "too_short": "must not be empty",
    "model_type": "must be a table",
    "dict_type": "must be a table",
}

_VERSION: Final = re.compile("wishes-[0-9a-f]{16}")

Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Policy(_Part):
    flush: Flush = AckPolicy().flush
    flush_interval_ms: Annotated[int, Field(ge=1, le=3_600_000)] = AckPolicy().flush_interval_ms
    counts: SlaveCounts = AckPolicy().counts
    how_many: HowMany = AckPolicy().how_many
    strict: bool = AckPolicy().strict


class _Member(_Part):
    id: Name
    address: str
    zone: str = ""
    permission: str = Permission.FULL.name or ""


class _Group(_Part):
    master: Name | None = None
    members: Annotated[tuple[_Member, ...], Field(min_length=1)]
    policy: _Policy | None = None
    strict_takeover: bool = False
    version: int | str | None = None  # a number: of the node, as older versions printed it


class _File(_Part):
    cluster: Name | None = None
    zookeeper: str = ""
    policy: _Policy = _Policy()
    groups: Annotated[dict[Name, _Group], Field(min_length=1)]


class ClusterSpec:
    """The content of a cluster file.

    `versions`: of groups that must not have changed since. `masters`: those that the file names.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = name_of(path)
        file = self._parsed()
        self.cluster, self.zookeeper = file.cluster or "", file.zookeeper
        self.versions = {
            GroupName(g): of.version for g, of in file.groups.items() if of.version is not None
        }
        self.masters = {
            GroupName(g): BrokerId(of.master) for g, of in file.groups.items() if of.master
        }
        self.groups = [self._group(name, of, file.policy) for name, of in file.groups.items()]
        self._check_apart()

    def _parsed(self) -> _File:
        data = read_table(self._path, "cluster")
        try:
            return _File.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"] if part != "[key]")
            problem = _PROBLEMS.get(first["type"], first["msg"])
            raise self._wrong(place or "the file", problem) from None

    def _group(self, name: str, of: _Group, policy: _Policy) -> GroupConfig:
        members = tuple(
            Member(
                BrokerId(m.id),
                self._address(f"groups.{name}.members.{at}.address", m.address),
                m.zone,
                permission_of(m.permission, f"{self._name}: groups.{name}.members.{at}.permission"),
            )
            for at, m in enumerate(of.members)
        )
        if isinstance(of.version, str) and not _VERSION.fullmatch(of.version):
            raise self._wrong(
                f"groups.{name}.version",
                f"{of.version!r} is none that fmq cluster show prints: take it from there, or "
                "leave it out",
            )
        ids = [m.id for m in members]
        if twice := next((i for i in ids if ids.count(i) > 1), None):
            raise self._wrong(f"groups.{name}.members", f"{twice} is listed twice")
        config = GroupConfig(
            GroupName(name),
            BrokerId(of.master or members[0].id),
            members,
            AckPolicy(**dict(of.policy or policy)),
            of.strict_takeover,
        )
        master = config.member(config.master)
        if master is None:
            known = ", ".join(m.id for m in members)
            raise self._wrong(f"groups.{name}.master", f"{of.master!r} is no member; {known} are")
        self.check_policy(config)
        return config

    def check_policy(self, config: GroupConfig) -> None:
        """Raise `InvalidArgument` if the policy can never be met with this master."""
        master = next(m for m in config.members if m.id == config.master)
        zones = {m.id: m.zone for m in config.slaves}
        if reason := can_meet(config.policy, zones, master.zone, frozenset(zones)):
            raise self._wrong(
                f"groups.{config.group}.policy",
                f"can never be met with {master.id} as master, not even with all slaves in sync "
                f"({reason.partition(';')[0]}): add slaves, or ask for less",
            )

    def _address(self, place: str, text: str) -> str:
        host, _, port = text.rpartition(":")
        plain = port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536
        if not is_host(host) or not plain:
            raise self._wrong(
                place, f"{text!r} is not host:port, as clients and other brokers reach it"
            )
        return text

    def _check_apart(self) -> None:
        """Raise unless all brokers have different names and different addresses."""
        seen: dict[str, str] = {}
        for config in self.groups:
            for member in config.members:
                for what, value in (("id", member.id), ("address", member.address)):
                    if before := seen.get(value):
                        raise self._wrong(
                            f"groups.{config.group}.members",
                            f"the {what} {value} is given twice, the first time in group {before}",
                        )
                    seen[value] = config.group

    def _wrong(self, place: str, problem: str) -> InvalidArgument:
        return InvalidArgument(f"{self._name}: {place}: {problem}")


def permission_of(text: str, where: str) -> Permission:
    """Return FULL, WRITE, READ or NONE. Raises `InvalidArgument`."""
    try:
        return Permission[text.upper()]
    except KeyError:
        raise InvalidArgument(f"{where}: {text!r} is none of FULL, WRITE, READ, NONE") from None


def version_of(config: GroupConfig) -> str:
    """Return the version of a group's wishes.

    A failover changes only a fact, so the version stays current.
    """
    text = json.dumps(as_data(config), sort_keys=True, separators=(",", ":"))
    return f"wishes-{sha256(text.encode()).hexdigest()[:16]}"


def is_current(version: int | str, found: Versioned[GroupConfig], *, in_service: bool) -> bool:
    """Whether a file with this version was made from the present wishes.

    In a group that was never in service the master is a wish, too.
    """
    if isinstance(version, int):
        return version == found.version
    config = found.value
    masters = [m.id for m in config.members] if in_service else [config.master]
    return any(version == version_of(replace(config, master=master)) for master in masters)


def as_data(config: GroupConfig) -> dict[str, Any]:
    """Return one group in the file's form, without its version."""
    policy = config.policy
    return {
        "master": config.master,
        "members": [
            {"id": m.id, "address": m.address, "zone": m.zone, "permission": m.permission.name}
            for m in config.members
        ],
        "policy": {
            "flush": policy.flush.value,
            "flush_interval_ms": policy.flush_interval_ms,
            "counts": policy.counts.value,
            "how_many": policy.how_many.value,
            "strict": policy.strict,
        },
        "strict_takeover": config.strict_takeover,
    }


def differences(old: GroupConfig, new: GroupConfig) -> list[str]:
    """Return what changes, for people."""
    before, after = as_data(old), as_data(new)
    names = {m["id"]: m for m in before.pop("members")}
    lines = []
    for member in after.pop("members"):
        was = names.pop(member["id"], None)
        if was is None:
            lines.append(f"+ {member['id']} at {member['address']}")
        else:
            lines += _changes(member["id"], was, member)
    lines += [f"- {name}" for name in names]
    if old.removal is not new.removal:
        lines.append("its removal is given up: give its topics back to it with fmq topic alter")
    lines += _changes("policy", before.pop("policy"), after.pop("policy"))
    return lines + _changes("group", before, after)


def _changes(what: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [f"{what}: {k} {old[k]} -> {new[k]}" for k in old if old[k] != new[k]]
