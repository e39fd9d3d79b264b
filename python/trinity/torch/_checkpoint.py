"""Checkpoints of ``torch.distributed.checkpoint``, coded: weights and the state of optimizers.

Every bit is kept unless an error is allowed. Second moments are coded by their
logarithm: what an optimizer divides by the root of must keep its size, however
small it is. Files are those of a ``FileSystemWriter``, with what each item takes
beside where it lies, so that ranks, shards and ``async_save`` are as before. The
metadata has a checksum of every item: data of another checkpoint, or of another
rank, is never read as this one's.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import math
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch.distributed.checkpoint.filesystem import DEFAULT_SUFFIX, FileSystemReader, FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .. import _coded
from .._coded import Encoded
from .._errors import InputError, RunError

#: Names a coded item in the metadata: a reader that knows of none stops there.
_DESCRIPTOR = "trinity"
#: Begins what the metadata says of an item's bytes: their CRC-32, in hexadecimal digits.
_CHECK = "trinity-crc32/"
_MAGIC = b"TRIC"
#: Kinds of payload: the values, or the binary logarithm of values above zero.
_PLAIN, _LOGARITHM = 0, 1
_HEAD = struct.Struct("<4sBIII")
#: How often a code is made finer until no value is off by more than is allowed.
_TRIES = 4
#: A logarithm in single precision keeps no value nearer than that.
_LEAST_SHARE = 2e-5
T = TypeVar("T")
SECOND_MOMENTS = ("*exp_avg_sq*", "*second_moment*")


def _lossless(x: torch.Tensor) -> bytes:
    return _coded.encode(x, lossless=True, measure=False, progress=False).bytes


def _bounded(x: torch.Tensor, most: float) -> bytes | None:
    """A code in which no value is off by more than ``most``; nothing where none was found."""
    energy = float(x.double().square().mean())
    if energy == 0.0 or x.numel() < 256:
        return None
    # A uniform step of twice the error has a third of its square as noise.
    nmse = most * most / 3 / energy
    for _ in range(_TRIES):
        if nmse < 1e-13:
            return None
        coded = _coded.encode(x, nmse=nmse, codec="uniform+ac", progress=False)
        if coded.exact is not None or coded.max_abs_error is None:
            return None
        if coded.max_abs_error <= most:
            return coded.bytes
        nmse *= min(0.9, (most / coded.max_abs_error) ** 2 * 0.95)
    return None


def _packed(kind: int, first: bytes, second: bytes = b"") -> bytes:
    body = first + second
    return _HEAD.pack(_MAGIC, kind, len(first), len(second), zlib.crc32(bytes([kind]) + body)) + body


def pack(x: torch.Tensor, error: float | None, logarithm: bool) -> bytes:
    """An item's bytes; ``error`` as `CheckpointWriter` has it."""
    x = x.detach().cpu().contiguous()
    if error is not None and x.is_floating_point() and x.numel() and bool(torch.isfinite(x).all()):
        if logarithm and bool((x >= 0).all()):
            zero = x == 0
            logs = x.double().clamp_min(torch.finfo(torch.float64).tiny).log2()
            middle = float(logs[~zero].mean()) if bool((~zero).any()) else 0.0
            logs = torch.where(zero, middle, logs).float() - middle
            # Half of it: the rest is for what single precision adds.
            coded = _bounded(logs, 0.5 * math.log2(1 + error)) if error >= _LEAST_SHARE else None
            if coded is not None:
                mask = _lossless(zero.flatten().to(torch.uint8)) if bool(zero.any()) else b""
                return _packed(_LOGARITHM, struct.pack("<d", middle) + coded, mask)
        elif not logarithm:
            coded = _bounded(x, error * float(x.double().square().mean().sqrt()))
            if coded is not None:
                return _packed(_PLAIN, coded)
    return _packed(_PLAIN, _lossless(x))


def unpack(data: bytes) -> torch.Tensor:
    """The tensor of an item's bytes."""
    if len(data) < _HEAD.size:
        raise RunError("an item of the checkpoint is cut")
    magic, kind, first, second, check = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC or len(body) != first + second or zlib.crc32(bytes([kind]) + body) != check:
        raise RunError("an item of the checkpoint is cut or damaged: its checksum does not hold")
    if kind == _PLAIN:
        values: torch.Tensor = Encoded(body[:first], "torch").decode()
        return values
    if kind != _LOGARITHM:
        raise RunError(f"an item of the checkpoint is of a kind, {kind}, that this Trinity does not know: load it with the one that wrote it")
    try:
        (middle,) = struct.unpack_from("<d", body)
        logs = Encoded(body[8:first], "torch").decode().double() + middle
        found: torch.Tensor = logs.exp2()
        if second:
            mask = Encoded(body[first:], "torch").decode().bool().reshape(found.shape)
            found = torch.where(mask, 0.0, found)
    except (struct.error, RuntimeError) as error:
        raise RunError(f"an item of the checkpoint does not hold what it says: {error}") from None
    return found


def _checked(data: bytes, place: _StorageInfo) -> bytes:
    """An item's bytes, which are those that were written with this metadata; checkpoints of before do not say."""
    said = next((one.removeprefix(_CHECK) for one in place.transform_descriptors or () if one.startswith(_CHECK)), None)
    if len(data) != place.length:
        raise RunError(f"an item of the checkpoint is cut: it has {len(data)} bytes of {place.length}")
    if said is not None and said != f"{zlib.crc32(data):08x}":
        raise RunError("an item of the checkpoint is cut, damaged or another checkpoint's: its checksum does not hold")
    return data


def _copied(target: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copies into another number format only where that keeps values."""
    if target.size() != tensor.size():
        raise RunError(f"it is {tuple(tensor.size())}, and {tuple(target.size())} is asked for")
    refused = f"it is {tensor.dtype}, and {target.dtype} is asked for, which does not hold its values: load it into a format that does"
    if not torch.can_cast(tensor.dtype, target.dtype):
        raise RunError(refused)
    target.copy_(tensor)
    if target.dtype == tensor.dtype or target.is_complex():
        return
    back = target.cpu().to(tensor.dtype)
    # Floating point is rounded as it ever is; it may not become infinite.
    kept = torch.equal(back.isfinite(), tensor.isfinite()) if tensor.is_floating_point() else torch.equal(back, tensor)
    if not kept:
        raise RunError(refused)


@contextlib.contextmanager
def _said(path: str | os.PathLike[str], does: str, what: str) -> Iterator[None]:
    """What the system says of a file, as a sentence."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be {does}: {error.strerror or error}: {what}") from None


def _done(result: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(result)
    return future


class CheckpointWriter(FileSystemWriter):
    """A ``FileSystemWriter`` of ``torch.distributed.checkpoint`` whose tensors are coded.

    Without an ``error`` every bit is kept. With one, no value of a float tensor is
    off by more than that share of its tensor's root mean square; tensors whose names
    match ``second_moments`` keep every value within that share of itself. Those that
    ``exact`` matches, integers, and tensors of fewer than 256 values keep every bit.
    ``plain_bytes`` and ``coded_bytes`` count what this rank wrote.

    ::

        dcp.save(state, storage_writer=trinity.torch.CheckpointWriter("step-100", error=1e-3))
        dcp.load(state, storage_reader=trinity.torch.CheckpointReader("step-100"))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        error: float | None = None,
        exact: Sequence[str] = (),
        second_moments: Sequence[str] = SECOND_MOMENTS,
        **keywords: Any,
    ) -> None:
        if error is not None and not 0 < error < 1:
            raise InputError(f"error={error}: expected a share between 0 and 1, or none for every bit")
        super().__init__(path, **keywords)
        self.error, self.exact, self.second_moments = error, tuple(exact), tuple(second_moments)
        self.plain_bytes = self.coded_bytes = 0

    def _item(self, item: Any, planner: SavePlanner) -> tuple[bytes, bool]:
        data = planner.resolve_data(item)
        if item.type == WriteItemType.BYTE_IO:
            return data.getbuffer().tobytes(), False  # type: ignore[union-attr]
        assert isinstance(data, torch.Tensor)
        name = item.index.fqn
        matches = lambda patterns: any(fnmatch.fnmatchcase(name, own) for own in patterns)  # noqa: E731
        packed = pack(data, None if matches(self.exact) else self.error, matches(self.second_moments))
        self.plain_bytes += data.numel() * data.element_size()
        self.coded_bytes += len(packed)
        return packed, True

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        name = f"{plan.storage_data.prefix}0{DEFAULT_SUFFIX}"
        results = []
        path = self.fs.concat_path(self.path, name)
        with _said(path, "written", "the checkpoint is not whole, and is not to be loaded"), self.fs.create_stream(path, "wb") as stream:
            for item in plan.items:
                data, is_coded = self._item(item, planner)
                offset = stream.tell()
                stream.write(data)
                about = [*([_DESCRIPTOR] if is_coded else []), f"{_CHECK}{zlib.crc32(data):08x}"]
                place = _StorageInfo(name, offset, len(data), transform_descriptors=about)
                results.append(WriteResult(index=item.index, size_in_bytes=len(data), storage_data=place))
            stream.flush()
            if self.sync_files:
                os.fsync(stream.fileno())
        return _done(results)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        with _said(self.path, "written", "the checkpoint has no metadata, and is not to be loaded"):
            super().finish(metadata, results)


class CheckpointReader(FileSystemReader):
    """Reads what `CheckpointWriter` wrote, into the same shards or others."""

    def read_metadata(self, *arguments: Any, **keywords: Any) -> Metadata:
        try:
            return super().read_metadata(*arguments, **keywords)
        except Exception as error:
            # Whatever a pickle that is cut or another's comes to.
            why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            path = self._get_metadata_path(keywords.get("rank"))
            raise RunError(f"{path} cannot be read: {why}: there is no checkpoint, or its saving did not end") from error

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            place: _StorageInfo = self.storage_data[item.storage_index]
            path = self.fs.concat_path(self.path, place.relative_path)
            with _said(path, "read", "a part of the checkpoint is missing"), self.fs.create_stream(path, "rb") as stream:
                stream.seek(place.offset)
                data = stream.read(place.length)
            try:
                self._put(item, _checked(data, place), place, planner)
            except (InputError, RunError) as error:
                raise RunError(f"{path}: `{item.storage_index.fqn}`: {error}") from None
        return _done(None)

    def _put(self, item: ReadItem, data: bytes, place: _StorageInfo, planner: LoadPlanner) -> None:
        """An item's bytes into what is asked for."""
        if item.type == LoadItemType.BYTE_IO:
            planner.load_bytes(item, io.BytesIO(data))
            return
        if _DESCRIPTOR in (place.transform_descriptors or ()):
            tensor = unpack(data)
        else:
            tensor = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        for side, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
            tensor = tensor.narrow(side, start, length)
        target = planner.resolve_tensor(item).detach()
        _copied(target, tensor)
        planner.commit_tensor(item, target)
