"""The notes with which a consumer group begins: whether it is temporary, and since when it counts.

`idle_groups.py` renews notes and forgets groups by them. A note outlives the progress of a group
that was deleted (until the next SNAP), so a group that begins again under the name needs a new one:
by the old one its time would be over at once.
"""

from collections.abc import Mapping

from fmqbroker.consume.offsets.store import OffsetStore
from fmqcore.batch.offset_entry import OffsetEntry, OffsetKey, tombstone
from fmqcore.ids import TopicId
from fmqcore.journal.state import PRESENCE_QUEUE, TEMPORARY_QUEUE


def opening_note(
    offsets: OffsetStore,
    unstored: Mapping[OffsetKey, OffsetEntry],
    group: str,
    topic_id: TopicId,
    *,
    new: bool,
    temporary: bool,
) -> dict[OffsetKey, OffsetEntry]:
    """What to store when a session opens the group; most often nothing.

    `new`: it has no progress here. A group that was ever opened by name is not temporary.
    """
    presence = OffsetKey(group, topic_id, PRESENCE_QUEUE)
    unnamed = OffsetKey(group, topic_id, TEMPORARY_QUEUE)
    waiting = {key: unstored[key] for key in (presence, unnamed) if key in unstored}
    known = offsets.get_all((presence, unnamed)) | waiting
    if temporary:
        key, wanted = (presence if presence in known else unnamed), new
    else:
        key = presence
        wanted = bool(known) if new else unnamed in known and presence not in known
    if not wanted:
        return {}
    version = offsets.next_version(key)
    if key in waiting:
        version = max(version, waiting[key].version + 1)
    return {key: tombstone(version)}
