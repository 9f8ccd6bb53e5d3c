"""A Java that is found and dies while it starts: one sentence, 69, and its output in a file."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from fmqadapters.process.java import find_java
from fmqcore.errors import Unavailable
from fmqspark.spark.starting import _Ear, in_short, kept, listening
from fmqspark.tests.kit import write

pytestmark = [pytest.mark.timeout(600)]
TRACE = """\
Picked up JAVA_TOOL_OPTIONS: -Dx=y
WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" java.lang.UnsatisfiedLinkError: no net in java.library.path
	at java.base/java.lang.ClassLoader.loadLibrary(ClassLoader.java:2434)
	... 12 more
"""
FAKE = """#!/bin/sh
case "$*" in
*-version*) echo 'openjdk version "21.0.1"' >&2; exit 0;;
*--list-modules*) {modules};;
esac
{dies}
exit 1
"""


def java(folder: Path, dies: str, modules: str = "echo jdk.incubator.vector@21; exit 0") -> Path:
    """Write a home with a Java that prints a version."""
    file = folder / "home" / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(FAKE.format(modules=modules, dies=dies))
    file.chmod(0o755)
    return file


def check(tmp_path: Path, **environment: str) -> tuple[int, str, str]:
    """Run the command in a new process: Java writes past Python's streams."""
    a = write(tmp_path / "a")
    (tmp_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "fmqspark", "check", a, "--engine", "spark", "--workers", "1"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path / "tmp")}
        | environment,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.spark
@pytest.mark.parametrize("stream", [1, 2])
def test_a_java_that_dies_as_it_starts_is_one_sentence(tmp_path: Path, stream: int) -> None:
    (tmp_path / "words").write_text(TRACE)
    fake = java(tmp_path, f"cat {tmp_path}/words >&{stream}")
    code, out, err = check(tmp_path, JAVA_HOME=str(fake.parent.parent))
    assert (code, out, err.count("\n")) == (69, "", 1), err
    assert err.startswith(
        f'fmq job: Spark did not start: {fake}: Exception in thread "main" '
        "java.lang.UnsatisfiedLinkError: no net in java.library.path; look at JAVA_HOME, "
    )
    assert "--engine pool" in err
    log = re.search(r"its whole output: (\S+)\n", err)
    assert log is not None
    assert TRACE in Path(log.group(1)).read_text()
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == [Path(log.group(1)).name]


@pytest.mark.spark
def test_a_java_that_does_not_run_at_all(tmp_path: Path) -> None:
    fake = java(tmp_path, "exit 1", modules=f"cat {tmp_path}/words; exit 1")
    (tmp_path / "words").write_text(
        "Error occurred during initialization of VM\nToo small maximum heap\n"
    )
    code, out, err = check(tmp_path, JAVA_HOME=str(fake.parent.parent))
    assert (code, out, err.count("\n")) == (69, "", 1), err
    assert err.startswith(f"fmq job: {fake} does not run: Too small maximum heap; look at JAVA_HO")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SPARK_DRIVER_MEMORY": "8m"}, "{java}: "),
        ({"SPARK_DRIVER_MEMORY": "lots"}, "{java}: Invalid maximum heap size: -Xmxlots; look at"),
        ({"SPARK_HOME": "/nowhere"}, "/nowhere/./bin/spark-submit: No such file or directory"),
    ],
)
def test_a_real_java_that_cannot_start_spark(
    tmp_path: Path, environment: dict[str, str], message: str
) -> None:
    code, out, err = check(tmp_path, **environment)
    assert (code, out, err.count("\n")) == (69, "", 1), err
    assert err.startswith("fmq job: Spark did not start: " + message.format(java=find_java()))
    assert "\tat " not in err


@pytest.mark.spark
def test_successful_start_prints_nothing(tmp_path: Path) -> None:
    code, out, err = check(tmp_path)
    assert (code, err) == (0, "")
    assert out.endswith("verdict (standard): clean\n")


@pytest.mark.spark
def test_a_start_that_is_interrupted_leaves_no_java() -> None:
    """As by Ctrl-C, which every process of the terminal gets."""
    code = "from fmqspark.spark.session import open_session\nwith open_session(1): pass"
    job = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    started: list[psutil.Process] = []
    try:
        while not started:
            assert job.poll() is None, "it was to be interrupted"
            time.sleep(0.02)
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(job.pid).children(recursive=True)
                started = [p for p in children if "org.apache.spark.deploy" in str(p.cmdline())]
        os.killpg(job.pid, signal.SIGINT)
        _, output = job.communicate(timeout=60)
        assert output.count(b"Traceback") == 1, output.decode()  # the script's own
        assert psutil.wait_procs(started, timeout=20)[1] == []
    finally:
        for process in started:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        job.kill()
        job.wait()


@pytest.mark.spark
def test_a_master_that_does_not_take_it_is_named() -> None:
    from py4j.protocol import Py4JJavaError

    from fmqspark.spark import session

    class Builder:
        def getOrCreate(self) -> None:  # noqa: N802  # Spark's name
            stopped = SimpleNamespace(getMessage=lambda: "All masters are unresponsive!\nat x")
            stopped._target_id, stopped._gateway_client = "o1", None
            raise Py4JJavaError("", stopped)

    for master, message in (("", ""), ("spark://a:7077", "; look whether spark://a:7077 is there")):
        with pytest.raises(Unavailable) as raised:
            session._started(Builder(), Path("java"), master)  # type: ignore[arg-type]
        assert str(raised.value).startswith(
            f"Spark did not start: All masters are unresponsive!{message}"
        )
        assert ("look" in str(raised.value)) == bool(master)


TALKS = "echo greeting >&2; echo data; read _; echo later >&2; echo more"


@pytest.mark.parametrize("failed", [False, True])
def test_output_after_the_start_goes_to_its_usual_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], failed: bool
) -> None:
    with listening() as start:
        talker = subprocess.Popen(
            ["sh", "-c", f"{TALKS}; touch {tmp_path}/done"], stdin=subprocess.PIPE, text=True
        )
        while "data" not in start.so_far():
            assert talker.poll() is None
        start.failed = failed
    talker.communicate("\n")
    words = start.words()
    captured = capfd.readouterr()
    if failed:
        assert sorted(words.split()) == ["data", "greeting", "later", "more"]
        assert captured == ("", "")
    else:
        assert captured == ("data\nmore\n", "later\n")


def test_start_output_read_late_is_still_suppressed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    go, ears, listen = threading.Event(), [], _Ear._listen

    def late(ear: _Ear) -> None:
        ears.append(ear)
        go.wait()
        listen(ear)

    monkeypatch.setattr(_Ear, "_listen", late)
    with listening():
        os.write(2, b"greeting\n")
    go.set()
    for ear in ears:
        ear.heard(10)
    os.write(2, b"later\n")
    assert capfd.readouterr() == ("", "later\n")


def test_most_informative_line_is_selected() -> None:
    assert in_short(TRACE).startswith('Exception in thread "main" java.lang.Unsatis')
    assert in_short("NOTE: Picked up\n\tat x.y(Z.java)\n\n") == ""
    assert in_short("Error: A JNI error has occurred\n  wrong  \nmore") == "wrong"
    assert kept(" \n") == ""


@pytest.mark.spark
def test_source_error_is_shown_as_one_sentence(tmp_path: Path) -> None:
    """In a session of `open_session`; another session's UDFs show what their owner wants."""
    from fmqspark.spark.session import open_session
    from fmqspark.spark.source import register

    with open_session(1) as spark:
        register(spark)
        journal = spark.read.format("fmq").load(str(write(tmp_path / "data")))
        assert journal.columns
        wrong = spark.read.format("fmq").option("topic", "nowhere").load(str(tmp_path / "data"))
        with pytest.raises(Exception, match="no topic 'nowhere' in this journal") as caught:
            wrong.count()
    assert "Traceback" not in str(caught.value)
