"""The programs that tests on kind use, as functions: kubectl, helm, kind, docker."""

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("docker", "kind", "kubectl", "helm")
T = TypeVar("T")


class Failed(Exception):
    """A program failed; the message is its output."""


def missing() -> list[str]:
    """Return the programs missing on the PATH."""
    return [name for name in NEEDED if shutil.which(name) is None]


def run(*command: str, given: str = "", patience_s: float = 600) -> str:
    """Run a program; return its standard output. Raises `Failed`."""
    done = subprocess.run(
        command, input=given or None, capture_output=True, text=True, timeout=patience_s, cwd=ROOT
    )
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip())[-3000:]
        raise Failed(f"{shlex.join(command)[:300]} ended with status {done.returncode}: {output}")
    return done.stdout


def kubectl(*arguments: str, given: str = "", patience_s: float = 300) -> str:
    """Run `kubectl ...`."""
    return run("kubectl", *arguments, given=given, patience_s=patience_s)


def get(*what: str) -> Any:
    """Return `kubectl get ... -o json`; None if the object does not exist."""
    try:
        return json.loads(kubectl("get", *what, "-o", "json"))
    except Failed as error:
        if "NotFound" in str(error):
            return None
        raise


def apply(manifest: Any) -> None:
    """Run `kubectl apply` for one object."""
    kubectl("apply", "-f", "-", given=json.dumps(manifest))


def until(look: Callable[[], T], what: str, patience_s: float = 180) -> T:
    """Call `look` until it is true; return that value. Raises `Failed` with the last one."""
    end_s = time.monotonic() + patience_s
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end_s:
            raise Failed(
                f"timed out after {patience_s:.0f} s, waiting for: {what}; last seen: {seen!r}"
            )
        time.sleep(0.2)


def build_image(name: str) -> str:
    """Build one of the three images; return its tag, which depends on its content."""
    command = shlex.split(os.environ.get("FMQ_DOCKER_BUILD", "docker build --network host"))
    file = f"Dockerfile.{name}"
    built = run(*command, "-q", "-f", file, "-t", f"fmq/{name}:e2e", ".", patience_s=1800)
    tag = f"fmq/{name}:e2e-{built.split()[-1].removeprefix('sha256:')[:12]}"
    run("docker", "tag", f"fmq/{name}:e2e", tag)
    return tag


def image_like(tag: str) -> str:
    """Build another image of the same content, as a rebuild would; return its tag."""
    container = run("docker", "create", tag).strip()
    try:
        made = run("docker", "commit", "--change", "LABEL fmq.io/e2e=another", container)
    finally:
        run("docker", "rm", container)
    other = f"{tag.partition(':')[0]}:e2e-{made.strip().removeprefix('sha256:')[:12]}"
    run("docker", "tag", made.strip(), other)
    return other


def load_image(tag: str, cluster: str) -> None:
    """Load the image into every node of a kind cluster."""
    run("kind", "load", "docker-image", "--name", cluster, tag)


@contextmanager
def cordoned() -> Iterator[None]:
    """Let no node accept a new pod meanwhile."""
    nodes = [node["metadata"]["name"] for node in get("nodes")["items"]]
    kubectl("cordon", *nodes)
    try:
        yield
    finally:
        kubectl("uncordon", *nodes)
