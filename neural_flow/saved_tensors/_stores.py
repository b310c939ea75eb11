"""Where pieces of memory go: files, copies on the CPU, or what a user's function does with them.

A store's ``put(piece)`` returns an object whose ``load()`` gives an equal piece any number of times, and whose
``is_same(piece)`` tells whether it holds these very bytes. What holds the piece goes with that object.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import weakref
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Protocol, cast

import torch

from neural_flow.saved_tensors._layouts import CannotStoreError

_CHUNK_NBYTES = 1 << 20
_numbers = itertools.count()

Load = Callable[[], torch.Tensor]


class Stored(Protocol):
    """One piece that was put into a store."""

    def load(self) -> torch.Tensor:
        """Return an equal piece, on the device that it came from."""
        ...

    def is_same(self, piece: torch.Tensor) -> bool:
        """Return whether ``piece`` has the bytes that are stored."""
        ...


class Store(Protocol):
    """Where pieces go."""

    def put(self, piece: torch.Tensor) -> Stored:
        """Store ``piece``, which is not written and may be written by its owner afterwards."""
        ...


class FileStore:
    """Write pieces into files of one folder. ``num_files`` counts those that exist now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.num_files = 0
        self._lock = threading.Lock()

    def put(self, piece: torch.Tensor) -> Stored:
        """Write ``piece`` to a file that lives as long as the returned object.

        Raises:
            OSError: it cannot be written; nothing half-written is left.
        """
        file = self.folder / f"{next(_numbers)}.pt"
        saved = _SavedFile(file, _write(piece, file), piece)
        self._count(1)
        weakref.finalize(saved, _remove, file, os.getpid(), self._count)
        return saved

    def _count(self, step: int) -> None:
        with self._lock:
            self.num_files += step


class _SavedFile:
    """A file, the sums of its segments (length, checksum), and which of them are the bytes of the piece."""

    __slots__ = ("__weakref__", "_device", "_file", "_nbytes", "_segments")

    def __init__(self, file: Path, segments: list[tuple[int, int]], piece: torch.Tensor) -> None:
        self._file = file
        self._segments = segments
        self._device = piece.device
        self._nbytes = piece.numel() * piece.element_size()

    def load(self) -> torch.Tensor:
        """Read the piece.

        Raises:
            RuntimeError: the file is gone or damaged; a wrong piece is never returned.
        """
        try:
            with self._file.open("rb") as stream:
                if not self._is_whole(stream):
                    raise RuntimeError(
                        f"the file of a saved tensor is damaged: {self._file}; no gradient can be computed from it, "
                        "run the forward again"
                    )
                stream.seek(0)
                return torch.load(stream, map_location=self._device, weights_only=True)
        except OSError as error:
            raise RuntimeError(
                f"the file of a saved tensor cannot be read: {self._file}: {error.strerror or error}; was the folder "
                "cleaned while the graph was alive? Run the forward again, with folder=... elsewhere"
            ) from error

    def is_same(self, piece: torch.Tensor) -> bool:
        """Return whether one segment of the file, which torch writes at once, has the bytes of ``piece``."""
        return (self._nbytes, checksum_of(piece)) in self._segments

    def _is_whole(self, stream: IO[bytes]) -> bool:
        for nbytes, expected in self._segments:
            checksum, rest = 0, nbytes
            while rest and (chunk := stream.read(min(rest, _CHUNK_NBYTES))):
                checksum = zlib.crc32(chunk, checksum)
                rest -= len(chunk)
            if rest or checksum != expected:
                return False
        return not stream.read(1)


class _CheckedWriter:
    """What ``torch.save`` writes to: hands bytes on, sums up each write, and keeps the first error."""

    def __init__(self, descriptor: int) -> None:
        self.segments: list[tuple[int, int]] = []
        self.error: OSError | None = None
        self._descriptor = descriptor

    def write(self, data: bytes | memoryview) -> int:
        """Write all of ``data``; after an error, swallow it: torch still writes the end of its file then."""
        view = memoryview(data).cast("B")
        if self.error is None:
            try:
                self.segments.append((len(view), zlib.crc32(view)))
                rest = view
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                self.error = error
        return len(view)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""


def _write(piece: torch.Tensor, file: Path) -> list[tuple[int, int]]:
    """Write ``piece`` to a new file and return the sums of its segments."""
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o600)
    except OSError as error:
        raise _write_error(error, file, piece) from error
    writer = _CheckedWriter(descriptor)
    try:
        torch.save(piece, cast(IO[bytes], writer))
    except (NotImplementedError, TypeError, RuntimeError) as error:
        _discard(descriptor, file)
        if writer.error is not None:
            raise _write_error(writer.error, file, piece) from writer.error
        raise CannotStoreError(f"torch cannot save a tensor of layout {piece.layout}: {error}") from error
    except BaseException:
        _discard(descriptor, file)
        raise
    if writer.error is not None:
        _discard(descriptor, file)
        raise _write_error(writer.error, file, piece) from writer.error
    os.close(descriptor)
    return writer.segments


def _discard(descriptor: int, file: Path) -> None:
    """Leave nothing half-written."""
    os.close(descriptor)
    with contextlib.suppress(OSError):
        file.unlink()


def _write_error(error: OSError, file: Path, piece: torch.Tensor) -> OSError:
    nbytes = piece.numel() * piece.element_size()
    return type(error)(
        error.errno,
        f"offload_saved_tensors cannot write {nbytes / 1e6:.1f} MB: {error.strerror}; free space, name another place "
        'with folder=..., raise the threshold, or use to="cpu"',
        str(file),
    )


def _remove(file: Path, pid: int, count: Callable[[int], None]) -> None:
    """Remove a file; a forked child that drops its copy of the graph leaves it to the parent."""
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            file.unlink()
        count(-1)


class CpuStore:
    """Keep copies in the memory of the CPU."""

    def put(self, piece: torch.Tensor) -> Stored:
        """Copy ``piece``."""
        return _CpuCopy(piece)


class _CpuCopy:
    __slots__ = ("_copy", "_device")

    def __init__(self, piece: torch.Tensor) -> None:
        self._device = piece.device
        self._copy = piece.to("cpu", copy=True)

    def load(self) -> torch.Tensor:
        """Return a new copy each time: what backward does to it must not reach the next one."""
        return self._copy.to(self._device, copy=True)

    def is_same(self, piece: torch.Tensor) -> bool:
        """Compare all bytes."""
        return torch.equal(bytes_of(self._copy), bytes_of(piece))


class CallableStore:
    """Hand pieces to a user's function, which returns another one that gives them back."""

    def __init__(self, function: Callable[[torch.Tensor], Load]) -> None:
        self._function = function

    def put(self, piece: torch.Tensor) -> Stored:
        """Call the function with ``piece``.

        Raises:
            TypeError: it returned nothing that can be called.
        """
        load = self._function(piece)
        if not callable(load):
            raise TypeError(f"store(tensor) returned a {type(load).__name__}, expected a function load() -> tensor")
        return _CalledBack(load, checksum_of(piece))


class _CalledBack:
    __slots__ = ("_checksum", "_load")

    def __init__(self, load: Load, checksum: int | None) -> None:
        self._load = load
        self._checksum = checksum

    def load(self) -> torch.Tensor:
        """Return what the user's function gives back.

        Raises:
            TypeError: that is no tensor.
        """
        piece = self._load()
        if not isinstance(piece, torch.Tensor):
            raise TypeError(f"the store's load() returned a {type(piece).__name__}, expected a Tensor")
        return piece

    def is_same(self, piece: torch.Tensor) -> bool:
        """Compare checksums."""
        return self._checksum is not None and self._checksum == checksum_of(piece)


def bytes_of(piece: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a contiguous piece, as a flat uint8 tensor on the CPU."""
    return piece.reshape(-1).view(torch.uint8).cpu()


def checksum_of(piece: torch.Tensor) -> int | None:
    """Return a checksum of the bytes of a piece; None where it has no plain ones (sparse, nested, quantized)."""
    if piece.layout is not torch.strided or piece.is_nested or piece.is_quantized:
        return None
    return zlib.crc32(bytes_of(piece).numpy().data)
