"""Find where a journal begins to hold segments of an ordered topic that a chain does not know.

A master notes the chain in the topic's CONFIG batch before the first record of each segment
(`fmqcore.ordered.copies`), and every later SNAP has it. Leaves nothing on disk.
"""

from fmqcore.batch.header import HEADER_LEN, BadBatch, check_payload, parse_header
from fmqcore.errors import Malformed
from fmqcore.ids import Position, TopicId
from fmqcore.journal.state import JournalState
from fmqcore.ordered.copies import copy_in
from fmqcore.properties import NONE
from fmqcore.scan.headers import HeaderBlock, Read
from fmqcore.scan.payloads import damaged
from fmqspark.source.snaps import topic_settings_in


class Openings:
    """Looks for the first segment from `next_segment` on, in one segment file of a journal."""

    def __init__(self, read: Read, base: Position, topic: TopicId, next_segment: int) -> None:
        self._read = read
        self._base = base
        self._topic = topic
        self._next = next_segment
        self._opened: Position | None = None

    def find(self, block: HeaderBlock) -> Position | None:
        """Return where the segment is opened, in this block or one before; None if it is not.

        Raises what reading raises.
        """
        if self._opened is None:
            for position, setting in topic_settings_in(self._read, self._base, block):
                newer = copy_in(setting.properties).number >= self._next
                if setting.topic_id == self._topic and newer:
                    self._opened = position
                    break
        return self._opened

    def begins_behind(self) -> bool:
        """Return whether the file's SNAP knows the segment. Raises what reading raises."""
        try:
            header = parse_header(self._read(HEADER_LEN, 0))
            payload = self._read(header.payload_len, HEADER_LEN)
            check_payload(header, payload)
            noted = JournalState.from_snap(payload).topic_properties.get(self._topic, NONE)
        except (BadBatch, Malformed) as error:
            raise damaged(self._base, self._base, error) from error
        return copy_in(noted).number >= self._next
