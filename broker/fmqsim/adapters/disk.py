"""Simulator adapter of the disk port: the real adapter on a simulated kernel.

`SimDisk` is `fmqadapters.disk.files.FileDisk` itself; below it are the system calls of a
`FileSystem` and workers that take virtual time. So the order of steps (write, sync, rename, sync
the directory) is the real one, and a step that is missing there shows when the power is cut.

A machine's disk is a `Storage`: it outlives the processes. When its process dies, a running call is
done in part: some system calls, and perhaps half of the last write. Calls that were only submitted
are not done. Then, if the power went too, the world calls `Storage.cut_power`.
"""

import asyncio
import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

from fmqadapters.disk.files import FileDisk
from fmqadapters.disk.workers import settle
from fmqport.disk import Chunk
from fmqsim.engine.filesystem import PAGE, FileSystem, Inode
from fmqsim.engine.loop import SimLoop
from fmqsim.engine.node import Crashed, Process

T = TypeVar("T")
_FUSE: Final = 9
"""System calls that a running call still makes, at most, when its process dies."""
_HICCUP: Final = 0.01
"""Share of calls that take twenty times as long."""


class PowerOff(Crashed):
    """The process is dead: this system call was never made."""


@dataclass
class Speed:
    """Duration of calls in milliseconds; the world changes it to make a disk slow."""

    write_ms: float = 0.3
    directory_ms: float = 0.8
    read_ms: float = 0.15
    stalled_until_s: float = 0.0  # the world's time: writes wait until then

    def of(self, worker: str) -> float:
        """Return the average milliseconds of a call on this worker."""
        times = {"fmq-write": self.write_ms, "fmq-read": self.read_ms}
        return times.get(worker, self.directory_ms)


class Storage:
    """The disk of one machine, and its faults."""

    def __init__(self, loop: SimLoop, path: str, *, capacity: int = 1 << 30) -> None:
        self.loop = loop
        self.files = FileSystem(path, capacity)
        self.speed = Speed()
        self.hurt = False  # somebody has damaged what lay on it
        self.random = Random(loop.random.getrandbits(64))

    def disk(self, process: Process | None = None) -> "SimDisk":
        """Return the port for one process (None: for a user that cannot die)."""
        return SimDisk(self, process)

    def cut_power(self) -> None:
        """Lose the page cache too, after the process died."""
        self.files.cut_power(self.random)

    def flip_some_bit(self, suffix: str, *, below: float = 1.0) -> str:
        """Flip a bit in a file with that suffix, where the file is not zeros.

        Returns where ("": nowhere).
        """
        names = [name for name in sorted(self.files.names) if name.endswith(suffix)]
        self.random.shuffle(names)
        for name in names:
            used = len(self.files.names[name].disk.rstrip(b"\0"))
            if used:
                at = self.random.randrange(max(1, int(used * below)))
                self.files.flip_bit(name, at, self.random.randrange(8))
                self.hurt = True
                return f"{name} at byte {at}"
        return ""


class SimDisk(FileDisk):
    """The real adapter; only the kernel and the threads below it are simulated."""

    def __init__(self, storage: Storage, process: Process | None) -> None:
        self._kernel = SimCalls(storage.files, process)
        self._workers: list[SimWorker] = []

        def worker(name: str, threads: int) -> SimWorker:
            self._workers.append(SimWorker(storage, process, self._kernel, name, threads))
            return self._workers[-1]

        super().__init__(storage.files.path, self._kernel, worker)
        if process is not None:
            process.on_death(lambda: self._die(storage))

    def _die(self, storage: Storage) -> None:
        for worker in self._workers:
            worker.die()
        self._kernel.dead = True
        storage.files.locks = {
            number: who for number, who in storage.files.locks.items() if who is not self._kernel
        }
        storage.files.lose_process(storage.random)


class SimCalls:
    """The simulated `Syscalls`, as one process sees them."""

    def __init__(self, files: FileSystem, process: Process | None) -> None:
        self.dead = False
        self.trapped = False  # it died in the middle of a call
        self.fuse: int | None = None  # calls left before the disk fails
        self.tear: Random | None = None  # then a write may be done by half
        self._files = files
        self._process = process
        self._open: dict[int, Inode | None] = {}  # None: the directory
        self._names: dict[int, str] = {}
        self._next = 3

    def open(self, path: str, flags: int) -> int:
        """See `Syscalls`."""
        self._step("open", os.path.basename(path))
        inode: Inode | None = None
        if not flags & os.O_DIRECTORY:
            name = os.path.basename(path)
            if name in self._files.names or not flags & os.O_CREAT:
                inode = self._files.find(name)
                if flags & os.O_TRUNC:
                    inode.truncate(0)
            else:
                inode = self._files.create(name)
            inode.opens += 1
        self._next += 1
        self._open[self._next] = inode
        self._names[self._next] = os.path.basename(path)
        return self._next

    def close(self, fd: int) -> None:
        """See `Syscalls`."""
        self._step()
        inode = self._open.pop(fd)
        del self._names[fd]
        if inode is not None:
            if self._files.locks.get(inode.number) is self:
                del self._files.locks[inode.number]
            self._files.closed(inode)

    def size(self, fd: int) -> int:
        """See `Syscalls`."""
        return len(self._inode(fd).data)

    def pread(self, fd: int, length: int, at: int) -> bytes:
        """See `Syscalls`."""
        self._step()
        if self._files.failing_reads:
            self._files.failing_reads -= 1
            raise OSError(errno.EIO, "input/output error")
        return bytes(memoryview(self._inode(fd).data)[at : at + length])

    def pwritev(self, fd: int, pieces: Sequence[Chunk], at: int) -> int:
        """See `Syscalls`."""
        inode = self._inode(fd)
        if self.tear is not None and self.fuse == 0 and not self.dead:
            whole = b"".join(pieces)
            self._files.write(inode, [whole[: self.tear.randrange(len(whole) + 1)]], at)
        self._step("pwritev", self._names[fd])
        done = self._files.write(inode, pieces, at)
        self._behind("pwritev", self._names[fd])
        return done

    def fdatasync(self, fd: int) -> None:
        """See `Syscalls`."""
        self.fsync(fd)

    def fsync(self, fd: int) -> None:
        """See `Syscalls`."""
        inode = self._open[fd]
        kind = "fsync directory" if inode is None else "fsync"
        self._step(kind, self._names[fd])
        if inode is None:
            self._files.sync_names()
        else:
            try:
                self._files.check_sync()
            except OSError:
                inode.fail_sync()
                raise
            inode.sync()
        self._behind(kind, self._names[fd])

    def allocate(self, fd: int, size: int) -> None:
        """See `Syscalls`."""
        self._step("allocate", self._names[fd])
        self._files.allocate(self._inode(fd), size)
        self._behind("allocate", self._names[fd])

    def truncate(self, fd: int, size: int) -> None:
        """See `Syscalls`."""
        self._step("truncate", self._names[fd])
        self._inode(fd).truncate(size)
        self._behind("truncate", self._names[fd])

    def next_data(self, fd: int, at: int) -> int:
        """See `Syscalls`."""
        inode = self._inode(fd)
        pages = [page for page in inode.written if (page + 1) * PAGE > at]
        if not pages:
            raise OSError(errno.ENXIO, "nothing but a hole from here on")
        return max(at, min(pages) * PAGE)

    def lock(self, fd: int) -> None:
        """See `Syscalls`."""
        self._step()
        number = self._inode(fd).number
        if self._files.locks.setdefault(number, self) is not self:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process has it")

    def rename(self, path: str, to: str) -> None:
        """See `Syscalls`."""
        self._step("rename", os.path.basename(path))
        self._files.rename(os.path.basename(path), os.path.basename(to))
        self._behind("rename", os.path.basename(path))

    def unlink(self, path: str) -> None:
        """See `Syscalls`."""
        self._step("unlink", os.path.basename(path))
        self._files.unlink(os.path.basename(path))
        self._behind("unlink", os.path.basename(path))

    def exists(self, path: str) -> bool:
        """See `Syscalls`."""
        return os.path.basename(path) in self._files.names

    def makedirs(self, path: str) -> list[str]:
        """See `Syscalls`. The directory is always there."""
        assert os.path.abspath(path) == self._files.path
        return []

    def scan(self, path: str) -> list[tuple[str, int]]:  # noqa: ARG002 - there is one
        """See `Syscalls`."""
        return [(name, len(inode.data)) for name, inode in self._files.names.items()]

    def free_bytes(self, path: str) -> int:  # noqa: ARG002 - there is one
        """See `Syscalls`."""
        return self._files.free

    def process_id(self) -> int:
        """See `Syscalls`."""
        return 0 if self._process is None else self._process.incarnation

    def _inode(self, fd: int) -> Inode:
        inode = self._open[fd]
        assert inode is not None, "a directory has no bytes"
        return inode

    def _step(self, kind: str = "", name: str = "") -> None:
        if self.dead or self.fuse == 0:
            self.dead = True
            raise PowerOff
        if self.fuse is not None:
            self.fuse -= 1
        elif self._files.springs(kind, name, behind=False):
            self._die_here()

    def _behind(self, kind: str, name: str) -> None:
        if self.fuse is None and self._files.springs(kind, name, behind=True):
            self._die_here()

    def _die_here(self) -> None:
        self.dead = self.trapped = True
        raise PowerOff


_Job = tuple["asyncio.Future[Any]", Callable[[], Any], Callable[[Any], None]]


class SimWorker:
    """The simulated `Worker`: a call takes virtual time and has its effect at the end.

    It acts as a thread: it goes on while its process's event loop is wedged, not while it is
    paused.
    """

    def __init__(
        self, storage: Storage, process: Process | None, calls: SimCalls, name: str, threads: int
    ) -> None:
        self._storage = storage
        self._process = process
        self._calls = calls
        self._name = name
        self._idle = threads
        self._jobs: deque[_Job] = deque()
        self._under_way: list[_Job] = []
        self._stopped = False

    def submit(
        self, call: Callable[[], T], orphan: Callable[[T], None] = lambda _: None
    ) -> "asyncio.Future[T]":
        """See `Worker`."""
        if self._process is not None:
            self._process.check()
        if self._stopped:
            raise RuntimeError(f"{self._name} is closed")
        future: asyncio.Future[T] = self._storage.loop.create_future()
        self._jobs.append((future, call, orphan))
        if self._idle:
            self._begin()
        return future

    async def stop(self) -> None:
        """See `Worker`."""
        if not self._stopped:
            self._stopped = True
            waiting = [job[0] for job in (*self._under_way, *self._jobs)]
            if waiting:
                await asyncio.wait(waiting)

    def die(self) -> None:
        """Handle the process's death: running calls are done in part, waiting calls not at all."""
        self._jobs.clear()
        jobs, self._under_way = self._under_way, []
        if self._calls.trapped or self._name == "fmq-read":
            return  # as far as they came; a read leaves nothing
        for _, call, _ in jobs:
            self._calls.dead = False
            self._calls.tear = self._storage.random
            self._calls.fuse = self._storage.random.randrange(_FUSE)
            with contextlib.suppress(BaseException):  # no caller is left to report it to
                call()
        self._calls.dead = True

    def _begin(self) -> None:
        self._idle -= 1
        job = self._jobs.popleft()
        self._under_way.append(job)
        self._storage.loop.at_world(self._delay_s(), self._due, job)

    def _delay_s(self) -> float:
        storage = self._storage
        speed, random = storage.speed, storage.random
        delay_s = speed.of(self._name) / 1000 * random.uniform(0.3, 1.7)
        if random.random() < _HICCUP:
            delay_s *= 20
        if self._name != "fmq-read":
            delay_s += max(0.0, speed.stalled_until_s - storage.loop.now)
        return delay_s

    def _due(self, job: _Job) -> None:
        process = self._process
        if process is None:
            self._do(job)
        elif process.alive and process.node.paused:
            self._storage.loop.on_node(process, self._do, job)  # held until it goes on
        elif process.alive:
            self._do(job)

    def _do(self, job: _Job) -> None:
        future, call, orphan = job
        result: Any = None
        error: Exception | None = None
        try:
            result = call()
        except Exception as caught:  # noqa: BLE001 - raised where it is awaited
            error = caught
        self._under_way.remove(job)
        self._idle += 1
        if self._jobs:
            self._begin()
        if self._process is None or not future.cancelled():
            settle(future, result, error, orphan)  # who waits for it runs as its own process
        else:
            self._storage.loop.on_node(self._process, settle, future, result, error, orphan)
