"""Parse what a reader asks for in the text options of `spark.read.format("fmq")`. Pure.

path, paths   directories of the replicas of one journal, separated by commas (or `load([...])`)
connect       instead: live brokers, fmq://host:port,...; any of them knows the others
group         with connect: whose journal, if the cluster (or the topics) have several groups
chain         of an ordered topic: a file with its chain (`fmq ordered status TOPIC -o json`); then
              each path is GROUP=DIRECTORY, of all groups, and rows come in the topic's order
topic         topics, separated by commas; left out: all
queues        like 0,3-5
fromOffset, toOffset, fromTime, toTime   [from, to); a time is ISO 8601 (UTC if it has no
              zone) or milliseconds since 1970
columns       separated by commas; left out: all
json          fields of JSON messages, as columns: a DDL (`fmqspark.source.fields`)
jsonPrefix    prefix of the names of these columns
splitBytes    bytes of journal of one split, like 32m, at least 64k; left out: see `Request.cut`
uncommitted   true: also what is not known to be committed
filters       once: the DataFrame is used once, so its filters may decide what is read (see
              `fmqspark.spark.source`)
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from fmqcore.address import parse_url
from fmqcore.errors import InvalidArgument
from fmqcore.scan.selection import NO_END, Range, Wanted
from fmqspark.source.brokers import brokers_of
from fmqspark.source.fields import Field, understand_fields
from fmqspark.source.names import add_topic_names
from fmqspark.source.planning import LARGE_SPLIT_BYTES, SPLIT_BYTES, Task, plan, plan_tasks
from fmqspark.source.survey import Survey, survey

KNOWN: Final = (
    *(
        "path",
        "paths",
        "connect",
        "group",
        "chain",
        "topic",
        "queues",
        "fromoffset",
        "tooffset",
        "fromtime",
        "totime",
    ),
    *("columns", "json", "jsonprefix", "splitbytes", "uncommitted", "filters"),
    *("startingposition", "maxbytespertrigger", "failondataloss"),  # streams
)
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_SIZE: Final = re.compile(r"([0-9]{1,15})([kmg]?)b?", re.IGNORECASE)
_QUEUES: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
MIN_SPLIT: Final = 64 * 1024
COLUMNS: Final = (
    *("topic", "queue", "offset", "key", "value", "tag", "headers"),
    *("store_time", "deliver_time", "born_time", "producer", "epoch", "position"),
)
"""The source's own columns, in order."""
ORDERED_COLUMNS: Final = ("segment", "sequence")
"""More columns, for an ordered topic: segment of the chain, number in the sender's order."""


@dataclass(frozen=True, slots=True)
class Request:
    """The parsed options."""

    directories: tuple[str, ...]
    topics: tuple[str, ...] | None = None
    wanted: Wanted = Wanted()  # all but the topics
    columns: tuple[str, ...] | None = None
    split_bytes: int = 0  # 0: as fits
    uncommitted: bool = False
    starting: str = "earliest"  # streams: or latest, or a position
    per_trigger: int = 0  # streams: bytes of journal, 0 = all there is
    fail_on_data_loss: bool = True  # streams
    connect: tuple[str, ...] = ()  # brokers to ask who there is, instead of directories
    group: str = ""
    chain: str = ""  # a file; "": no ordered topic
    fields: tuple[Field, ...] = ()  # of messages that are JSON
    filters_once: bool = False  # one query alone, so what its filters leave out need not be read
    at_once: int = 0  # tasks that Spark runs at the same time; 0: not known

    @property
    def named(self) -> tuple[str, ...]:
        """Where to read from, as messages name it."""
        return self.connect or self.directories

    def survey(self, since: int = 0) -> Survey:
        """Survey the directories, or the group's brokers as of now.

        Raises what `survey` and `brokers_of` raise.
        """
        if not self.connect:
            return survey(self.directories, uncommitted=self.uncommitted, since=since)
        members = brokers_of(self.connect, self.group, self.topics)
        found = survey(members.sources, since=since)
        found.listed = members.topics
        return found

    def cut(self, found: Survey, wanted: Wanted) -> list[Task]:
        """Divide what is wanted into tasks.

        Where it is not known who reads them, they fit the cores of this machine.
        """
        if self.split_bytes:
            return [(split,) for split in plan(found, wanted, self.split_bytes)]
        if self.at_once:
            return plan_tasks(found, wanted, LARGE_SPLIT_BYTES, self.at_once)
        return plan_tasks(found, wanted, SPLIT_BYTES, len(os.sched_getaffinity(0)))

    def wanted_in(self, found: Survey, gone: list[str] | None = None) -> Wanted:
        """Return `wanted` with the topics as ids.

        Raises `InvalidArgument` for an unknown topic, unless the list `gone` is given: then the
        unknown names are appended to it and left out of the result. Raises errors of reading too.
        """
        if self.topics is None:
            return self.wanted
        add_topic_names(found)
        topics = self.topics
        if gone is not None:
            known = {*found.names.values(), *(found.listed or ())}
            gone += [name for name in topics if name not in known]
            topics = tuple(name for name in topics if name in known)
        return replace(self.wanted, topics=found.topic_ids(topics))


def understand(options: Mapping[str, str]) -> Request:
    """Parse the options. Raises `InvalidArgument`, which names the option and what it may be."""
    given = {name.lower(): value.strip() for name, value in options.items()}
    if "provider" in given:
        raise InvalidArgument(
            "a table of Spark's catalog keeps no options for a source in Python: to read the "
            "journal by SQL, use CREATE TEMPORARY VIEW ... USING fmq OPTIONS (path '...')"
        )
    unknown = sorted(given.keys() - set(KNOWN))
    if unknown:
        raise InvalidArgument(f"unknown option {', '.join(unknown)}: use {', '.join(KNOWN)}")
    return Request(
        () if "connect" in given else _directories(given),
        _some("topic", given),
        Wanted(
            queues=_queues(given["queues"]) if "queues" in given else None,
            offsets=_range(given, "offset", _number),
            store_ms=_range(given, "time", time_ms),
        ),
        _some("columns", given),
        _split_bytes(given),
        _flag(given, "uncommitted", default=False),
        _starting(given.get("startingposition", "earliest")),
        size("maxBytesPerTrigger", given.get("maxbytespertrigger", "0")),
        _flag(given, "failondataloss", default=True),
        _connect(given),
        given.get("group", ""),
        _chain(given),
        _fields(given),
        _once(given.get("filters", "")),
    )


_MOST_DIGITS: Final = 19  # of a number that fits in 64 bits
_DIGITS_OF_DATES: Final = (4, 6, 8)  # 2026, 202601, 20260131: ISO 8601 writes them so, too


def size(name: str, text: str) -> int:
    """Return a size like `32m` in bytes. Raises `InvalidArgument`."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise InvalidArgument(f"{name} {text!r} must be a number of bytes, like 64m")
    return int(found[1]) * _UNITS[found[2].lower()]


def _split_bytes(given: Mapping[str, str]) -> int:
    if "splitbytes" not in given:
        return 0
    found = size("splitBytes", text := given["splitbytes"])
    if found < MIN_SPLIT:
        raise InvalidArgument(
            f"splitBytes {text!r} must be at least {MIN_SPLIT // 1024}k, as each split is a "
            "separate task; leave the option out for a fitting size"
        )
    return found


def _once(text: str) -> bool:
    if text.lower() not in ("", "once"):
        raise InvalidArgument(
            f"filters {text!r} must be 'once', for a DataFrame that one query uses once; leave the "
            "option out for any other"
        )
    return bool(text)


def time_ms(name: str, text: str) -> int:
    """Return a time as milliseconds since 1970. Raises `InvalidArgument`."""
    if text.isdecimal() and len(text) <= _MOST_DIGITS:
        if len(text) in _DIGITS_OF_DATES and text[:2] in ("19", "20"):
            raise InvalidArgument(
                f"{name} {text!r} may be a date or milliseconds since 1970: write a date like "
                f"2026-01-31, and milliseconds as 0{text}"
            )
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{name} {text!r} must be a time like 2026-01-31T12:00:00Z, or milliseconds since 1970"
        ) from None
    return to_ms(when)


def to_ms(when: datetime) -> int:
    """Return milliseconds since 1970, rounded up.

    A batch stored at or after `when` is not below it.
    """
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return -(
        -(since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds) // 1000
    )


def _directories(given: Mapping[str, str]) -> tuple[str, ...]:
    text = given.get("paths") or given.get("path", "")
    found = _list(text)
    if text.startswith("["):
        try:
            found = tuple(str(path) for path in json.loads(text))
        except ValueError as error:
            raise InvalidArgument(
                f"paths {text!r} must be a JSON list of directories: {error}"
            ) from None
    if not found:
        raise InvalidArgument(
            'nothing names a journal: use spark.read.format("fmq").load(DIRECTORY), or '
            'option("connect", "fmq://..."); in SQL, CREATE TEMPORARY VIEW (a table of Spark\'s '
            "catalog keeps no options)"
        )
    if len({os.path.realpath(path) for path in found}) < len(found):
        raise InvalidArgument("the same directory is named twice: name each replica once")
    return found


def _connect(given: Mapping[str, str]) -> tuple[str, ...]:
    if "connect" not in given:
        if "group" in given:
            raise InvalidArgument(
                "option group needs option connect: leave it out, a directory is one group's"
            )
        return ()
    if "path" in given or "paths" in given:
        raise InvalidArgument(
            "options connect and path exclude each other: name brokers or directories"
        )
    if _flag(given, "uncommitted", default=False):
        raise InvalidArgument(
            "option uncommitted needs option path: brokers return only committed data"
        )
    parse_url(given["connect"])
    return (given["connect"],)


def _chain(given: Mapping[str, str]) -> str:
    if "chain" not in given:
        return ""
    if "connect" in given:
        raise InvalidArgument(
            "option chain needs option path, not connect: name data directories as GROUP=DIRECTORY"
        )
    if not given["chain"]:
        raise InvalidArgument(
            "option chain is empty: name a file with the output of "
            "`fmq ordered status TOPIC -o json`"
        )
    return given["chain"]


def _fields(given: Mapping[str, str]) -> tuple[Field, ...]:
    if "json" in given:
        taken = COLUMNS + (ORDERED_COLUMNS if "chain" in given else ())
        return understand_fields(given["json"], given.get("jsonprefix", ""), taken)
    if "jsonprefix" in given:
        raise InvalidArgument(
            "option jsonPrefix needs option json: it is the prefix of the names of json columns"
        )
    return ()


def _list(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _some(name: str, given: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return names; None if the option is left out, which differs from naming nothing."""
    if name not in given:
        return None
    found = _list(given[name])
    if not found:
        raise InvalidArgument(f"option {name} is empty: name at least one, or leave it out for all")
    return found


def _queues(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in _list(text):
        match = _QUEUES.fullmatch(part)
        some = match and range(int(match[1]), int(match[2] or match[1]) + 1)
        if not some:  # 5-3 is none, too
            raise InvalidArgument(f"queues {text!r} must be numbers and ranges, like 0,3-5")
        found |= set(some)
    if not found:
        raise InvalidArgument("option queues is empty: name at least one, or leave it out for all")
    return frozenset(found)


def _number(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InvalidArgument(
            f"{name} {text!r} must be a whole number, 0 or more, of at most 19 digits"
        )
    return int(text)


def _starting(text: str) -> str:
    if text in ("earliest", "latest") or (text.isdecimal() and len(text) <= _MOST_DIGITS):
        return text
    raise InvalidArgument(
        f"startingPosition {text!r} must be earliest, latest, or a position of the journal"
    )


def _range(given: Mapping[str, str], what: str, read: Callable[[str, str], int]) -> Range:
    name = what.capitalize()
    first = read(f"from{name}", given[f"from{what}"]) if f"from{what}" in given else 0
    end = read(f"to{name}", given[f"to{what}"]) if f"to{what}" in given else NO_END
    if end < 0:
        raise InvalidArgument(
            f"to{name} {given[f'to{what}']!r} is before 1970, when nothing was stored: use a "
            "later time"
        )
    if first > end:
        raise InvalidArgument(
            f"from{name} {given[f'from{what}']} is above to{name} {given[f'to{what}']}: "
            "swap the two"
        )
    return Range(max(first, 0), min(end, NO_END))


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidArgument(f"{name} {text!r} must be true or false")
    return text == "true"
