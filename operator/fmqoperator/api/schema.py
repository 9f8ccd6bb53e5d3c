"""From a pydantic model to a structural schema, as CustomResourceDefinitions ask for it. Pure.

Kubernetes takes no `$ref`, no `anyOf` but for int-or-string, and no null. A field that may be None
is one that may be left out.
"""

from typing import Any, Final

from pydantic import BaseModel

from fmqoperator.api.base import Json

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_DROPPED: Final = frozenset({"title", "$defs"})


def structural(model: type[BaseModel]) -> Json:
    """The schema of a model, whole: nothing refers to anything else."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _plain(raw, raw.get("$defs", {}))


def _plain(node: Json, definitions: Json) -> Json:
    node = _resolved(node, definitions)
    if _INT_OR_STRING in node:
        return {k: v for k, v in node.items() if k not in _DROPPED}
    out: Json = {}
    for key, value in node.items():
        match key:
            case "properties":
                out[key] = {name: _plain(of, definitions) for name, of in value.items()}
            case "items" | "additionalProperties":
                out[key] = _plain(value, definitions) if isinstance(value, dict) else value
            case "default":
                out |= _default(value, node)
            case "const":
                out["enum"] = [value]
            case _ if key not in _DROPPED:
                out[key] = value
    if out.get("type") == "integer":
        out["format"] = "int64"
    return out


def _resolved(node: Json, definitions: Json) -> Json:
    """Without `$ref`, and without the null of what may be left out."""
    beside = {k: v for k, v in node.items() if k not in ("$ref", "anyOf")}
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        return _resolved({**target, **beside}, definitions)
    if "anyOf" in node and _INT_OR_STRING not in node:
        kinds = [k for k in node["anyOf"] if k != {"type": "null"}]
        if len(kinds) != 1:
            raise TypeError(f"no structural schema has a choice of types: {node}")
        return _resolved({**kinds[0], **beside}, definitions)
    return node


def _default(value: Any, node: Json) -> Json:
    """Return the schema's default; {} for null and empty values, which need none.

    A part's default lists all its fields: Kubernetes applies it before the defaults of the fields.
    """
    if value is None or value == []:
        return {}
    if "properties" in node:
        return {"default": {k: v for k, v in value.items() if v not in (None, [], {})}}
    return {"default": value} if value != {} else {}
