"""CRC32C (Castagnoli), the only user of `google_crc32c`: about 12 GB/s."""

from collections.abc import Iterable

import google_crc32c

Buffer = bytes | bytearray | memoryview


def crc32c(data: Buffer) -> int:
    """Return the CRC32C of `data`."""
    # Inlined: it runs twice for every batch, and a further call would cost more.
    crc: int = google_crc32c.value(data if type(data) is bytes else bytes(data))
    return crc


def extend(crc: int, data: Buffer) -> int:
    """Return the CRC32C of what `crc` covers followed by `data`."""
    return int(google_crc32c.extend(crc, _readable(data)))


def crc32c_of(parts: Iterable[bytes]) -> int:
    """Return the CRC32C of all parts, one after another, without joining them."""
    crc = 0
    for part in parts:
        crc = google_crc32c.extend(crc, part)
    return crc


def _readable(data: Buffer) -> bytes:
    # The C extension takes `bytes` only; a copy costs less than the checksum of a small buffer.
    return data if isinstance(data, bytes) else bytes(data)
