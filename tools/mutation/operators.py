"""Finds the places of a source file where a small mistake can be planted.

A mutant replaces one piece of the text; the rest of the file is unchanged. Text that cannot change
a decision is skipped: annotations, decorators, error and log messages, and asserts (they detect
our own mistakes, behind a guard).
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random
from typing import Final

_BOUNDARY: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is",
    ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_SIGNS: Final[dict[type[ast.cmpop], str]] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_SWAPPED_NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_ARITHMETIC: Final[dict[type[ast.operator], ast.operator]] = {
    ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.BitOr: ast.BitAnd(), ast.BitAnd: ast.BitOr(),
}  # fmt: skip
_LOGGING: Final = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_PRINTED: Final = {"__repr__", "__str__"}
SECONDARY: Final = ("constant", "arithmetic", "statement")
"""Kinds that a sample takes after the guards."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake; `start` and `end` are byte offsets in the file."""

    file: str
    function: str  # with its class, e.g. "Lease.renew"; "" at module level
    line: int
    kind: str
    old: str
    new: str
    start: int
    end: int
    ordinal: int = 0  # counts equal mutants of one function

    @property
    def key(self) -> str:
        """Identifies the mutant, independent of line numbers."""
        text = "\0".join((self.file, self.function, self.kind, self.old, self.new))
        return sha256(f"{text}\0{self.ordinal}".encode()).hexdigest()[:10]

    def apply(self, source: bytes) -> bytes:
        """Return the source with the mistake."""
        return source[: self.start] + self.new.encode() + source[self.end :]


def mutants(file: str, source: bytes, optional: frozenset[str] = frozenset()) -> list[Mutant]:
    """All mutants of a file that compile; `optional` names fields with defaults: "Class.field"."""
    finder = _Finder(file, source, optional)
    found = list(finder.statements(ast.parse(source).body, ""))
    counts: dict[str, int] = {}
    numbered = []
    for each in found:
        ordinal = counts[each.key] = counts.get(each.key, -1) + 1
        if _is_a_program(each.apply(source)):
            numbered.append(replace(each, ordinal=ordinal))
    return numbered


def sample(found: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Choose `count` mutants: each function once before any function twice, guards first.

    The rank of a mutant depends only on itself and the seed, so that a change elsewhere in the
    file hardly changes the sample.
    """

    def score(each: Mutant) -> float:
        return Random(f"{seed}:{each.key}").random() + (each.kind in SECONDARY)

    ranked = []
    seen: dict[str, int] = {}
    for each in sorted(found, key=score):
        rank = seen[each.function] = seen.get(each.function, -1) + 1
        ranked.append((rank, score(each), each))
    return [each for _, _, each in sorted(ranked, key=lambda r: r[:2])[:count]]


def optional_fields(source: bytes) -> frozenset[str]:
    """The fields with a default of all classes in the source, as "Class.field"."""
    return frozenset(
        f"{node.name}.{field.target.id}"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and field.value is not None
    )


def _is_a_program(text: bytes) -> bool:
    try:
        compile(text, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class _Finder:
    """Walks the syntax tree of one file."""

    def __init__(self, file: str, source: bytes, optional: frozenset[str]) -> None:
        self._file = file
        self._source = source
        self._optional = optional
        self._begins = [0]
        for line in source.splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))

    def statements(self, body: list[ast.stmt], function: str) -> Iterator[Mutant]:
        """Yield the mutants of some statements and of everything inside them."""
        for node in body:
            yield from self._statement(node, function)

    def _statement(self, node: ast.stmt, function: str) -> Iterator[Mutant]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if node.name not in _PRINTED:
                    yield from self.statements(node.body, f"{function}.{node.name}".lstrip("."))
                return
            case ast.Assert() | ast.Raise() | ast.Import() | ast.ImportFrom():
                return
            case ast.Expr(value=value):
                if isinstance(value, ast.Constant) or _logs(value):
                    return
                if function:
                    yield self._of("statement", node, "pass", function)
            case ast.AugAssign() if function:
                yield self._of("statement", node, "pass", function)
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if function:
                if not function.endswith("__init__"):
                    yield self._of("statement", node, "pass", function)
            case ast.If():
                yield from self._if(node, function)
            case ast.While(test=test) if not isinstance(test, ast.Constant):
                yield self._of("negated", test, f"not ({ast.unparse(test)})", function)
            case _:
                pass
        yield from self._parts(node, function)

    def _if(self, node: ast.If, function: str) -> Iterator[Mutant]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        yield self._of("negated", node.test, f"not ({ast.unparse(node.test)})", function)
        leaves = isinstance(node.body[-1], ast.Raise | ast.Return | ast.Continue | ast.Break)
        if leaves and not node.orelse:
            yield self._of("guard removed", node.test, "False", function)

    def _parts(self, node: ast.AST, function: str) -> Iterator[Mutant]:
        """The mutants of the parts of a node, without annotations and decorators."""
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_comment"):
                continue
            for part in value if isinstance(value, list) else [value]:
                match part:
                    case ast.stmt():
                        yield from self._statement(part, function)
                    case ast.expr():
                        yield from self._expression(part, function)
                    case ast.AST():
                        yield from self._parts(part, function)

    def _expression(self, node: ast.expr, function: str) -> Iterator[Mutant]:
        match node:
            case ast.JoinedStr():
                return  # Python 3.11 gives its parts no usable positions
            case ast.Compare():
                for new in _comparisons(node):
                    yield self._of("comparison", node, new, function)
            case ast.BoolOp():
                yield from self._boolean(node, function)
            case ast.Call():
                if _logs(node):
                    return
                yield from self._call(node, function)
            case ast.Constant(value=bool() as value):
                yield self._of("constant", node, str(not value), function)
            case ast.Constant(value=int() as number):
                yield self._of("constant", node, f"({number + 1})", function)
            case ast.BinOp(op=op) if type(op) in _ARITHMETIC and not _texts(node):
                other = ast.BinOp(node.left, _ARITHMETIC[type(op)], node.right)
                yield self._of("arithmetic", node, f"({ast.unparse(other)})", function)
            case ast.IfExp():
                other_way = ast.IfExp(node.test, node.orelse, node.body)
                yield self._of("negated", node, f"({ast.unparse(other_way)})", function)
            case ast.UnaryOp(op=ast.Not()):
                yield self._of("negated", node, f"({ast.unparse(node.operand)})", function)
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                for test in (test for each in node.generators for test in each.ifs):
                    yield self._of("filter removed", test, "True", function)
            case _:
                pass
        yield from self._parts(node, function)

    def _boolean(self, node: ast.BoolOp, function: str) -> Iterator[Mutant]:
        op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        other = ast.unparse(ast.BoolOp(op, node.values))
        yield self._of("and/or", node, f"({other})", function)
        for n in range(len(node.values)):
            left = [value for m, value in enumerate(node.values) if m != n]
            kept = left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
            yield self._of("operand removed", node, f"({ast.unparse(kept)})", function)

    def _call(self, node: ast.Call, function: str) -> Iterator[Mutant]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(node.func, ast.Name):
            name = node.func.id
            if name in _SWAPPED_NAMES:
                yield self._of("min/max, any/all", node.func, _SWAPPED_NAMES[name], function)
        for n, keyword in enumerate(node.keywords):
            optional = name == "replace" or f"{name}.{keyword.arg}" in self._optional
            if keyword.arg is not None and optional:
                others = [k for m, k in enumerate(node.keywords) if m != n]
                text = ast.unparse(ast.Call(node.func, node.args, others))
                yield self._of("field left out", node, text, function)

    def _of(self, kind: str, node: ast.expr | ast.stmt, new: str, function: str) -> Mutant:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._begins[node.lineno - 1] + node.col_offset
        end = self._begins[node.end_lineno - 1] + node.end_col_offset
        old = self._source[start:end].decode()
        return Mutant(self._file, function, node.lineno, kind, old, new, start, end)


def _comparisons(node: ast.Compare) -> Iterator[str]:
    """The comparison with one operator changed."""
    parts = [ast.unparse(each) for each in (node.left, *node.comparators)]
    signs = [_SIGNS[type(op)] for op in node.ops]
    for changed, op in enumerate(node.ops):
        words = [parts[0]]
        for n, sign in enumerate(signs):
            words += [_BOUNDARY[type(op)] if n == changed else sign, parts[n + 1]]
        yield f"({' '.join(words)})"


def _logs(node: ast.expr) -> bool:
    """Whether the expression writes to the log."""
    if isinstance(node, ast.Await):
        return _logs(node.value)
    func = node.func if isinstance(node, ast.Call) else None
    return isinstance(func, ast.Attribute) and func.attr in _LOGGING


def _texts(node: ast.BinOp) -> bool:
    """Whether the operation joins strings or types, not numbers."""
    parts = [each for each in ast.walk(node) if isinstance(each, ast.Constant | ast.JoinedStr)]
    return any(
        isinstance(each, ast.JoinedStr) or isinstance(each.value, str | bytes | None)
        for each in parts
    )
