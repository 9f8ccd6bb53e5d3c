"""Prints what an extra of this project needs, one requirement a line, without the project itself.

For image builds: a layer with these alone stays while only our own code changes.
Usage: python requirements_of.py pyproject.toml EXTRA
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

OWN = re.compile(r"^fmq-broker\[(.+)\]$")


def requirements(project: dict[str, Any], extra: str) -> list[str]:
    """Of the project and its extra, and of the extras that the extra names."""
    found = list(project["dependencies"])
    wanted, seen = [extra], set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        for requirement in project["optional-dependencies"][name]:
            own = OWN.match(requirement)
            if own:
                wanted += [part.strip() for part in own.group(1).split(",")]
            elif requirement not in found:
                found.append(requirement)
    return found


if __name__ == "__main__":
    _, path, extra = sys.argv
    print("\n".join(requirements(tomllib.loads(Path(path).read_text())["project"], extra)))
