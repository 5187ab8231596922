"""Bytes out of shards, on a disk or behind a URL, tried again when they do not come.

A range that fails or takes longer than `SLOW` seconds is asked for again after growing waits. A
shard that fails `TRIES` times in a row is left alone for `REST` seconds: its pictures count as
unreadable meanwhile, so that one dead server does not stop a training that has others.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from wessl.data.decoding.bad_pictures import ShardLost
from wessl.data.sources.shards.names import file_system
from wessl.errors import UserError

TRIES = 6
FIRST_WAIT = 0.2
"""Seconds before the second try; each further wait is three times as long."""
SLOW = 60.0
REST = 300.0
OPEN_FILES = 64
READ_AHEAD = 8 << 20


class ShardFiles:
    """The files of shards, by number; may be used by several threads and sent to processes."""

    def __init__(self, shards: Sequence[str]):
        self.shards = list(shards)
        self.remote = "://" in self.shards[0]
        self.seen: list[tuple[int, str]] | None = None
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[int, int] = OrderedDict()
        self._rests: dict[int, tuple[float, str]] = {}
        self._files: tuple[Any, list[str]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"shards": self.shards, "remote": self.remote, "seen": self.seen}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        for descriptor in self.__dict__.get("_open", {}).values():
            close(descriptor)  # by itself: when the process ends, modules may be gone before

    @property
    def in_this_process(self) -> bool:
        """Whether other processes do not see these files."""
        return self.shards[0].startswith("memory://")

    def read(self, shard: int, start: int, stop: int) -> bytes:
        """Bytes `start` to `stop`; raises `ShardLost` when they do not come."""
        until, reason = self._rests.get(shard, (0.0, ""))
        if time.monotonic() < until:
            raise ShardLost(reason)
        for attempt in range(TRIES):
            if attempt:
                time.sleep(FIRST_WAIT * 3 ** (attempt - 1))
            try:
                return self._whole(shard, start, stop)
            except ShardLost as lost:
                self._rests[shard] = time.monotonic() + REST, str(lost)
                raise
            except Exception as error:  # every file system has its own
                reason = f"{type(error).__name__}: {error}"
                if isinstance(error, FileNotFoundError | PermissionError):
                    break  # waiting changes nothing
        reason = f"{self.shards[shard]} cannot be read, tried {attempt + 1} times ({reason})"
        self._rests[shard] = time.monotonic() + REST, reason
        raise ShardLost(reason)

    def _whole(self, shard: int, start: int, stop: int) -> bytes:
        found = self._fetch(shard, start, stop) if self.remote else self._pread(shard, start, stop)
        if len(found) != stop - start:
            more = "; does the server support ranges?" if len(found) > stop - start else ""
            raise OSError(f"{len(found)} bytes came where {stop - start} were asked for{more}")
        return found

    def _pread(self, shard: int, start: int, stop: int) -> bytes:
        # Positioned reads share no file pointer, but a file may not be closed during one.
        with self._lock:
            if shard not in self._open:
                self._open[shard] = os.open(self.shards[shard], os.O_RDONLY)
                if len(self._open) > OPEN_FILES:
                    os.close(self._open.popitem(last=False)[1])
            self._open.move_to_end(shard)
            if self.seen and _stamp(os.fstat(self._open[shard])) != self.seen[shard]:
                os.close(self._open.pop(shard))
                changed = f"{self.shards[shard]} changed since it was indexed"
                raise ShardLost(f"{changed}; start again to have it read anew")
            return os.pread(self._open[shard], stop - start, start)

    def _fetch(self, shard: int, start: int, stop: int) -> bytes:
        with self._lock:
            files, paths = self._connected()
        return within(SLOW, lambda: bytes(files.cat_file(paths[shard], start=start, end=stop)))

    def _connected(self) -> tuple[Any, list[str]]:
        if self._files is None:
            files, _ = file_system(self.shards[0])
            self._files = files, [files._strip_protocol(url) for url in self.shards]
        return self._files

    def open(self, shard: int) -> BinaryIO:
        """One shard to be read from its beginning."""
        if not self.remote:
            return open(self.shards[shard], "rb")
        files, paths = self._connected()
        found: BinaryIO = files.open(
            paths[shard], "rb", block_size=READ_AHEAD, cache_type="readahead"
        )
        return found

    def read_beside(self, shard: int, name: str) -> bytes:
        """All of a file that lies in a shard's folder; raises what its system raises."""
        folder = self.shards[shard].rpartition("/")[0]
        if not self.remote:
            return Path(folder, name).read_bytes()
        files, path = file_system(f"{folder}/{name}")
        return bytes(files.cat_file(path))

    def stats(self) -> list[tuple[int, str]]:
        """Size of each, and what changes when it is written again; one that does is not read."""

        def look(shard: int) -> tuple[int, str]:
            if there is not None:
                return _info(*there, shard)
            return _stamp(os.stat(self.shards[shard]))

        there = self._connected() if self.remote else None
        with ThreadPoolExecutor(16) as threads:
            self.seen = list(threads.map(look, range(len(self.shards))))
        return self.seen


def _stamp(info: os.stat_result) -> tuple[int, str]:
    return info.st_size, str(info.st_mtime_ns)


def _info(files: Any, paths: list[str], shard: int) -> tuple[int, str]:
    path = paths[shard]
    try:
        info = files.info(path)
    except Exception as error:  # every file system has its own
        raise UserError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    if info.get("size") is None:
        raise UserError(f"{path}: the server does not tell its size; shards are read by ranges")
    stamps = ("ETag", "etag", "LastModified", "last_modified", "mtime", "created", "updated")
    return int(info["size"]), str([info[key] for key in stamps if key in info])


def within(seconds: float, call: Callable[[], bytes]) -> bytes:
    """The result of `call`, or TimeoutError; a call that hangs is left to hang in its thread."""
    result: list[bytes | Exception] = []

    def run() -> None:
        try:
            result.append(call())
        except Exception as error:
            result.append(error)

    # A daemon, so that a server that never answers does not keep the process alive.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not result:
        raise TimeoutError(f"no answer within {seconds:g} s")
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]
