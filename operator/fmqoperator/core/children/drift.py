"""Whether an object is as it should be, without a write to find out. Pure.

Two comparisons: the hash of what it was made from (a part is no longer wanted, or is new), and
every wanted field as the server has it (a field was changed by hand). What the server added is not
compared.
"""

import json
import re
from typing import Any, Final

from fmqoperator.api.base import Json
from fmqoperator.core.children.quantities import equal_quantities
from fmqoperator.core.observation import HASH

_INDEX: Final = re.compile(r"\[(\d+)\]\.?")
_SHOWN: Final = 120
"""Characters of a value in a sentence."""
_QUANTITIES: Final = frozenset({"requests", "limits", "sizeLimit"})


def drifted(wanted: Json, there: Json | None) -> str:
    """Return "" if the object is as wanted, else what differs."""
    if there is None:
        return "it does not exist"
    hashes = [o["metadata"].get("annotations", {}).get(HASH) for o in (wanted, there)]
    if hashes[0] != hashes[1]:
        path = _differs(_bare(wanted), there, "")
        if not path:
            return "it has a part that is not declared any more"
        return f"{path} changes from {_shown(there, path)} to {_shown(wanted, path)}"
    path = _differs(wanted, there, "")
    return f"{path} was changed by another writer" if path else ""


def _shown(value: Any, path: str) -> str:
    """Return the value at that path of an object, shortened; a key may itself contain dots."""
    while path:
        if found := _INDEX.match(path):
            at = int(found[1])
            value = value[at] if isinstance(value, list) and at < len(value) else None
            path = path[found.end() :]
            continue
        keys = value if isinstance(value, dict) else {}
        fits = [k for k in keys if path == k or path.startswith((f"{k}.", f"{k}["))]
        key = max(fits, key=len, default=path)
        value, path = keys.get(key), path[len(key) :].removeprefix(".")
    text = "nothing" if value is None else json.dumps(value, sort_keys=True)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _bare(wanted: Json) -> Json:
    notes = {k: v for k, v in wanted["metadata"].get("annotations", {}).items() if k != HASH}
    return {**wanted, "metadata": {**wanted["metadata"], "annotations": notes}}


def _differs(wanted: Any, there: Any, path: str) -> str:
    """Return the first path at which `there` lacks something of `wanted`; "" = none."""
    if isinstance(wanted, dict):
        if not isinstance(there, dict):
            return path if wanted else ""
        quantities = path.rpartition(".")[2] in _QUANTITIES
        for key, value in wanted.items():
            at = f"{path}.{key}" if path else key
            has = there.get(key)
            if (quantities or key in _QUANTITIES) and not isinstance(value, dict):
                found = "" if has is not None and equal_quantities(value, has) else at
            else:
                found = _differs(value, has, at)
            if found:
                return found
        return ""
    if isinstance(wanted, list):
        if not isinstance(there, list) or len(there) != len(wanted):
            return path if wanted or there else ""
        pairs = enumerate(zip(wanted, there, strict=True))
        return next((d for i, (w, t) in pairs if (d := _differs(w, t, f"{path}[{i}]"))), "")
    # The server leaves out what is false or empty.
    return "" if wanted == there or (not wanted and there is None) else path
