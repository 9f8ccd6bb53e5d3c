"""Limit findings of one kind in one segment: the first ones, and the rest as one. Pure.

The check's caller holds all that the segments' tasks find, and a rotten disk has no bound. The rest
counts as bad from its first place to its last, whatever is good in between.
"""

from collections.abc import Sequence
from typing import Final

from fmqcore.journal.findings import Finding

FEW: Final = 100


def few(findings: Sequence[Finding], most: int = FEW) -> list[Finding]:
    """Return findings in their order; the rest stands where its first one stood."""
    if len(findings) <= most:
        return list(findings)
    kinds: dict[object, list[int]] = {}
    for i, found in enumerate(findings):
        kinds.setdefault((found.code, found.severity, found.file, found.remedy), []).append(i)
    rests: dict[int, Finding | None] = {}
    for places in kinds.values():
        if len(places) > most + 1:
            rests[places[most]] = _rest([findings[i] for i in places[most:]])
            rests |= dict.fromkeys(places[most + 1 :])
    reported = (rests.get(i, found) for i, found in enumerate(findings))
    return [found for found in reported if found is not None]


def _rest(findings: Sequence[Finding]) -> Finding:
    first = findings[0]
    places = [found.position for found in findings if found.position is not None]
    ends = [found.end for found in findings if found.end is not None]
    last = f", the last at {max(places)}" if places else ""
    sentence = f"this and {len(findings) - 1} more of this kind{last}: {first.sentence}"
    begin = min(places) if places else None
    return first._replace(position=begin, end=max(ends) if ends else None, sentence=sentence)
