"""Shell completion: the scripts that `fmq` prints and installs, run by a real bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fmqcli.main import _ELSEWHERE

BASH = shutil.which("bash")
pytestmark = [pytest.mark.processes, pytest.mark.skipif(BASH is None, reason="needs bash")]
ASK = """
eval "$(fmq --show-completion)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_fmq_completion fmq
printf '%s\\n' "${COMPREPLY[@]}"
"""


def shell(home: Path, script: str, *words: str, name: str = "bash", **more: str) -> list[str]:
    """Return the lines a shell prints; `fmq` is on its path."""
    assert BASH is not None
    commands = home / "bin"
    commands.mkdir(exist_ok=True)
    fmq = commands / "fmq"
    fmq.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from fmq import main; main()" "$@"\n')
    fmq.chmod(0o755)
    program = shutil.copy(BASH, commands / name)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [program, "--norc", "-c", script, name, *words],
        env={**os.environ, "HOME": str(home), "PATH": path, **more},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def ask(home: Path, *words: str) -> set[str]:
    """Return bash's completions for the last of these words, which follow `fmq`."""
    return set(shell(home, ASK, "fmq", *words))


def test_bash_completes_commands(tmp_path: Path) -> None:
    assert ask(tmp_path, "") >= {"produce", "consume", "topic", "version", *_ELSEWHERE}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("topic", "cr"), {"create"}),
        (("dev", "st"), {"status", "stop", "start"}),
        (("--debug", "dev", "k"), {"kill"}),
        (("demo", "--m"), {"--messages"}),
        (("status", "-o", ""), {"table", "json"}),
    ],
)
def test_bash_completes_inside_a_command(
    tmp_path: Path, words: tuple[str, ...], offered: set[str]
) -> None:
    assert ask(tmp_path, *words) == offered


def test_installed_completion_is_loaded_by_bashrc(tmp_path: Path) -> None:
    out = shell(tmp_path, "fmq --install-completion; source ~/.bashrc; complete -p fmq")
    assert out[0].startswith("bash completion installed in")
    assert out[-1].endswith(" fmq")


def test_zsh_gets_its_script_and_its_answers(tmp_path: Path) -> None:
    script = shell(tmp_path, "fmq --show-completion; true", name="zsh")
    assert script[0] == "#compdef fmq"
    line = {"_TYPER_COMPLETE_ARGS": "fmq dev ki", "_FMQ_COMPLETE": "complete_zsh"}
    (answer,) = shell(tmp_path, "fmq; true", **line)
    assert '"kill":"Kill a broker' in answer


def test_command_that_is_not_installed_completes_silently(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    for package in ("psutil", "kazoo"):
        (hidden / package).mkdir(parents=True)
        (hidden / package / "__init__.py").write_text(
            f"raise ModuleNotFoundError(name={package!r})"
        )
    line = {"COMP_WORDS": "fmq dev --", "COMP_CWORD": "2", "_FMQ_COMPLETE": "complete_bash"}
    out = shell(tmp_path, "fmq; true", PYTHONPATH=str(hidden), **line)
    assert out == ["--help"]
