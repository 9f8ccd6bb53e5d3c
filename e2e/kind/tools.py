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
    """A program's own words."""


def missing() -> list[str]:
    """What is not on the PATH."""
    return [name for name in NEEDED if shutil.which(name) is None]


def run(*command: str, given: str = "", patience_s: float = 600) -> str:
    """Run a program; its standard output. Raises `Failed`."""
    done = subprocess.run(
        command, input=given or None, capture_output=True, text=True, timeout=patience_s, cwd=ROOT
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-3000:]
        raise Failed(f"{shlex.join(command)[:300]}: status {done.returncode}: {said}")
    return done.stdout


def kubectl(*arguments: str, given: str = "", patience_s: float = 300) -> str:
    """`kubectl ...`."""
    return run("kubectl", *arguments, given=given, patience_s=patience_s)


def get(*what: str) -> Any:
    """`kubectl get ... -o json`; None if it is not there."""
    try:
        return json.loads(kubectl("get", *what, "-o", "json"))
    except Failed as error:
        if "NotFound" in str(error):
            return None
        raise


def apply(manifest: Any) -> None:
    """`kubectl apply` of one object."""
    kubectl("apply", "-f", "-", given=json.dumps(manifest))


def until(look: Callable[[], T], what: str, patience_s: float = 180) -> T:
    """Look again and again until it is true; that value. Raises `Failed` with the last look."""
    end_s = time.monotonic() + patience_s
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > end_s:
            raise Failed(f"not within {patience_s:.0f} s: {what}; seen last: {seen!r}")
        time.sleep(0.2)


def build_image(name: str) -> str:
    """Build one of the three images; its tag, which is of what is in it."""
    command = shlex.split(os.environ.get("FMQ_DOCKER_BUILD", "docker build --network host"))
    file = f"Dockerfile.{name}"
    built = run(*command, "-q", "-f", file, "-t", f"fmq/{name}:e2e", ".", patience_s=1800)
    tag = f"fmq/{name}:e2e-{built.split()[-1].removeprefix('sha256:')[:12]}"
    run("docker", "tag", f"fmq/{name}:e2e", tag)
    return tag


def image_like(tag: str) -> str:
    """Another image with the same in it, as a rebuild would make; its tag."""
    container = run("docker", "create", tag).strip()
    try:
        made = run("docker", "commit", "--change", "LABEL fmq.io/e2e=another", container)
    finally:
        run("docker", "rm", container)
    other = f"{tag.partition(':')[0]}:e2e-{made.strip().removeprefix('sha256:')[:12]}"
    run("docker", "tag", made.strip(), other)
    return other


def load_image(tag: str, cluster: str) -> None:
    """Give it to every node of a kind cluster."""
    run("kind", "load", "docker-image", "--name", cluster, tag)


@contextmanager
def cordoned() -> Iterator[None]:
    """No new pod finds a node meanwhile."""
    nodes = [node["metadata"]["name"] for node in get("nodes")["items"]]
    kubectl("cordon", *nodes)
    try:
        yield
    finally:
        kubectl("uncordon", *nodes)
