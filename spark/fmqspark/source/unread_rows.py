"""Find whether only a stream's changed options select records below its position."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fmqcore.scan.selection import Range, Wanted
from fmqspark.source.files import Throttle
from fmqspark.source.names import add_topic_names
from fmqspark.source.options import Request
from fmqspark.source.planning import plan
from fmqspark.source.splits import SplitReader
from fmqspark.source.stream_offsets import QUEUES, TOPICS
from fmqspark.source.survey import Survey


def unread_below(
    request: Request, before: Mapping[str, Any], options: tuple[str, ...], position: int
) -> bool:
    """Return whether the widened `options` select records below `position`.

    `before`: what was selected until then. Reads headers up to the first such record. Where several
    options are wider, or a range, it may also return True for records that were read. Raises what
    reading raises.
    """
    found = request.survey()
    wanted = request.wanted_in(found, [])
    if options == (TOPICS,):
        wanted = _without_topics(wanted, set(before[TOPICS]), found)
    elif options == (QUEUES,) and wanted.queues is not None:
        wanted = replace(wanted, queues=wanted.queues - set(before[QUEUES]))
    wanted = replace(wanted, positions=wanted.positions.cut(Range(end=position)))
    splits = plan(found, wanted)
    return any(slab.records for split in splits for slab in SplitReader(split, (), Throttle(0)))


def _without_topics(wanted: Wanted, names: set[str], found: Survey) -> Wanted:
    if wanted.topics is None:
        add_topic_names(found)
    topics = found.names.keys() if wanted.topics is None else wanted.topics
    return replace(wanted, topics=frozenset(i for i in topics if found.names[i] not in names))
