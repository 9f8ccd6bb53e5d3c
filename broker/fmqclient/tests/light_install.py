"""The wheel of this tree, installed into a new environment with its base dependencies alone.

No package index is needed: the dependencies are linked from the environment that runs the tests,
by the requirements that the wheel's metadata names.
"""

import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from re import match
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[3]


def build_wheel(folder: Path) -> Path:
    """Build the wheel as `pip install .` does, with the build backend of `pyproject.toml`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr}\n(no hatchling? `make install`)"
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> tuple[Path, set[str]]:
    """Return the Python of a new environment with the wheel, and the names of the dependencies."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with ZipFile(wheel) as archive:
        archive.extractall(packages)
    (metadata,) = packages.glob("fmq_broker-*.dist-info")
    wanted = list(base_requirements(PathDistribution(metadata)))
    linked: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name not in linked:
            linked.add(name)
            wanted += _link(distribution(name), packages)
    return folder / "bin" / "python", linked


def base_requirements(package: Distribution) -> Iterable[str]:
    """Yield the names of the packages that `package` needs without any extra."""
    for requirement in package.requires or ():
        name = match(r"[\w.-]+", requirement)
        assert name is not None, requirement
        if ";" not in requirement:  # after it: only for an extra, or only elsewhere
            yield name[0].lower()


def _link(package: Distribution, packages: Path) -> Iterable[str]:
    for file in package.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts:
            link = packages / file
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(str(package.locate_file(file))))
    return base_requirements(package)
