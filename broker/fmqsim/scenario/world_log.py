"""Capture of the brokers' log events while a world runs: findings for tracebacks and damage."""

from typing import Any, Final, Protocol

import structlog

from fmqcore.errors import FmqError
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import current
from fmqsim.scenario.chain_watch import ChainWatch
from fmqsim.scenario.hosts import BrokerHost
from fmqsim.scenario.person import Person

_DAMAGE: Final = frozenset(
    {
        "journal_checkpoint_unreadable",
        "journal_resume_file_unreadable",
        "takeover_journal_unreadable",
        "takeover_record_unreadable",
        "node_malformed",
        "state_vanished",
        "name_taken",
    }
)
"""Log events that no broker may emit, unless its disk was damaged."""


class LoggedWorld(Protocol):
    """What the capture needs of a world (`scenario.world.World`)."""

    loop: SimLoop
    chains: ChainWatch
    person: Person
    brokers: dict[str, BrokerHost]


class LogCapture:
    """Adds broker logs to the trace; a complaint about damage that was not done is a problem."""

    def __init__(self, world: LoggedWorld) -> None:
        self._world = world
        self._loop = world.loop
        self._before: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._before = structlog.get_config()
        structlog.configure(
            processors=[self._take],
            wrapper_class=structlog.make_filtering_bound_logger(0),  # all, whoever was quiet before
            logger_factory=structlog.ReturnLoggerFactory(),
            cache_logger_on_first_use=False,
        )

    def __exit__(self, *_: object) -> None:
        structlog.configure(**self._before)

    def _take(self, _logger: Any, method: str, event: Any) -> Any:
        process = current.get()
        if process is None or process.alive:
            error = event.pop("exc_info", None)
            fields = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
            self._loop.note(f"{process} {method} {event['event']} {fields}")
            if isinstance(error, BaseException) and not isinstance(error, FmqError):
                self._loop.problems.append(f"{process}: {event['event']}: {error!r}")
            if event["event"] == "chain_segment_sealed" and process is not None:
                self._world.chains.sealed(process.node.name)
            if event["event"] == "slave_refused":
                self._world.person.refused(str(event["slave"]), str(event["reason"]))
            if event["event"] == "chain_end_not_reached" and "accept" in event["reason"]:
                self._world.person.loses(str(event["topic"]), int(event["segment"]))
            if (
                event["event"] == "part"
                and "begin-again" in event["reason"]
                and process is not None
            ):
                group = self._world.brokers[process.node.name].group
                self._world.person.waits(group, int(event["epoch"]))
            if process is not None and self._is_damage(event):
                host = self._world.brokers.get(process.node.name)
                if host is not None and not host.storage.hurt:
                    problem = (
                        f"{process} complains, and no disk was hurt: {event['event']} {fields}"
                    )
                    self._loop.problems.append(problem)
        raise structlog.DropEvent

    @staticmethod
    def _is_damage(event: Any) -> bool:
        rebuilt = event["event"] == "journal_index_rebuilt"
        return event["event"] in _DAMAGE or (rebuilt and event.get("reason") != "it is missing")
