"""Check the sizes of functions (70 lines), files (advice at 400, error at 700), test names (60)."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_FUNCTION_LINES = 70
ADVISED_FILE_LINES = 400
MAX_FILE_LINES = 700
MAX_TEST_NAME = 60


def main() -> int:
    """Print advice and errors; 1 if there is an error. Generated code is left out."""
    errors = []
    for path in _files():
        text = path.read_text()
        name = str(path.relative_to(ROOT))
        errors += _functions(name, text)
        lines = text.count("\n")
        if lines > MAX_FILE_LINES:
            errors.append(f"{name}: {lines} lines, at most {MAX_FILE_LINES}")
        elif lines > ADVISED_FILE_LINES:
            print(f"advice: {name} has {lines} lines; consider a split above {ADVISED_FILE_LINES}")
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


def _files() -> list[Path]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    paths = (ROOT / name for name in names.splitlines())
    return [p for p in paths if p.exists() and not p.stem.endswith("_pb2")]


def _functions(name: str, text: str) -> list[str]:
    errors = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                errors.append(
                    f"{name}:{node.lineno}: {node.name} has {lines} lines, "
                    f"at most {MAX_FUNCTION_LINES}"
                )
            if node.name.startswith("test_") and len(node.name) > MAX_TEST_NAME:
                errors.append(
                    f"{name}:{node.lineno}: {node.name} has {len(node.name)} characters, "
                    f"at most {MAX_TEST_NAME}"
                )
    return errors


if __name__ == "__main__":
    sys.exit(main())
