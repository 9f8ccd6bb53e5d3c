"""The project's own checks find what they must, and nothing else."""

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parent.parent


def tool(name: str, root: Path) -> ModuleType:
    """Return the tool, pointed at another tree."""
    spec = importlib.util.spec_from_file_location(f"tool_{name}", TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    vars(module)["ROOT"] = root
    return module


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def a_function(lines: int) -> str:
    return "def f():\n" + "    x = 1\n" * (lines - 1)


def test_sizes_within_limits_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    write(tmp_path, "good.py", a_function(70) + "\n" * 330)
    write(tmp_path, "made_pb2.py", a_function(800))
    assert tool("check_sizes", tmp_path).main() == 0
    assert capsys.readouterr() == ("", "")


def test_a_long_file_is_advised_to_be_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    write(tmp_path, "long.py", "\n" * 700)
    assert tool("check_sizes", tmp_path).main() == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("advice: long.py has 700 lines; consider a split above 400\n", "")


def test_sizes_above_limits_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    write(tmp_path, "function.py", "\n" + a_function(71))
    write(tmp_path, "file.py", "\n" * 701)
    write(tmp_path, "names.py", f"def test_{'a' * 55}(): ...\ndef test_{'a' * 56}(): ...\n")
    assert tool("check_sizes", tmp_path).main() == 1
    assert capsys.readouterr().err.splitlines() == [
        "file.py: 701 lines, at most 700",
        "function.py:2: f has 71 lines, at most 70",
        f"names.py:2: test_{'a' * 56} has 61 characters, at most 60",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "open('x')",
        "asyncio.to_thread(f)",
        "loop.run_in_executor(None, f)",
        "datetime.now()",
        "asyncio.wait_for(f(), 1)",
    ],
)
@pytest.mark.parametrize("where", ["fmqbroker/a.py", "fmqclient/a.py", "fmqcore/x/a.py"])
def test_the_shell_may_not_go_past_the_ports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str, line: str
) -> None:
    write(tmp_path, f"broker/{where}", f"\n{line}\n")
    assert tool("check_ports", tmp_path).main() == 1
    assert capsys.readouterr().err.startswith(f"broker/{where}:2: {line.partition('(')[0]}()")


@pytest.mark.parametrize(
    "where",
    ["fmqport/a.py", "fmqcli/a.py", "fmqdev/a.py", "fmqbroker/tests/a.py"],
)
def test_adapters_and_tests_may_bypass_ports_except_wait_for(tmp_path: Path, where: str) -> None:
    check_ports = tool("check_ports", tmp_path)
    write(tmp_path, f"broker/{where}", "open('x')\nloop.run_in_executor(None, f)\n")
    assert check_ports.main() == 0
    write(tmp_path, f"broker/{where}", "await_ = asyncio.wait_for(f(), 1)\n")
    assert check_ports.main() == 1


def test_harmless_calls_are_let_alone(tmp_path: Path) -> None:
    lines = "disk.open('x')\nself.input()\nasyncio.timeout(1)\ndatetime.fromisoformat('x')\n"
    write(tmp_path, "broker/fmqbroker/a.py", lines)
    assert tool("check_ports", tmp_path).main() == 0


def test_refused_words_are_counted_in_every_kind_of_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    write(tmp_path, "a.py", '"""What was told."""\n\nis_told = 1  # Nobody foretold it.\n')
    write(tmp_path, "b.md", "The end\nof  it.\n")
    write(tmp_path, "CHANGELOG.md", "told\n")
    words = tool("check_words", tmp_path)
    vars(words)["MAX_HITS"] = 4
    assert words.main([]) == 0
    vars(words)["MAX_HITS"] = 3
    assert words.main(["--list"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[1:5] == [
        "a.py:1: told: reported, returned, logged",
        "a.py:3: told: reported, returned, logged",
        "a.py:3: nobody: no broker, no client, no reader",
        "b.md:2: of it: its, or name the thing",
    ]
    assert err.startswith("1 refused words too many")
