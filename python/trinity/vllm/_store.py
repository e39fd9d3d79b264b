"""Blocks of a KV cache on disk, coded, under keys of what they hold.

A block is served only where its file says that it is of this key, this model, this number format and shape, and where
its digest holds; in any other case `BlockStore.get` raises `Refused` with the reason, and the file is removed. A block
that cannot be written is left out; a folder that was removed is made anew. What is no file is never taken for a block,
and goes only where nothing can be lost with it. Several processes may share a folder: files appear whole or not at all,
and room is made among all of them, whoever wrote them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any

import numpy as np

from .. import _arrays, _coded, _core
from .._errors import InputError, RunError

_MAGIC = b"TRINITY KV 1\n"
_DIGEST = 32
_ENDING = ".kv"
#: After so many seconds what was not finished was left by an engine that was killed.
_LEFT_S = 3600.0
#: Room is made for more than one block at a time.
_FREED = 0.1
#: Files are counted anew after so large a share of the capacity was written: others may write, too.
_COUNTED_ANEW = 1 / 32
#: How a disk says that it is full.
_FULL = (errno.ENOSPC, errno.EDQUOT)
#: Folders of stores that lie side by side, as `store_name` names them. Blocks of no other folder are counted or removed.
_STORE = re.compile(r"[0-9a-f]{32}-[0-9]+")


#: Number format and shape of a block's tensors, by name.
Expected = Mapping[str, tuple[str, Sequence[int]]]


class Refused(Exception):
    """A block that is not served, and why."""


@dataclass(frozen=True)
class Stream:
    """A matrix of f32 that the line-rate codec coded ahead: its bytes, how many of them are header, rows and columns."""

    bytes: bytes | memoryview
    head: int
    shape: tuple[int, ...]
    dtype: str = "f32"


#: What decodes streams: to tensors of some device, in their order.
Streams = Callable[[Sequence[Stream]], Sequence[Any]]


def chain(identity: str, tokens: Sequence[int], block: int, extras: Iterable[str] = ()) -> list[str]:
    """The keys of a prompt's full blocks: each a hash of what the model is, and of all tokens up to the block's end.

    ``extras`` is what else decides about the values: adapters, pictures, a salt.

    >>> a, b = chain("model", [1, 2, 3, 4, 5], 2)
    >>> [a] == chain("model", [1, 2, 9, 9], 2)[:1], b in chain("model", [1, 2, 9, 9], 2), chain("other", [1, 2], 2) == [a]
    (True, False, False)
    """
    before = hashlib.blake2b(json.dumps([identity, block, list(extras)]).encode(), digest_size=20).digest()
    keys = []
    for start in range(0, len(tokens) - block + 1, block):
        own = b"".join(int(token).to_bytes(8, "little", signed=True) for token in tokens[start : start + block])
        before = hashlib.blake2b(before + own, digest_size=20).digest()
        keys.append(before.hex())
    return keys


def store_name(identity: str, rank: int) -> str:
    """The folder of one identity's blocks beside those of others: of the hash of what a model is, and of a rank.

    >>> store_name("0123456789abcdef0123456789abcdef", 1)
    '0123456789abcdef0123456789abcdef-1'
    """
    name = f"{identity}-{rank}"
    if not _STORE.fullmatch(name):
        raise InputError(f"`{name}` is no name of a store: expected 32 hexadecimal digits, a hyphen and a rank")
    return name


def _reaches(codec: str, bits: float | None) -> None:
    """Refuses a codec that is none, or that does not have the rate: its blocks would be kept to the bit, or not at all."""
    if not isinstance(codec, str):
        raise InputError(f"codec {codec!r}: expected the name of one, see trinity.codecs()")
    sample = np.random.default_rng(1).normal(size=(128, 256)).astype(np.float32)
    rate: dict[str, Any] = {"lossless": True} if bits is None else {"bits": bits}
    try:
        _coded.encode(sample, codec=codec, class_="kv-cache", measure=False, progress=False, **rate)
    except (InputError, RunError) as error:
        raise InputError(f"codec {codec!r} is not for blocks at {'every bit' if bits is None else f'{bits:g} bits per value'}: {error}") from None


class BlockStore:
    """Coded blocks in a folder, at most ``capacity_bytes`` of them; those that were not used longest go first.

    ``bits`` per value, or every bit where it is ``None``. ``identity`` is hashed into nothing here: it is written into
    every file, and files of another are refused. ``say`` is told why blocks are left out, once for each reason until one
    is written again. With ``shared``, the folder that this store lies in beside those of other models, rates and
    versions (each named by `store_name`), the capacity is that of all of them, and the oldest block goes, whose it is.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        identity: str,
        *,
        bits: float | None = 3.0,
        codec: str | None = None,
        shared: str | os.PathLike[str] | None = None,
        capacity_bytes: int = 10 << 30,
        memory_bytes: int = 256 << 20,
        say: Callable[[str], object] = lambda why: None,
    ) -> None:
        if bits is not None and not 0 < bits <= 16:
            raise InputError(f"{bits} bits per value: expected a number above zero, up to 16, or none for every bit")
        if capacity_bytes < 1 << 20:
            raise InputError(f"a capacity of {capacity_bytes} bytes holds no block: expected a mebibyte or more")
        if codec is not None:
            _reaches(codec, bits)
        self.folder = Path(folder)
        self.shared = None if shared is None else Path(shared)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be made: {error.strerror}: blocks are kept in a folder that can be written") from None
        #: Of the file system that the folder lies on.
        self._device = self.folder.stat().st_dev
        self.identity, self.bits = identity, bits
        self.codec = codec or ("line-fast" if bits is not None else None)
        self.capacity_bytes, self.memory_bytes = capacity_bytes, memory_bytes
        self._lock = threading.Lock()
        self._say = say
        #: Why the last block could not be written.
        self._failure: int | None = None
        #: Blocks with something in the place of their file that is none, and stays.
        self._obstructed: set[str] = set()
        self._clear_drafts()
        #: Coded blocks that were read or written last.
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._memory_used = 0
        #: Bytes of all blocks that were there when they were counted last, and what was written since.
        self._counted: int | None = None
        self._since = 0
        self.stats = {"written": 0, "written_bytes": 0, "plain_bytes": 0, "served": 0, "refused": 0, "evicted": 0, "not_written": 0}

    def _folders(self) -> list[Path]:
        """This store's folder, and those of the stores beside it."""
        found = [self.folder]
        if self.shared is not None:
            with contextlib.suppress(OSError):
                beside = [Path(item.path) for item in os.scandir(self.shared) if _STORE.fullmatch(item.name)]
                found += [one for one in beside if one != self.folder]
        return found

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        for folder in self._folders():
            with contextlib.suppress(OSError):
                yield from os.scandir(folder)

    def _clear_drafts(self) -> None:
        for item in self._entries():
            if item.name.startswith("."):
                with contextlib.suppress(OSError):
                    if time.time() - item.stat().st_mtime > _LEFT_S:
                        os.unlink(item.path)

    def _path(self, key: str) -> Path:
        return self.folder / (key + _ENDING)

    def _files(self) -> list[tuple[Path, int, float]]:
        found = []
        for item in self._entries():
            with contextlib.suppress(OSError):
                if item.name.endswith(_ENDING) and item.is_file():
                    stat = item.stat()
                    found.append((Path(item.path), stat.st_size, stat.st_mtime))
        return found

    def __contains__(self, key: str) -> bool:
        try:
            return S_ISREG(os.stat(self._path(key)).st_mode)
        except OSError:
            return False

    def takes(self, key: str) -> bool:
        """Whether a block is to be written: it is not there, and the place of its file is free.

        An empty folder in that place is removed. What else is no file stays, and the block is done without; `say` is
        told of either once.
        """
        path = self._path(key)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            with self._lock:
                self._obstructed.discard(key)
            return True
        if S_ISREG(mode):
            return False
        if S_ISLNK(mode):
            # Writing replaces the link, and leaves what it leads to.
            return key not in self
        if S_ISDIR(mode):
            with contextlib.suppress(OSError):
                path.rmdir()
                self._say(f"{path} was an empty folder where a block's file belongs: it is removed, and the block is kept")
                return True
        with self._lock:
            known = key in self._obstructed
            self._obstructed.add(key)
            self.stats["not_written"] += not known
        if not known:
            what = "a folder with something in it" if S_ISDIR(mode) else "neither file nor folder"
            self._say(f"{path} is {what}, where a block's file belongs: it is left as it is, and that block is not kept until it is moved away")
        return False

    def _encoded(self, tensors: Mapping[str, Any], exact: Collection[str]) -> list[_coded.Encoded | Stream]:
        coded: dict[str, _coded.Encoded | Stream] = {name: one for name, one in tensors.items() if isinstance(one, Stream)}
        lossy = {name: one for name, one in tensors.items() if name not in coded and name not in exact and self.bits is not None}
        options: dict[str, Any] = {"class_": "kv-cache", "measure": False, "progress": False}
        if lossy:
            # Values that no codec takes at this rate are kept to the bit.
            with contextlib.suppress(InputError, RunError):
                coded |= dict(zip(lossy, _coded.encode(list(lossy.values()), bits=self.bits, codec=self.codec, **options)))
        kept = {name: one for name, one in tensors.items() if name not in coded}
        if kept:
            codec = self.codec if self.bits is None else None
            coded |= zip(kept, _coded.encode(list(kept.values()), lossless=True, codec=codec, **options))
        return [coded[name] for name in tensors]

    def put(self, key: str, tensors: Mapping[str, Any], exact: Collection[str] = (), plain: int | None = None) -> int | None:
        """Codes a block and writes it; its size in bytes, or nothing where `takes` says no or it cannot be written.

        Tensors that ``exact`` names keep every bit; a `Stream` is coded already. ``plain`` is what the block takes as a
        cache keeps it, where that is not what the tensors take.
        """
        if not self.takes(key):
            return None
        coded = self._encoded(tensors, exact)
        own = [
            {"name": name, "bytes": len(one.bytes), "dtype": one.dtype, "shape": list(one.shape)} | ({"stream": one.head} if isinstance(one, Stream) else {})
            for name, one in zip(tensors, coded)
        ]
        header = json.dumps({"key": key, "identity": self.identity, "tensors": own}).encode()
        body = b"".join([_MAGIC, len(header).to_bytes(4, "little"), header, *(one.bytes for one in coded)])
        whole = body + hashlib.blake2b(body, digest_size=_DIGEST).digest()
        if not self._write(key, whole):
            return None
        with self._lock:
            self.stats["written"] += 1
            self.stats["written_bytes"] += len(whole)
            self.stats["plain_bytes"] += sum(_plain_bytes(one) for one in coded) if plain is None else plain
        return len(whole)

    def _make_folder(self) -> None:
        """Makes the folder anew where it was removed; not on another file system, whose room is not this store's."""
        with self._lock:
            if os.path.lexists(self.folder):
                return
            above = next(one for one in self.folder.absolute().parents if one.exists())
            if above.stat().st_dev != self._device:
                raise OSError(errno.ENODEV, f"it is gone with the file system that it lay on, and {above} is of another: mount it again, or start anew")
            self.folder.mkdir(parents=True, exist_ok=True)
            # What was counted and remembered was in the folder that is gone.
            self._counted, self._since = None, 0
            self._memory.clear()
            self._memory_used = 0
        self._say(f"{self.folder} was removed with the blocks in it: it is made anew")

    def _write(self, key: str, whole: bytes) -> bool:
        draft = self.folder / f".{key}.{os.getpid()}.{threading.get_ident()}"
        try:
            self._make_folder()
            self._make_room(len(whole))
            with open(draft, "wb") as file:
                file.write(whole)
            os.replace(draft, self._path(key))
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink()
            with self._lock:
                self.stats["not_written"] += 1
                known, self._failure = self._failure == error.errno, error.errno
            if not known:
                full = f" (capacity_bytes is {self.capacity_bytes:,}: blocks that are there go only to stay within it)" if error.errno in _FULL else ""
                self._say(f"blocks are left out: {self.folder} cannot be written: {error.strerror}{full}")
            return False
        with self._lock:
            self._failure = None
            self._since += len(whole)
            self._remember(key, whole)
        return True

    def _remember(self, key: str, whole: bytes) -> None:
        self._forget(key)
        if len(whole) > self.memory_bytes:
            return
        self._memory[key] = whole
        self._memory_used += len(whole)
        while self._memory_used > self.memory_bytes:
            _, old = self._memory.popitem(last=False)
            self._memory_used -= len(old)

    def _make_room(self, wanted: int) -> None:
        with self._lock:
            known = self._counted is not None and self._since + wanted <= _COUNTED_ANEW * self.capacity_bytes
            if known and (self._counted or 0) + self._since + wanted <= self.capacity_bytes:
                return
            files = self._files()
            used = sum(size for _, size, _ in files)
            if used + wanted > self.capacity_bytes:
                used = self._freed(files, used + wanted - int(self.capacity_bytes * (1 - _FREED)))
            self._counted, self._since = used, 0

    def _freed(self, files: list[tuple[Path, int, float]], excess: int) -> int:
        """Removes the blocks that were not used longest until so many bytes are gone; what the others have."""
        used = sum(size for _, size, _ in files)
        for path, size, _ in sorted(files, key=lambda file: file[2]):
            if excess <= 0:
                break
            try:
                path.unlink()
                self.stats["evicted"] += 1
            except FileNotFoundError:
                # Another engine made room by the same order: what it removed is gone for this one, too.
                pass
            except OSError:
                continue
            used -= size
            excess -= size
            if path.parent == self.folder:
                self._forget(path.name.removesuffix(_ENDING))
        return used

    def _forget(self, key: str) -> None:
        self._memory_used -= len(self._memory.pop(key, b""))

    def remove(self, key: str) -> None:
        path = self._path(key)
        with self._lock:
            self._forget(key)
            with contextlib.suppress(OSError):
                own = os.lstat(path)
                if S_ISREG(own.st_mode) or S_ISLNK(own.st_mode):
                    path.unlink()
                    self._since -= own.st_size

    def get(self, key: str, expected: Expected, into: Any = "torch") -> dict[str, Any]:
        """The block's tensors, decoded: those that ``expected`` names, each with its number format and shape."""
        (found,) = self.get_many([(key, expected)], into)
        if isinstance(found, Refused):
            raise found
        return found

    def get_many(self, wanted: Sequence[tuple[str, Expected]], into: Any = "torch", streams: Streams | None = None) -> list[dict[str, Any] | Refused]:
        """What `get` gives of each block, or why it is not served; all of them are decoded at once, streams by ``streams`` where that is given."""
        opened: list[_Opened | Refused] = []
        for key, expected in wanted:
            try:
                opened.append(self._opened(key, expected))
            except Refused as why:
                opened.append(why)
        found = _decoded(opened, into, streams)
        for (key, _), own, block in zip(wanted, found, opened):
            if isinstance(own, Refused) or isinstance(block, Refused):
                with self._lock:
                    self.stats["refused"] += 1
                self.remove(key)
                continue
            with contextlib.suppress(OSError):
                os.utime(self._path(key))
            with self._lock:
                self.stats["served"] += 1
                self._remember(key, block.whole)
        return found

    def _opened(self, key: str, expected: Expected) -> _Opened:
        with self._lock:
            whole = self._memory.get(key)
        if whole is None:
            path = self._path(key)
            try:
                # Reading a pipe would wait, and a device may have no end.
                if not S_ISREG(path.stat().st_mode):
                    raise Refused("it cannot be read: in the place of its file is something else")
                whole = path.read_bytes()
            except FileNotFoundError:
                raise Refused("it cannot be read: it is gone, as where an engine that shares the folder made room") from None
            except OSError as error:
                raise Refused(f"it cannot be read: {error}") from None
        # A view: blocks are megabytes.
        body, digest = memoryview(whole)[:-_DIGEST], whole[-_DIGEST:]
        if len(body) < len(_MAGIC):
            raise Refused(f"it is cut: it has {len(whole)} bytes")
        if not whole.startswith(_MAGIC):
            raise Refused("it is no block of this version")
        if hashlib.blake2b(body, digest_size=_DIGEST).digest() != digest:
            raise Refused("its checksum does not hold: it is cut or damaged")
        try:
            header, parts = _parsed(body)
            of_key, of_identity = header["key"], header["identity"]
            stated = {one["name"]: (one["dtype"], tuple(one["shape"])) for one in header["tensors"]}
        except (ValueError, KeyError, TypeError):
            # Its digest holds: who wrote it means something else by it.
            raise Refused("it is no block of this version: its header is another") from None
        if of_key != key:
            raise Refused(f"it is the block of another key, {of_key}")
        if of_identity != self.identity:
            raise Refused("it is of another model, number format or codec")
        wanted = {name: (dtype, tuple(shape)) for name, (dtype, shape) in expected.items()}
        if stated != wanted:
            other = next(name for name in {**wanted, **stated} if stated.get(name) != wanted.get(name))
            raise Refused(f"`{other}` is {stated.get(other)} and not {wanted.get(other)}")
        return _Opened(whole, stated, parts)


def _parsed(body: memoryview) -> tuple[dict[str, Any], dict[str, bytes | Stream]]:
    """A file's header, and its containers and streams by name."""
    at = len(_MAGIC)
    length = int.from_bytes(body[at : at + 4], "little")
    at += 4 + length
    header: dict[str, Any] = json.loads(bytes(body[at - length : at]))
    coded: dict[str, bytes | Stream] = {}
    for one in header["tensors"]:
        own = body[at : at + one["bytes"]]
        coded[one["name"]] = Stream(own, int(one["stream"]), tuple(one["shape"])) if "stream" in one else bytes(own)
        at += one["bytes"]
    return header, coded


@dataclass
class _Opened:
    """A block whose digest holds, and which is what was asked for: what its tensors are, and their containers or streams."""

    whole: bytes
    stated: dict[str, tuple[str, tuple[int, ...]]]
    coded: dict[str, bytes | Stream]


def _decoded(opened: Sequence[_Opened | Refused], into: Any, streams: Streams | None) -> list[dict[str, Any] | Refused]:
    """Decodes all containers of all blocks in one call, and all streams in another; what cannot be decoded is found block by block."""
    served = [one for one in opened if isinstance(one, _Opened)]
    if not served:
        return [one for one in opened if isinstance(one, Refused)]
    coded = [one for block in served for one in block.coded.values()]
    try:
        contained = iter(_core.decode([one for one in coded if not isinstance(one, Stream)], None))
        ahead = [one for one in coded if isinstance(one, Stream)]
        streamed = iter([_of_stream(one, into) for one in ahead] if streams is None else streams(ahead) if ahead else [])
    except (InputError, RunError) as error:
        if len(served) == 1:
            why = Refused(f"it cannot be decoded: {error}")
            return [why if isinstance(one, _Opened) else one for one in opened]
        return [own for one in opened for own in _decoded([one], into, streams)]
    return [one if isinstance(one, Refused) else _block(one, contained, streamed, into) for one in opened]


def _block(opened: _Opened, contained: Iterator[Any], streamed: Iterator[Any], into: Any) -> dict[str, Any] | Refused:
    """A block's tensors, of what was decoded of its containers and streams."""
    tensors: dict[str, Any] = {}
    other = None
    for name, stated in opened.stated.items():
        if isinstance(opened.coded[name], Stream):
            tensors[name] = next(streamed)
            continue
        memory, dtype, shape, carried = next(contained)
        if carried is not None or (dtype, tuple(shape)) != stated:
            other = name
        else:
            tensors[name] = _arrays.array(memory, dtype, shape, into)
    return tensors if other is None else Refused(f"`{other}` is not what the block says of it")


def _of_stream(stream: Stream, into: Any) -> Any:
    """A stream's matrix, by a CPU."""
    rows, cols, memory = _core.line_decode(bytes(stream.bytes))
    if (rows, cols) != stream.shape:
        raise InputError(f"a stream is of {rows} × {cols} values, and its matrix is {stream.shape}")
    return _arrays.array(memory, stream.dtype, list(stream.shape), into)


def _plain_bytes(encoded: _coded.Encoded | Stream) -> int:
    return math.prod(encoded.shape) * _arrays.width(encoded.dtype)
