"""One stored batch: its header, its columns, its CRC, and the payloads of control batches.

Read `header` first (the layout is drawn there), then `columns` (records in a payload) and `control`
(EPOCH, CONFIG, OFFSETS, SNAP, EOF); `offset_entry` is one entry of OFFSETS, `fields` holds the
primitives of all payloads. `crc` is the one door to CRC32C.
"""
