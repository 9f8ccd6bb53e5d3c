"""One stored batch: its header, its columns, its CRC, and the payloads of control batches.

Read `header` first (the layout is drawn there), then `columns` (records in a payload) and `control`
(EPOCH, CONFIG, OFFSETS, SNAP, EOF); `offset_entry` is one entry of OFFSETS, `fields` holds the
(EPOCH, CONFIG, OFFSETS, SNAP, EOF); `offset_entry` is one entry of OFFSETS, `fields` has the
primitives of all payloads. Only `crc` uses the CRC32C library.
"""
