"""A real Prometheus (Debian's package of that name) that scrapes the given targets.

Leaves its configuration, its log and its data in the given folder.
"""

import asyncio
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from fmqadapters.process.free_ports import free_port

NEEDED: Final = "needs a prometheus on the PATH (Debian: prometheus)"
_START_S: Final = 60.0
_POLL_S: Final = 0.2


def available() -> bool:
    """Whether there is a prometheus on the PATH."""
    return shutil.which("prometheus") is not None


class Silent(Exception):
    """Prometheus did not start, or did not show the expected result in time."""


@dataclass(frozen=True, slots=True)
class Target:
    """One page of metrics; its own `job` label replaces its name."""

    name: str
    address: str  # host:port
    path: str = "/metrics"
    labels: Mapping[str, str] = field(default_factory=dict)


class Prometheus:
    """A running Prometheus. `witnesses` get the firing alerts of each look at any instance."""

    witnesses: ClassVar[list[Callable[[Set[str]], None]]] = []

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        """Whether the server answers."""
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, text: str) -> list[Any]:
        """Return the result now. Raises ValueError if the query does not parse."""
        found = self._get("query?" + urllib.parse.urlencode({"query": text}))
        result: list[Any] = found["data"]["result"]
        return result

    def over_time(self, text: str, from_s: float, to_s: float, step_s: float) -> list[Any]:
        """Return the result at each step between two times (unix seconds)."""
        asked = {"query": text, "start": from_s, "end": to_s, "step": step_s}
        found = self._get("query_range?" + urllib.parse.urlencode(asked))
        result: list[Any] = found["data"]["result"]
        return result

    def alerts(self, *, pending: bool = False) -> dict[str, list[dict[str, Any]]]:
        """Return the firing alerts by name, and with `pending` those about to fire."""
        out: dict[str, list[dict[str, Any]]] = {}
        firing = set()
        for alert in self._get("alerts")["data"]["alerts"]:
            name, fires = alert["labels"]["alertname"], alert["state"] == "firing"
            if fires:
                firing.add(name)
            if pending or fires:
                out.setdefault(name, []).append(alert)
        for witness in self.witnesses:
            witness(firing)
        return out

    def up(self) -> set[str]:
        """Return the names of targets whose last scrape succeeded."""
        return {r["metric"]["target"] for r in self.query("up == 1")}

    async def until(self, look: Callable[[], object], what: str, patience_s: float = 240) -> None:
        """Look again and again, beside the loop, until the look is true. Raises `Silent`."""
        try:
            async with asyncio.timeout(patience_s):
                while not await asyncio.to_thread(look):  # noqa: ASYNC110
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            alerts = await asyncio.to_thread(self.alerts, pending=True)
            raise Silent(
                f"timed out after {patience_s:g} s, waiting for: {what}; alerts: {alerts}"
            ) from None

    def _get(self, what: str) -> Any:
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{what}", timeout=30) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:  # a query that does not parse: it says why
            with error:
                raise ValueError(f"{what}: {error.read().decode()}") from None


@contextmanager
def prometheus(
    folder: Path, targets: Sequence[Target], rules: Path, *, every_s: int = 1
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes `targets` with these rules and answers. Raises `Silent`."""
    port, config = free_port(), folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(_config(targets, rules, every_s)))
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    log = folder / "prometheus.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        found, until_s = Prometheus(port), time.monotonic() + _START_S
        while not found.ready():
            if process.poll() is not None or time.monotonic() > until_s:
                raise Silent(
                    f"Prometheus did not start; the end of the log: {log.read_text()[-2000:]}"
                )
            time.sleep(_POLL_S)
        yield found
    finally:
        process.terminate()
        process.wait(30)


def _labels(target: Target) -> dict[str, str]:
    return {"target": target.name, **target.labels}


def _config(targets: Sequence[Target], rules: Path, every_s: int) -> Any:
    jobs = [
        {
            "job_name": target.name,
            "metrics_path": target.path,
            "static_configs": [{"targets": [target.address], "labels": _labels(target)}],
        }
        for target in targets
    ]
    return {
        "global": {"scrape_interval": f"{every_s}s", "evaluation_interval": f"{every_s}s"},
        "rule_files": [str(rules)],
        "scrape_configs": jobs,
    }
