"""Check that functions stay within 70 lines and files within 400; generated code excepted."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_FUNCTION = 70
MAX_FILE = 400


def main() -> int:
    """Print what is too long; 1 if anything is."""
    found = [line for path in _files() for line in _too_long(path)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def _files() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = (ROOT / name for name in names.splitlines())
    return [p for p in paths if p.exists() and not p.stem.endswith("_pb2")]


def _too_long(path: Path) -> list[str]:
    text = path.read_text()
    name = path.relative_to(ROOT)
    lines = text.count("\n")
    found = [f"{name}: {lines} lines, at most {MAX_FILE}"] if lines > MAX_FILE else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION:
                found.append(
                    f"{name}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION}"
                )
    return found


if __name__ == "__main__":
    sys.exit(main())
