"""A broker as a process: real ports, logs on standard error, an exit status for each cause.

The broker itself is in `broker.py`, the command line in `fmqcli.commands.broker`.
"""

import asyncio
import platform
from typing import Final

import structlog
import uvloop

from fmqadapters.disk.files import FileDisk
from fmqadapters.grpc import GrpcTransport
from fmqadapters.process.clock import SystemClock
from fmqadapters.process.lifecycle import FATAL_EXIT, ProcessLifecycle
from fmqadapters.process.logs import log_to_stderr
from fmqadapters.zookeeper.hosts import unresolved
from fmqadapters.zookeeper.session import ZooKeeperSession
from fmqbroker.app.broker import Broker, Ports
from fmqbroker.app.collector import FreezingProbe, tune
from fmqbroker.app.http import pages_of
from fmqbroker.runtime.settings import BrokerSettings
from fmqcore import errors
from fmqcore.errors import FmqError
from fmqcore.version import VERSION
from fmqport.disk import DiskFailed
from fmqport.transport import TransportError

_log = structlog.get_logger()

EXIT_STATUS: Final[tuple[tuple[type[FmqError], int], ...]] = (
    (errors.CorruptJournal, 65),  # sysexits' EX_DATAERR
    (TransportError, 69),  # EX_UNAVAILABLE: the address to listen on is taken
    (DiskFailed, 74),  # EX_IOERR
    (errors.StorageFull, 74),
    (errors.DirectoryLocked, 75),  # EX_TEMPFAIL: another broker works on the data directory
    (errors.NameTaken, 75),  # or lives under this broker's id
    (errors.NotFound, 78),  # EX_CONFIG: no such group
    (errors.InvalidArgument, 78),
    (errors.Malformed, 78),  # the group's configuration does not decode
)
"""Exit status by the error that kept a broker from starting or running. 0 = an orderly stop."""


def run_broker(settings: BrokerSettings) -> int:
    """Run one broker until SIGTERM or SIGINT; return the exit status."""
    log_to_stderr()
    tune()
    try:
        return _run_to_its_end(settings)
    except Exception:  # noqa: BLE001  # the last place that can report it
        # The traceback must be in the log: a new run may not show the same failure.
        _log.critical("broker_ends", reason="this is a bug", exc_info=True)
        return FATAL_EXIT


def _run_to_its_end(settings: BrokerSettings) -> int:
    status = 0
    try:
        # An event loop written in C: a seventh less CPU per message (docs/benchmarks.md).
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings))
    except* FmqError as group:
        error = _first(group)
        _log.error("broker_ends", reason=str(error), kind=type(error).__name__)
        status = _status_of(error)
    return status


async def _run(settings: BrokerSettings) -> None:
    _log.info(
        "broker_starts",
        version=VERSION,
        python=platform.python_version(),
        cluster=settings.cluster,
        group=settings.group,
        broker=settings.broker,
        data_dir=str(settings.data_dir),
    )
    disk = FileDisk(settings.data_dir)
    try:
        coordination = ZooKeeperSession(settings.zookeeper, timeout_ms=settings.session_timeout_ms)
        ports = Ports(SystemClock(), GrpcTransport(), disk, coordination, ProcessLifecycle())
        reporter = asyncio.create_task(_log_unresolved(settings.zookeeper))
        broker = Broker(settings, ports, FreezingProbe())
        try:
            async with pages_of(settings, broker.health):
                await broker.run()
        finally:
            reporter.cancel()
            await asyncio.wait([reporter])
    finally:
        await disk.close()


async def _log_unresolved(address: str) -> None:
    """Log unresolved ZooKeeper names once; the broker keeps waiting, as they may resolve later."""
    for name, reason in (await unresolved(address)).items():
        _log.warning("zookeeper_name_does_not_resolve", name=name, reason=reason, address=address)


def _first(group: BaseExceptionGroup[FmqError]) -> FmqError:
    """Return the first of several errors: the others are most often its consequences."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, FmqError)
    return error


def _status_of(error: FmqError) -> int:
    return next((status for kind, status in EXIT_STATUS if isinstance(error, kind)), FATAL_EXIT)
