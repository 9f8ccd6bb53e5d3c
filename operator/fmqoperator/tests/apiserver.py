"""A Kubernetes API server for tests: etcd and kube-apiserver as processes, nothing else.

`available` reports whether both programs exist. Leaves nothing behind.
"""

import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fmqadapters.process.free_ports import free_ports

_START_S = 120.0
ADMIN, OPERATOR = "test", "operator"
"""Tokens: of an administrator, and of a user who has only the rights of the roles."""


def programs() -> tuple[Path, Path] | None:
    """Return etcd and kube-apiserver; the second may be the all-in-one binary `kube`."""
    cache = os.environ.get("FMQ_KIND_CACHE")
    path = os.pathsep.join([f"{cache}/bin" if cache else "", os.environ.get("PATH", "")])
    etcd = shutil.which("etcd", path=path)
    server = shutil.which("kube-apiserver", path=path) or shutil.which("kube", path=path)
    return (Path(etcd), Path(server)) if etcd and server else None


class Refused(Exception):
    """The server refused; the message is its own."""


class ApiServer:
    """The calls that tests make."""

    def __init__(self, port: int) -> None:
        self._url = f"https://127.0.0.1:{port}"
        self.warnings: tuple[str, ...] = ()  # of the last reply
        self._tls = ssl.create_default_context()
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE

    def call(self, method: str, path: str, body: Any = None, kind: str = "json") -> Any:
        """Call the server. Raises `Refused` with its message."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": f"application/{kind}"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=30) as answer:
                text = answer.read()
                self.warnings = tuple(answer.headers.get_all("Warning") or ())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
            try:
                raise Refused(json.loads(text)["message"]) from None
            except ValueError:
                raise Refused(f"{error.code}: {text}") from None
        return json.loads(text) if text.startswith(b"{") else text.decode()

    def ready(self) -> bool:
        """Whether it answers yet."""
        try:
            return bool(self.call("GET", "/readyz") == "ok")
        except (OSError, Refused):
            return False


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Run an API server for as long as the context lasts."""
    found = programs()
    assert found is not None
    etcd, server = found
    client, peer, port = free_ports(3)
    key, tokens = folder / "sa.key", folder / "tokens"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens.write_text(f"{ADMIN},admin,1,system:masters\n{OPERATOR},{OPERATOR},2\n")
    store = f"http://127.0.0.1:{client}"
    urls = f"http://127.0.0.1:{peer}"
    commands = (
        (etcd, "etcd", ["--data-dir", str(folder / "etcd"), "--listen-client-urls", store,
                "--advertise-client-urls", store, "--listen-peer-urls", urls,
                "--initial-advertise-peer-urls", urls, "--initial-cluster", f"default={urls}"]),
        (server, "kube-apiserver",
         ["--etcd-servers", store, "--secure-port", str(port), "--bind-address", "127.0.0.1",
          "--cert-dir", str(folder / "certs"), "--service-account-issuer", "https://test",
          "--service-account-signing-key-file", str(key), "--service-account-key-file", str(key),
          "--token-auth-file", str(tokens), "--authorization-mode", "RBAC",
          "--disable-admission-plugins", "ServiceAccount",
          "--service-cluster-ip-range", "10.0.0.0/16"]),
    )  # fmt: skip
    running: list[subprocess.Popen[bytes]] = []
    try:
        for program, name, arguments in commands:
            with (folder / f"{name}.log").open("wb") as log:
                running.append(
                    subprocess.Popen([name, *arguments], executable=program, stdout=log, stderr=log)
                )
        api = ApiServer(port)
        _wait_ready(api, running, folder)
        yield api
    finally:
        for process in reversed(running):
            process.kill()
            process.wait()


def _wait_ready(api: ApiServer, running: list[subprocess.Popen[bytes]], folder: Path) -> None:
    until = time.monotonic() + _START_S
    while not api.ready():
        ended = [p.args for p in running if p.poll() is not None]
        if ended or time.monotonic() > until:
            logs = "\n".join(p.read_text()[-2000:] for p in sorted(folder.glob("*.log")))
            raise RuntimeError(f"no API server ({ended or 'time is out'}):\n{logs}")
        time.sleep(0.1)
