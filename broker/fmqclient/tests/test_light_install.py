"""The library as a program gets it: the wheel with its base dependencies and nothing else."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from zipfile import ZipFile

import pytest

import fmqclient
from fmqclient.tests.light_install import ROOT, build_wheel, install
from fmqclient.tests.public_surface import members
from fmqcore.policy import AckPolicy, HowMany
from fmqdev.cluster import DevCluster
from fmqdev.cluster_plan import ClusterOptions

EXAMPLES = ROOT / "examples"
PROGRAM = Path(__file__).with_name("typed_program.py")
ENVIRONMENT = {n: value for n, value in os.environ.items() if n not in ("PYTHONPATH", "MYPYPATH")}
MISTAKES = """\
from fmqclient import nonsense
from fmqclient import sync

client = sync.connect("fmq://h:1", timeout=1)
client.producer(ack="all")
client.producer().send("t", "text")
client.consumer("t")
client.admin().create_topic("t", queue=4)
client.admin().unknown()
client.consumer("t", group="g").fetch(1)[0].nack(5)
client.consumer("t", group="g").fetch(1)[0].unknown
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the light environment."""
    return install(wheel, tmp_path_factory.mktemp("light") / "venv")[0]


@pytest.fixture
async def brokers(tmp_path: Path, zookeeper: str) -> AsyncIterator[str]:
    """The address of a real broker."""
    alone = AckPolicy(how_many=HowMany.NONE)
    options = ClusterOptions(groups=1, slaves=0, policy=alone, zookeeper=zookeeper)
    async with DevCluster(tmp_path / "dev", options) as running:
        yield running.url


def test_wheel_has_the_packages_and_types_but_no_tests(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert [name for name in names if "tests" in name.split("/")] == []
    assert [name for name in names if "conftest" in name or "/test_" in name] == []
    assert {"fmqclient/py.typed", "fmqcore/py.typed", "fmqproto/py.typed"} <= set(names)
    for package in ("fmqclient/sync", "fmqbroker/app", "fmqcli", "fmqoperator", "fmqspark", "fmq"):
        assert f"{package}/__init__.py" in names


def test_light_install_has_four_packages(wheel: Path, tmp_path: Path) -> None:
    """A package more is a reason to ask why; `docs/reference/client.md` names them."""
    _, packages = install(wheel, tmp_path / "venv")
    assert packages == {"google-crc32c", "grpcio", "protobuf", "typing-extensions"}


def test_import_loads_no_grpc_no_admin_and_no_sync(python: Path) -> None:
    """They cost most of the time that a program needs to start, and many programs use none."""
    loaded = set(_run(python, "import sys, fmqclient; print(*sys.modules)").split())
    later = {"grpc", "fmqadapters.grpc", "fmqclient.admin.client", "fmqclient.sync"}
    assert not loaded & later
    assert "fmqclient.client" in loaded


def test_light_install_explains_a_missing_command(python: Path) -> None:
    done = subprocess.run(
        [python, "-m", "fmq"], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 69
    assert "pip install 'fmq-broker[cli]'" in done.stderr


def test_strict_types_of_the_installed_client(python: Path, tmp_path: Path) -> None:
    """Outside of the tree: by the wheel's own types. Each mistake is found, and no other."""
    files = [shutil.copy(path, tmp_path) for path in (PROGRAM, *sorted(EXAMPLES.glob("*.py")))]
    mistakes = tmp_path / "mistakes.py"
    mistakes.write_text(MISTAKES)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary"]
    command += ["--python-executable", str(python), "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run(
        [*command, *files, mistakes.name],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(\S+?):(\d+): error", done.stdout, re.MULTILINE)
    lines = {n for n, text in enumerate(MISTAKES.splitlines(), 1) if text and n != 2}
    assert {(file, int(line)) for file, line in found} == {("mistakes.py", n) for n in lines}, (
        done.stdout + done.stderr
    )


def test_typed_program_uses_each_public_member() -> None:
    used = set(re.findall(r"\.(\w+)", PROGRAM.read_text()))
    for module in (fmqclient, fmqclient.sync):
        names = ("Admin", "Client", "Consumer", "Message", "OrderedAdmin", "OrderedProducer")
        for name in (*names, "Producer"):
            public = {member for member in members(getattr(module, name)) if member[0] != "_"}
            assert public <= used, name


@pytest.mark.processes
@pytest.mark.timeout(180)
async def test_examples_do_what_they_say(python: Path, brokers: str) -> None:
    """One story, as starting a cluster costs more than all of the programs."""
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        *("produce.py", "consume.py", "worker.py", "blocking.py", "ordered.py")
    }
    produced = await _example(python, brokers, "produce.py")
    assert [line.partition(":")[0] for line in produced] == [f"order {n}" for n in range(10)]

    consumed = await _example(python, brokers, "consume.py", until=10)
    numbers = [int(line.split()[1]) for line in consumed]
    assert sorted(numbers) == list(range(10))
    for customer in range(3):
        own = [number for number in numbers if number % 3 == customer]
        assert own == sorted(own), "records of one key keep their order"

    worked = await _example(python, brokers, "worker.py", until=9 + 3 + 1)
    assert sum(line.endswith(": done") for line in worked) == 9
    failed = [line.partition(":")[0] for line in worked if "failed:" in line]
    assert failed == [f"attempt {n} failed" for n in (1, 2, 3)]
    assert "set aside in orders-failed" in worked

    blocking = await _example(python, brokers, "blocking.py")
    assert sorted(line.partition(" ")[2] for line in blocking) == [
        f"invoice {number}" for number in range(10)
    ]
    await _check_progress(brokers)


async def _check_progress(brokers: str) -> None:
    """Every group has acknowledged all that it read; the failed order is where it was put."""
    async with fmqclient.connect(brokers) as client:
        groups = {(info.group, info.topic): info.lag for info in await client.admin().groups()}
        assert groups == {
            ("archive", "invoices"): 0,
            ("billing", "orders"): 0,
            ("worker", "orders"): 0,
        }
        async with client.consumer("orders-failed", group="check") as consumer:
            (message,) = await consumer.fetch(timeout=20)
            assert b'"id": 0' in message.value
            assert message.headers == {"error": b"an order needs an amount"}


async def _example(python: Path, brokers: str, name: str, until: int = 0) -> list[str]:
    """Run an example; with `until`, press Ctrl-C after so many lines."""
    process = await asyncio.create_subprocess_exec(
        *(python, "-W", "default", EXAMPLES / name),
        env={**ENVIRONMENT, "FMQ_BROKERS": brokers},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    lines = []
    try:
        async with asyncio.timeout(60):
            while line := await process.stdout.readline():
                lines.append(line.decode().rstrip("\n"))
                if len(lines) == until:
                    process.send_signal(signal.SIGINT)
            _, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        _, errors = await process.communicate()
        pytest.fail(f"{name} printed {lines} and went on; {errors.decode()}")
    assert (process.returncode, errors.decode()) == (0, ""), name
    return lines


def _run(python: Path, script: str) -> str:
    done = subprocess.run(
        [python, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    return done.stdout
