"""Notes stored when a consumer group starts: whether it is temporary, and its start time.

`idle_groups.py` renews notes and removes groups by them. A note outlives the progress of a deleted
group (until the next SNAP), so a group that starts again under that name needs a new note: by the
old one it would expire at once.
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
    """Return the entries to store when a session opens the group; most often none.

    `new`: the group has no progress here. A group that was ever opened by name is not temporary.
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
