"""Weights that are coded where they lie: on a GPU, by its kernels, and never copied to the host.

A plan is chosen on the host from bands of rows of each weight; everything else is the
device's. So the bytes are not those of a model's file, whose plans see all values, and
a weight takes the room that its rate allows, filled to a hundredth or so.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from .. import _core
from .._errors import InputError
from .._progress import Report
from . import _rooms, _wire
from ._rooms import Rooms

#: Share of its room that a weight is to fill, and how often it is coded anew for that.
_FULL, _TRIES = 0.995, 4
#: Of the bits that a room has to spare, the share that the next try goes for.
_CAREFUL = 0.9
#: Bytes of a room's head that say how many of the others count.
_LENGTH_BYTES = 8


class OnUse:
    """A parameter that is decoded when it is asked for, and forgotten with the last who holds it."""

    _alive: weakref.ref[torch.Tensor] | None = None

    def decode(self) -> torch.Tensor:
        raise NotImplementedError

    def _decoded(self, like: torch.Tensor) -> torch.Tensor:
        """The parameter, for what lies where ``like`` does."""
        return self.decode()

    def tensor(self, like: torch.Tensor) -> torch.Tensor:
        held = None if self._alive is None else self._alive()
        if held is not None and held.dtype == like.dtype and held.device == like.device:
            return held
        decoded = self._decoded(like).to(device=like.device, dtype=like.dtype)
        self._alive = weakref.ref(decoded)
        return decoded


class Resident(OnUse):
    """A coded weight in the memory of its GPU, decoded there on the current stream."""

    def __init__(self, weight: torch.Tensor, bits: float, codec: str) -> None:
        self.shape, self.dtype, self.codec = weight.shape, weight.dtype, codec
        cols = _rooms.columns(weight.shape)
        values = weight.detach().contiguous().reshape(1, -1)
        # Weights are coded once: a trellis pays, as it does for a file's.
        self._rooms = Rooms(
            _rooms.padded(values.shape[1], cols), bits, weight.dtype, weight.device,
            best=_wire.ON_DEVICE[codec], cols=cols, trellis=True,
        )  # fmt: skip
        self._room = self._filled(self._rooms.whole(values))

    def _filled(self, row: torch.Tensor) -> torch.Tensor:
        """The room of a weight, coded as finely as fits; one that says so where a value is not finite."""
        room, gain = self._rooms.pack(row), 1.0
        for _ in range(_TRIES - 1):
            used = _used(room)
            if used == 0 or used >= _FULL * self._rooms.bytes:
                break
            # Half the step takes a bit more for each value; where that is too much the device takes it back.
            gain *= 2.0 ** (-_CAREFUL * 8.0 * (self._rooms.bytes - used) / self._rooms.values)
            finer = self._rooms.pack(row, gain)
            if _used(finer) <= used:
                break
            room = finer
        return room

    @property
    def is_finite(self) -> bool:
        """Whether there is a stream: there is none of a weight with a value that is not finite."""
        return _used(self._room) > 0

    @property
    def nbytes(self) -> int:
        return self._room.numel()

    def decode(self) -> torch.Tensor:
        """The weight, queued on the current stream and not waited for."""
        row = self._rooms.unpack(self._room)
        return row[0, : self.shape.numel()].reshape(self.shape)


def _used(room: torch.Tensor) -> int:
    """Bytes of a room that count; none where there is no stream. Waits for the device."""
    length = int(room[0, :_LENGTH_BYTES].view(torch.int64))
    return 0 if length < 0 else _core.ROOM_HEAD_BYTES + length


def _stand_in(at: int, tensor: torch.Tensor) -> Any:
    """What a plan sees of a tensor that stays where it is: shape and format, in pages that nobody touches.

    Its first bytes are a number of its own, or it would seem tied to others of its shape.
    """
    name = _rooms.dtype_name(tensor.dtype)
    data = np.zeros(tensor.numel() * tensor.element_size(), np.uint8)
    own = np.frombuffer(at.to_bytes(4, "little"), np.uint8)[: data.size]
    data[: own.size] = own
    return name, list(tensor.shape), data


def resident(
    owners: Mapping[str, Sequence[tuple[nn.Module, str]]], asked: dict[str, Any], report: Report | None = None
) -> tuple[dict[str, Resident], dict[str, Any]]:
    """A model's weights coded on their devices, by name, and the summary of it.

    ``owners`` are the names of parameters with who holds them, tied ones under each of
    their names; ``asked`` is what the extension module's plan takes.
    """
    named: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    skipped: dict[str, str] = {}
    for name, holders in owners.items():
        module, attribute = holders[0]
        parameter: Any = module._parameters[attribute]
        if id(parameter) not in seen:
            seen.add(id(parameter))
            named[name] = parameter
    texts: dict[str, str] = {}
    plain = [(name, None, *_stand_in(at, one)) for at, (name, one) in enumerate(named.items())]
    parts = _core.plan_model(plain, asked, texts)
    for (name, tensor), (codec, target, _, why, _, _) in zip(named.items(), parts):
        if why is not None:
            skipped[name] = why
        elif not tensor.is_cuda:
            raise InputError.advised(f"`{name}` is on {tensor.device}, where nothing codes it", "move the model to a GPU, or leave out where=")
        elif codec not in _wire.ON_DEVICE or target != "bits":
            raise InputError.advised(f"`{name}`: no GPU has kernels for {codec}", f"codec= one of {', '.join(_wire.ON_DEVICE)}")
    coded_names = [(name, part[0], part[2]) for name, part in zip(named, parts) if part[3] is None]
    total = sum(named[name].numel() for name, _, _ in coded_names)
    made: dict[str, Resident] = {}
    rows: list[dict[str, Any]] = []
    energy = lost = 0.0
    done = 0
    for name, codec, bits in coded_names:
        tensor = named[name]
        row = _Row.of(name, tensor, codec, bits) if tensor.numel() > _rooms.SMALL_VALUES else None
        done += tensor.numel()
        if report is not None:
            report("encoding", done, total)
        if row is None or not row.coded.is_finite:
            skipped[name] = f"{_rooms.SMALL_VALUES} values or fewer" if row is None else "a value is not finite"
            continue
        made[name] = row.coded
        energy, lost = energy + row.energy, lost + row.lost
        rows.append(row.summary())
    values, size = sum(row["values"] for row in rows), sum(row["bytes"] for row in rows)
    summary = {
        "bytes": size, "values": values, "bits_per_value": 8.0 * size / max(values, 1),
        "nmse": lost / energy if energy > 0 else 0.0, "tensors": rows, "skipped": skipped,
    }  # fmt: skip
    return made, summary


@dataclasses.dataclass
class _Row:
    """A weight that was coded, with its energy and that of what coding lost."""

    tensor: str
    codec: str
    coded: Resident
    energy: float
    lost: float

    @classmethod
    def of(cls, name: str, weight: torch.Tensor, codec: str, bits: float) -> _Row:
        coded = Resident(weight, bits, codec)
        wide = weight.detach().float()
        energy = torch.linalg.vector_norm(wide).square()
        lost = torch.linalg.vector_norm(wide - coded.decode().float()).square()
        return cls(name, codec, coded, float(energy), float(lost))

    def summary(self) -> dict[str, Any]:
        values = self.coded.shape.numel()
        return {
            "tensor": self.tensor, "codec": self.codec, "values": values, "bytes": self.coded.nbytes, "exact": None,
            "bits_per_value": 8.0 * self.coded.nbytes / values, "nmse": self.lost / self.energy if self.energy > 0 else 0.0,
        }  # fmt: skip
