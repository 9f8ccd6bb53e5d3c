"""A simulated ZooKeeper that reports each write, and lets a trap delay or lose one of a chain."""

from collections.abc import Callable

from fmqadapters.zookeeper.session_core import Request, Verb
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.zookeeper import Ensemble
from fmqsim.engine.zookeeper_servers import Session
from fmqsim.engine.zookeeper_tree import Txn
from fmqsim.scenario.chain_watch import ChainWatch, is_chain


class WatchedEnsemble(Ensemble):
    """Reports writes when they are committed."""

    def __init__(
        self, loop: SimLoop, chains: ChainWatch, on_write: Callable[[str, bytes], None]
    ) -> None:
        super().__init__(loop)
        self._chains = chains
        self._on_write = on_write
        self._writer = ""  # the machine whose write is done now; "" = none
        self._late: list[Request] = []  # they come again, and are not asked about again
        self.delay_of = self._ask

    def commit(
        self, verb: Verb | None, paths: tuple[str, ...] = (), data: tuple[bytes, ...] = (),
        owner: int = 0, ended: int = 0,
    ) -> Txn:  # fmt: skip
        """See `Servers`."""
        txn = super().commit(verb, paths, data, owner, ended)
        for path, written in txn.written():
            self._chains.wrote(path, written, self._writer)
            self._on_write(path, written)
        return txn

    def write(self, session: Session, request: Request) -> tuple[object, Exception | None]:
        """See `Servers`."""
        self._writer = session.who
        try:
            return super().write(session, request)
        finally:
            self._writer = ""

    def _ask(self, session: Session, request: Request) -> float | None:
        first = request.writes[0] if request.writes else request
        if first.verb is not Verb.WRITE or not is_chain(first.path, first.data):
            return 0.0
        if any(late is request for late in self._late) or self.truth.refuse(request) is not None:
            return 0.0
        late_s = self._chains.asks(session.who, first.path, first.data)
        if late_s:
            self._late.append(request)
        return late_s
