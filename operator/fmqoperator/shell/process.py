"""The operator as a process: options by environment, logs on standard error, an orderly end.

Start: pages → wait for the Lease → watches → reconcile everything once. Stop (SIGTERM): no new
round; release the Lease, so that the other replica works at once. A lost Lease ends the process
with status 75; Kubernetes starts it again, to stand by.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import kopf
import structlog

from fmqadapters.grpc import GrpcTransport
from fmqadapters.http.pages import serve_pages
from fmqadapters.process.logs import LEVELS, set_log_level
from fmqcore.errors import FmqError, InvalidArgument, Unavailable
from fmqcore.version import VERSION
from fmqoperator.core.observation import Defaults
from fmqoperator.shell.apply import Applier
from fmqoperator.shell.brokers import Brokers
from fmqoperator.shell.cache import Cache
from fmqoperator.shell.events import Events
from fmqoperator.shell.groups import Groups
from fmqoperator.shell.handlers import Patience, kopf_settings, registry_of
from fmqoperator.shell.jobs import Jobs
from fmqoperator.shell.keeper import Keeper
from fmqoperator.shell.kube import Kube
from fmqoperator.shell.lease import Lease, LeaseLost, held
from fmqoperator.shell.logs import log_everything
from fmqoperator.shell.missing_rights import Blindness
from fmqoperator.shell.observe import Observer
from fmqoperator.shell.pages import Pages
from fmqoperator.shell.relist import report_missed_deletions
from fmqoperator.shell.topics import Topics
from fmqoperator.shell.zookeeper import Ensembles

_log = structlog.get_logger()
TEMPORARY: Final = 75  # sysexits' EX_TEMPFAIL
UNAVAILABLE: Final = 69


@dataclass(frozen=True, slots=True)
class Options:
    """Options from the environment; the chart sets them."""

    defaults: Defaults
    me: str
    listen: str
    namespaces: tuple[str, ...]  # () = all
    log_level: str = "info"
    lease: str = "fmq-operator"

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Options":
        """Read `FMQ_...`, each with a default. Raises `InvalidArgument`."""
        listed = environment.get("FMQ_WATCH_NAMESPACES", "").split(",")
        return cls(
            defaults=Defaults(
                broker_image=environment.get("FMQ_BROKER_IMAGE", "fmq/broker:0.1.0"),
                operator_namespace=environment.get("FMQ_NAMESPACE", "fmq-system"),
                cluster_domain=environment.get("FMQ_CLUSTER_DOMAIN", ""),
                spark_image=environment.get("FMQ_SPARK_IMAGE", ""),
                spark_account=environment.get("FMQ_SPARK_ACCOUNT", "fmq-spark"),
                planned_moves=_switch(environment, "FMQ_PLANNED_MOVES"),
                updates_at_once=_count(environment, "FMQ_UPDATES_AT_ONCE", 1),
            ),
            me=environment.get("FMQ_POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            listen=environment.get("FMQ_LISTEN", "0.0.0.0:8080"),
            namespaces=tuple(name.strip() for name in listed if name.strip()),
            log_level=_log_level(environment),
            lease=environment.get("FMQ_LEASE") or "fmq-operator",
        )


def _switch(environment: Mapping[str, str], name: str) -> bool:
    """Return True unless it is `false`; what is neither is refused, or `off` would count as on."""
    given = environment.get(name) or "true"
    if given not in ("true", "false"):
        raise InvalidArgument(f"{name} is {given!r}: it must be true or false")
    return given == "true"


def _log_level(environment: Mapping[str, str]) -> str:
    given = environment.get("FMQ_LOG_LEVEL") or "info"
    if given not in LEVELS:
        raise InvalidArgument(f"FMQ_LOG_LEVEL is {given!r}: it must be one of {', '.join(LEVELS)}")
    return given


def _count(environment: Mapping[str, str], name: str, default: int) -> int:
    given = environment.get(name) or str(default)
    if not (given.isascii() and given.isdecimal()):
        raise InvalidArgument(f"{name} is {given!r}: it must be a number, 0 or more")
    return int(given)


def run_operator() -> int:
    """Run until SIGTERM; return the exit status."""
    log_everything()
    status = 0
    try:
        options = Options.read(os.environ)
        set_log_level(options.log_level)
        asyncio.run(_run(options))
    except* FmqError as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        _log.error("operator_ends", reason=str(error), kind=type(error).__name__)
        status = TEMPORARY if isinstance(error, LeaseLost) else UNAVAILABLE
    return status


async def _run(options: Options) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    kube, ensembles, brokers = Kube.connect(), Ensembles(), Brokers(GrpcTransport())
    apart = Kube.connect()  # the Lease's own connections: writes that hang have all of the others
    cache = Cache()
    observer = Observer(options.defaults, kube, cache, ensembles, brokers)
    events = Events(kube, options.me)
    groups = Groups(observer, Applier(kube, ensembles, events, brokers))
    jobs = Jobs(kube, cache, events, options.defaults)
    topics = Topics(ensembles, events, cache, brokers)
    keeper = Keeper(kube, {"BrokerGroup": groups, "Topic": topics, "BrokerJob": jobs})
    patience = Patience()
    pages = Pages(keeper, patience.blind_s)
    watch = partial(_watch, options, cache, keeper, patience)
    lease = Lease(apart, options.defaults.operator_namespace, options.lease, options.me)
    try:
        async with serve_pages(options.listen, pages.all()):
            _log.info(
                "operator_starts", version=VERSION, identity=options.me, listen=options.listen
            )
            blindness = Blindness(kube, events, cache, options.namespaces, patience.blind_s)
            works = (keeper.run, ensembles.tidy, blindness.watch)
            await _until(stopping, _work(lease, pages, works, watch))
            _log.info("operator_stops")
    finally:
        await asyncio.gather(ensembles.close(), brokers.close())
        await asyncio.gather(kube.close(), apart.close())


async def _work(
    lease: Lease,
    pages: Pages,
    works: Iterable[Callable[[], Coroutine[None, None, None]]],
    watch: Callable[[], Coroutine[None, None, None]],
) -> None:
    async with held(lease):
        pages.works = True
        async with asyncio.TaskGroup() as tasks:
            keeping = [tasks.create_task(work()) for work in works]
            await watch()  # returns when kopf is to stop
            for task in keeping:
                task.cancel()


async def _watch(options: Options, cache: Cache, keeper: Keeper, patience: Patience) -> None:
    """Run kopf. Raises `Unavailable` when it gives up a watch: a definition was deleted, say."""
    report_missed_deletions()
    try:
        await kopf.operator(
            registry=registry_of(cache, keeper),
            settings=kopf_settings(patience),
            identity=options.me,  # type: ignore[arg-type]  # a NewType of kopf's own insides
            standalone=True,
            clusterwide=not options.namespaces,
            namespaces=options.namespaces,
        )
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "kopf":
            raise
        raise Unavailable(f"the cluster cannot be watched any more: {error}") from error


async def _until(stopping: asyncio.Event, work: Coroutine[None, None, None]) -> None:
    """Work until asked to stop; raise what the work raises."""
    working = asyncio.create_task(work)
    asked = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((working, asked), return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
        if not working.done():
            working.cancel()
        await asyncio.wait((working, asked))
    if not working.cancelled():
        working.result()
