"""The public surface of `fmqclient` as text: names, signatures, fields. Kept in a snapshot file.

    python -m fmqclient.tests.public_surface      write the snapshot after an intended change

Read from the sources, so that the text is the same with each version of Python.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

SNAPSHOT = Path(__file__).with_name("public_surface.txt")
MODULES = ("fmqclient", "fmqclient.sync")


def surface() -> str:
    """Return the public names of each module, one line per name and member."""
    lines: list[str] = []
    for name in MODULES:
        lines += [f"# {name}", *_module(importlib.import_module(name)), ""]
    return "\n".join(lines)


def members(cls: type) -> dict[str, str]:
    """Return the public members of a class, its own and inherited ones, as source text."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] in ("fmqclient", "fmqcore"):
            node = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
            assert isinstance(node, ast.ClassDef)
            for name, text in _members(node):
                if not (text == name and name in found):  # an attribute that has its annotation
                    found[name] = text
    return dict(sorted(found.items()))


def _module(module: ModuleType) -> Iterator[str]:
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if isinstance(value, FunctionType):
            node = ast.parse(inspect.getsource(value)).body[0]
            assert isinstance(node, ast.FunctionDef)
            yield _function(node)
        elif isinstance(value, type):
            yield f"class {name}({', '.join(base.__name__ for base in value.__bases__)})"
            yield from (f"    {text}" for text in members(value).values())
        elif isinstance(value, ModuleType):
            yield f"module {name}"
        else:
            yield f"{name} = {value}"


def _members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for part in node.body:
        match part:
            case ast.FunctionDef(name="__init__"):
                yield from _attributes(part)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _is_public(part.name):
                yield part.name, _function(part)
            case ast.AnnAssign(target=ast.Name(id=name)) if _is_public(name):
                yield name, ast.unparse(part)
            case ast.Assign(targets=[ast.Name(id=name)]) if _is_public(name):
                yield name, ast.unparse(part)


def _attributes(init: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    for part in ast.walk(init):
        if (
            isinstance(part, ast.Attribute)
            and isinstance(part.ctx, ast.Store)
            and _is_public(part.attr)
        ):
            yield part.attr, part.attr


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if any(isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list):
        return f"{node.name}: {_type(node.returns)}"
    kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{kind} {node.name}({ast.unparse(node.args)}) -> {_type(node.returns)}"


def _type(node: ast.expr | None) -> str:
    """Return the text of an annotation, without the quotes of a forward reference."""
    assert node is not None, "every public function has its type"
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name in ("__enter__", "__aenter__", "__iter__", "__aiter__")


if __name__ == "__main__":
    SNAPSHOT.write_text(surface())
