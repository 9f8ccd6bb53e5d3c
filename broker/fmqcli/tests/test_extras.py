"""Without an extra installed, each command names the missing one, without a stack trace.

The extra's packages are hidden from the import system; everything else is real.
"""

import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from fmqcore.extras import _EXTRAS, DISTRIBUTION
from fmqcore.version import VERSION

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAIN = {"fmq": "from fmq import main", "fmq-operator": "from fmqoperator.__main__ import main"}
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
sys.argv = {argv!r}
{main}
main()
"""


def run(line: str, *installed: str) -> subprocess.CompletedProcess[str]:
    """Run the command with only these extras installed."""
    hidden = {p for extra, ps in _EXTRAS.items() if extra not in installed for p in ps}
    argv = line.split()
    script = HIDE.format(hidden=hidden, argv=argv, main=MAIN[argv[0]])
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("line", "installed", "extra"),
    [
        ("fmq", (), "cli"),
        ("fmq version", (), "cli"),
        ("fmq-operator", (), "operator"),
        ("fmq-operator", ("cli",), "operator"),
        ("fmq-operator", ("cli", "broker"), "operator"),
        ("fmq dev up", ("cli",), "demo"),
        ("fmq dev status", ("cli",), "demo"),
        ("fmq demo", ("cli",), "demo"),
        ("fmq cluster show -z h:1 -c c", ("cli",), "broker"),
        ("fmq failover g1 --to b -z h:1 -c c", ("cli",), "broker"),
        ("fmq broker run", ("cli",), "broker"),
        ("fmq broker permit b READ -z h:1 -c c", ("cli",), "broker"),
        ("fmq job archive x --out y", ("cli",), "spark"),
        ("fmq job check . --engine spark", ("cli",), "spark"),
        ("fmq job replay x --topic t", ("cli", "broker"), "spark"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    line: str, installed: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    done = run(line.replace(" y", f" {tmp_path}"), *installed)
    assert f"pip install '{DISTRIBUTION}[{extra}]'" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert "this is a bug" not in done.stderr
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (69, 1, "")


@pytest.mark.parametrize(
    "line",
    [
        "fmq version",
        "fmq --help",
        "fmq topic --help",
        "fmq journal --help",
        "fmq broker settings",
        "fmq broker --help",
        "fmq cluster --help",
    ],
)
def test_the_client_alone_is_enough_for_its_commands(line: str) -> None:
    done = run(line, "cli")
    assert (done.returncode, done.stderr) == (0, "")


def test_library_without_its_extra_reports_it() -> None:
    script = HIDE.format(
        hidden={"grpc"}, argv=["x"], main="from fmqadapters.grpc import GrpcTransport"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].endswith(f"not installed: pip install {DISTRIBUTION}")


def test_each_package_of_an_extra_is_known() -> None:
    """A requirement added later is named, too, when it is missing."""
    modules: dict[str, set[str]] = {}
    for module, names in packages_distributions().items():
        for name in names:
            modules.setdefault(re.sub(r"[-_.]+", "-", name).lower(), set()).add(module)
    for extra, packages in _EXTRAS.items():
        for requirement in PROJECT["optional-dependencies"][extra]:
            name = re.split(r"[\[<>=]", requirement)[0].lower()
            if name != DISTRIBUTION and name in modules:  # installed here
                known = {p for ps in _EXTRAS.values() for p in ps}
                assert modules[name] & known, f"{extra}: {requirement}"
        assert packages


def test_the_name_of_another_project_is_nowhere() -> None:
    """`fmq` on the public index is another project."""
    assert PROJECT["name"] == DISTRIBUTION
    own = [r for rs in PROJECT["optional-dependencies"].values() for r in rs if r.startswith("fmq")]
    assert all(r.startswith(f"{DISTRIBUTION}[") for r in own)
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        if path.name != "CHANGELOG.md":
            assert not re.search(r"pip install '?fmq(\[|'|$)", path.read_text()), path


def test_documents_name_extras_that_exist() -> None:
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        if path.name != "CHANGELOG.md":
            for names in re.findall(
                rf"pip install '?(?:\.|{DISTRIBUTION})\[([\w,]+)\]", path.read_text()
            ):
                assert set(names.split(",")) <= set(PROJECT["optional-dependencies"]), path


def test_an_old_python_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The build runs this file before an installer looks for packages."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))
    with pytest.raises(SystemExit, match=r"^FMQ needs Python 3\.11 or later, this is 3\.10 "):
        runpy.run_path(str(ROOT / "broker" / "fmqcore" / "version.py"))


def test_the_build_takes_the_version_from_there() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    hatch = tomllib.loads(text)["tool"]["hatch"]["version"]
    assert hatch == {"source": "code", "path": "broker/fmqcore/version.py", "expression": "VERSION"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
