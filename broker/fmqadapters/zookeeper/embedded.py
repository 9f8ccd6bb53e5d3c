"""A real ZooKeeper server as a child process, for development and tests.

Its jars come from the `pyspark` wheel (found without importing it). It runs stand-alone on the
loopback address, unless it is given peers. Not for production: point FMQ at your own ensemble.
Leaves below its directory: `zookeeper.cfg`, `log4j2.properties`, `zookeeper.log`, `data/`.
"""

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fmqadapters.process.java import find_java
from fmqadapters.process.spawn import spawn
from fmqcore.errors import Unavailable

_JARS = (
    "zookeeper-3.*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "log4j-api-2*.jar",
    "log4j-core-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
)
_ALONE: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_PEER: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_FLAGS = (
    # A small server that starts fast: no second compiler, no parallel collector.
    "-Xms16m",
    "-Xmx96m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.preAllocSize=1024",
    "-Dlog4j2.disableJmx=true",
    "-Dzookeeper.jmx.log4j.disable=true",
)
_CONFIG = """\
dataDir={data}
clientPort={port}
clientPortAddress={host}
tickTime=200
minSessionTimeout=400
maxSessionTimeout=120000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr,ruok
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
"""
_ENSEMBLE = """\
initLimit=50
syncLimit=15
"""
_LOGGING = """\
rootLogger.level=warn
rootLogger.appenderRef.out.ref=out
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
"""


class ZooKeeperFailed(Unavailable):
    """The server cannot be started; the message has the reason and names the log."""


@dataclass(frozen=True, slots=True)
class Peers:
    """An ensemble as one server in it sees it: `host:port:port` (peers, election) of each."""

    addresses: tuple[str, ...]
    own: int  # index in `addresses`


class EmbeddedZooKeeper:
    """One server process. `start`, poll `ready` (or `wait_ready`), `stop`; may be started again.

    The process dies with this one (Linux), unless `detach`: then the caller must end it. Start it
    from the main thread. `under` is a command that runs it (as `nsenter ...` does). Without `fsync`
    its writes survive its end, not a power loss, and no slow disk delays an answer.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        *,
        detach: bool = False,
        host: str = "127.0.0.1",
        peers: Peers | None = None,
        under: Sequence[str] = (),
        fsync: bool = True,
    ) -> None:
        self.directory = directory
        self.host = host
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self._detach = detach
        self._peers = peers
        self._under = under
        self._flags = _FLAGS if fsync else (*_FLAGS, "-Dzookeeper.forceSync=no")

    @property
    def address(self) -> str:
        """`host:port` for a session."""
        return f"{self.host}:{self.port}"

    @property
    def log(self) -> Path:
        """The path of the server's log."""
        return self.directory / "zookeeper.log"

    def start(self) -> None:
        """Start the process; it serves once `ready`. Raises `NoJava`, `ZooKeeperFailed`."""
        java, jars = find_java(), find_jars()
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        config = self.directory / "zookeeper.cfg"
        config.write_text(self._config(data))
        logging = self.directory / "log4j2.properties"
        logging.write_text(_LOGGING)
        command = [
            *self._under,
            str(java),
            *self._flags,
            f"-Dlog4j2.configurationFile={logging}",
            "-cp",
            ":".join(map(str, jars)),
            _PEER if self._peers else _ALONE,
            str(config),
        ]
        self.process = spawn(command, self.log, detach=self._detach)

    def _config(self, data: Path) -> str:
        text = _CONFIG.format(data=_in_java(str(data)), host=self.host, port=self.port)
        if self._peers is not None:
            (data / "myid").write_text(str(self._peers.own + 1))
            text += _ENSEMBLE
            for number, address in enumerate(self._peers.addresses, start=1):
                text += f"server.{number}={address}\n"
        return text

    def ready(self) -> bool:
        """Whether the server serves now. Raises `ZooKeeperFailed` if the process has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise ZooKeeperFailed(
                f"ZooKeeper on {self.address} ended with status {self.process.returncode}; "
                f"its log is {self.log}:\n{_last_lines(self.log)}"
            )
        return serving(self.port, self.host)

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Block until it serves. Raises `ZooKeeperFailed` if it ends, or after `timeout_s`."""
        until = time.monotonic() + timeout_s
        while not self.ready():
            if time.monotonic() > until:
                raise ZooKeeperFailed(
                    f"ZooKeeper on {self.address} not up after {timeout_s} s; see {self.log}"
                )
            time.sleep(0.02)

    def stop(self) -> None:
        """End the process and wait for it; its data stays."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None


def _in_java(text: str) -> str:
    """Return text escaped for a Java properties file, which is in Latin-1."""
    units = ((char, char.encode("utf-16-be").hex()) for char in text.replace("\\", "\\\\"))
    return "".join(
        char
        if char.isascii()
        else "".join(f"\\u{unit[at : at + 4]}" for at in range(0, len(unit), 4))
        for char, unit in units
    )


def find_jars() -> list[Path]:
    """Return ZooKeeper's jars in the `pyspark` wheel, or raise `ZooKeeperFailed`."""
    spec = find_spec("pyspark")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found = [sorted((Path(folder) / "jars").glob(pattern)) for pattern in _JARS]
        if all(found):
            return [files[0] for files in found]
    raise ZooKeeperFailed(
        "ZooKeeper's jars come with the package pyspark (4.1 or later), which is not installed "
        f"for {sys.executable}: pip install 'fmq-broker[demo]', or use your own ensemble"
    )


def serving(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a ZooKeeper on this port answers and has a mode."""
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return False
    return b"\nMode:" in answer


def _last_lines(path: Path, count: int = 5) -> str:
    """Return the end of a log, without the frames of Java's stack traces."""
    lines = path.read_text(errors="replace").splitlines()
    return "\n".join([line for line in lines if not line.startswith("\t")][-count:])
