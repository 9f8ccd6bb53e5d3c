"""Counts the loop iterations of the product's code: the length of a turn without a clock.

`count_steps` compiles the loaded modules of the product again, with a call of a counter in the body
of each `for` and `while` and in each comprehension, and gives the functions the new code. The count
depends on the code and its data alone, so a seed stays reproducible, and costs some 40 ns for each
iteration; a trace function would cost twenty times as much. Work of a single call in C (a sort, a
copy of a dictionary) is not seen, and neither are functions made before the call by other means
than `def` and `lambda`.
"""

import ast
import builtins
import gc
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

PRODUCT: Final = ("fmqcore", "fmqport", "fmqwire", "fmqadapters", "fmqbroker", "fmqclient")
STEP_S: Final = 1e-6
"""Seconds that one iteration takes: some five lines of Python, and a machine of medium speed."""
_NAME: Final = "__fmq_count_step__"
_tick: Final = count(1).__next__  # never 0: a comprehension takes it for a condition

Key = tuple[str, str, int]


def read_steps() -> int:
    """Return a number that rises by one for each iteration, and for each call of this function."""
    return _tick()


def count_steps() -> int:
    """Count in all modules of the product that are loaded by now; return the changed functions.

    Call it before `forked`: the garbage collector does not list objects that it froze.
    """
    if hasattr(builtins, _NAME):
        return 0
    setattr(builtins, _NAME, _tick)
    codes = dict(_counting_codes())
    changed = 0
    for function in [each for each in gc.get_objects() if isinstance(each, FunctionType)]:
        old = function.__code__
        new = codes.get(_key(old))
        if new is not None and new.co_freevars == old.co_freevars:
            function.__code__ = new
            changed += 1
    assert changed, "no function of the product was found"
    return changed


def _counting_codes() -> Iterator[tuple[Key, CodeType]]:
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name.split(".")[0] in PRODUCT and ".tests" not in name and path:
            tree = ast.parse(Path(path).read_bytes(), path)
            changed = ast.fix_missing_locations(_Counting().visit(tree))
            yield from _within(compile(changed, path, "exec", dont_inherit=True))


def _within(code: CodeType) -> Iterator[tuple[Key, CodeType]]:
    """Yield the functions in compiled code; of two lambdas in one line neither."""
    found: dict[Key, CodeType | None] = {}
    for each in code.co_consts:
        if isinstance(each, CodeType):
            key = _key(each)
            found[key] = None if key in found else each
            yield from _within(each)
    yield from ((key, each) for key, each in found.items() if each is not None)


def _key(code: CodeType) -> Key:
    return code.co_filename, code.co_qualname, code.co_firstlineno


class _Counting(ast.NodeTransformer):
    """Adds the call of the counter to each loop."""

    def _loop(self, node: Any) -> Any:
        self.generic_visit(node)
        node.body.insert(0, ast.copy_location(ast.Expr(_call()), node.body[0]))
        return node

    visit_For = visit_AsyncFor = visit_While = _loop  # noqa: N815 - names of the base class

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        self.generic_visit(node)
        node.ifs.insert(0, ast.copy_location(_call(), node.iter))
        return node


def _call() -> ast.Call:
    return ast.Call(ast.Name(_NAME, ast.Load()), [], [])
