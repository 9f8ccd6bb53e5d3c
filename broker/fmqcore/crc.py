"""CRC32C (Castagnoli), the only door to `google_crc32c`: about 12 GB/s (DESIGN §15)."""

import google_crc32c

Buffer = bytes | bytearray | memoryview


def crc32c(data: Buffer) -> int:
    """Return the CRC32C of `data`."""
    return int(google_crc32c.value(_readable(data)))


def extend(crc: int, data: Buffer) -> int:
    """Return the CRC32C of what `crc` covers followed by `data`."""
    return int(google_crc32c.extend(crc, _readable(data)))


def _readable(data: Buffer) -> bytes:
    # The C extension takes `bytes` only; a copy costs less than the checksum of a small buffer.
    return data if isinstance(data, bytes) else bytes(data)
