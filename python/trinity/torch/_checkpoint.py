"""Checkpoints of ``torch.distributed.checkpoint``, coded: weights and the state of optimizers.

Every bit is kept unless an error is allowed. Second moments are coded by their
logarithm: what an optimizer divides by the root of must keep its size, however
small it is. Files are those of a ``FileSystemWriter``, with what each item takes
beside where it lies, so that ranks, shards and ``async_save`` are as before.
"""

from __future__ import annotations

import fnmatch
import io
import math
import os
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import DEFAULT_SUFFIX, FileSystemReader, FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, SavePlan, SavePlanner, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .. import _coded
from .._coded import Encoded
from .._errors import InputError, RunError

#: Names a coded item in the metadata: a reader that knows of none stops there.
_DESCRIPTOR = "trinity"
_MAGIC = b"TRIC"
#: Kinds of payload: the values, or the binary logarithm of values above zero.
_PLAIN, _LOGARITHM = 0, 1
_HEAD = struct.Struct("<4sBIII")
#: How often a code is made finer until no value is off by more than is allowed.
_TRIES = 4
#: A logarithm in single precision keeps no value nearer than that.
_LEAST_SHARE = 2e-5
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
    (middle,) = struct.unpack_from("<d", body)
    logs = Encoded(body[8:first], "torch").decode().double() + middle
    found: torch.Tensor = logs.exp2()
    if second:
        mask = Encoded(body[first:], "torch").decode().bool().reshape(found.shape)
        found = torch.where(mask, 0.0, found)
    return found


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
        with self.fs.create_stream(self.fs.concat_path(self.path, name), "wb") as stream:
            for item in plan.items:
                data, is_coded = self._item(item, planner)
                offset = stream.tell()
                stream.write(data)
                place = _StorageInfo(name, offset, len(data), transform_descriptors=[_DESCRIPTOR] if is_coded else None)
                results.append(WriteResult(index=item.index, size_in_bytes=len(data), storage_data=place))
            stream.flush()
            if self.sync_files:
                os.fsync(stream.fileno())
        done: Future[list[WriteResult]] = Future()
        done.set_result(results)
        return done


class CheckpointReader(FileSystemReader):
    """Reads what `CheckpointWriter` wrote, into the same shards or others."""

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        for item in plan.items:
            place: _StorageInfo = self.storage_data[item.storage_index]
            path = self.fs.concat_path(self.path, place.relative_path)
            with self.fs.create_stream(path, "rb") as stream:
                stream.seek(place.offset)
                data = stream.read(place.length)
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(data))
                continue
            if _DESCRIPTOR not in (place.transform_descriptors or ()):
                tensor = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            else:
                try:
                    tensor = unpack(data)
                except (InputError, RunError) as error:
                    raise RunError(f"{path}: `{item.storage_index.fqn}`: {error}") from None
            for side, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                tensor = tensor.narrow(side, start, length)
            target = planner.resolve_tensor(item).detach()
            if target.size() != tensor.size():
                raise RunError(f"{path}: `{item.storage_index.fqn}` is {tuple(tensor.size())}, and {tuple(target.size())} is asked for")
            target.copy_(tensor)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done
