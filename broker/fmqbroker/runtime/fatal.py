"""D3: an I/O error leaves the disk in doubt, so the process ends; the next start checks it.

Not here: the flusher, which ends by itself on a failed write or fsync. Leaves nothing on disk.
"""

from collections.abc import Awaitable
from typing import TypeVar

from fmqport.disk import DiskFailed
from fmqport.lifecycle import Lifecycle

T = TypeVar("T")


async def or_die(work: Awaitable[T], lifecycle: Lifecycle, what: str) -> T:
    """Do `work`; on `DiskFailed` end the process, naming `what`. Other errors pass through."""
    try:
        return await work
    except DiskFailed as error:
        lifecycle.fatal(f"{what} fails: {error}")
