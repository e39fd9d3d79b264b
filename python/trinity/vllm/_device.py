"""Matrices of blocks coded on the GPU that they lie on, many in one launch.

A plan is chosen on the host from the first matrices of a name, and kept: what streams take of their room says whether
it still fits. Streams are those of the line-rate codec, which a CPU decodes to the same values. Knows tensors and
streams; knows nothing of keys, files and engines.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import _core
from .._errors import InputError, RunError
from ..torch import _rooms, _wire
from ..torch._rooms import Rooms
from ._store import Stream

#: Codecs that have kernels.
CODECS = frozenset(_wire.ON_DEVICE)
#: Share of its room that a matrix is to fill: one that does not fit is coded twice.
_FULL = 0.985
#: A plan is chosen anew where steps must be so many powers of two from its own, after so many matrices at least.
_OFF, _LEAST_USES = 0.4, 32
#: Plans that decoders are kept for.
_DECODERS = 256
#: Where a stream and a tensor may begin in memory.
_ALIGNED = 16
#: A header has a magic of three bytes, two numbers and a step at least.
_LEAST_HEAD = 3 + 2 * 5 + 4
#: Columns that kernels like are a multiple of these.
_COLUMNS = 64


class _Matrices:
    """Matrices of one name and shape: their plan, and how finely the next ones are coded under it."""

    def __init__(self, shape: tuple[int, int], bits: float, codec: str, device: torch.device) -> None:
        self.bits, self._gain, self._uses = bits, 1.0, 0
        # Matrices under this plan that had no stream: a value was not finite, or no step that was tried made it fit.
        self._left_out = 0
        # Blocks are coded once: a trellis pays, as it does on a CPU.
        self.rooms = Rooms(
            shape[0] * shape[1], bits, torch.float32, device, best=_wire.ON_DEVICE[codec], cols=shape[1], trellis=True, with_means=True
        )  # fmt: skip
        #: Bytes of a stream's header.
        self.head = 0

    def pack(self, rows: torch.Tensor) -> torch.Tensor:
        """Rooms of matrices, one a row; queued, but where a plan is to be chosen."""
        is_off = (self._left_out > 0 or abs(math.log2(self._gain)) > _OFF) and self._uses >= _LEAST_USES << min(self.rooms.chosen, _COLUMNS)
        if self.rooms.coder is None or is_off:
            self.rooms.adopt(self.rooms.choose(rows))
            assert self.rooms.coder is not None
            self.head = _core.line_plan_info(self.rooms.coder.plan)[3]
            self._gain, self._uses, self._left_out = 1.0, 0, 0
        self._uses += rows.shape[0]
        return self.rooms.pack(rows, self._gain)

    def learn(self, lengths: Sequence[int]) -> None:
        """Takes the next step from what these took of their rooms: half of it takes a bit more for each value."""
        self._left_out += sum(one <= 0 for one in lengths)
        used = [(_core.ROOM_HEAD_BYTES + one) / self.rooms.bytes for one in lengths if one > 0]
        if used:
            self._gain *= 2.0 ** (self.bits * (sum(used) / len(used) - _FULL))


class DeviceCoder:
    """What codes the matrices of blocks on a GPU, and decodes them there.

    Several threads may encode, and beside them one may decode.
    """

    def __init__(self, bits: float, codec: str, device: torch.device) -> None:
        self.bits, self.codec, self.device = bits, codec, device
        self._kept: dict[tuple[str, tuple[int, ...]], _Matrices] = {}
        #: Matrices that no plan is for: they are coded on the host.
        self._left: set[tuple[str, tuple[int, ...]]] = set()
        self._decoders: OrderedDict[bytes, Any] = OrderedDict()
        self._lock = threading.Lock()

    def _takes(self, name: str, one: torch.Tensor) -> bool:
        fits = one.dim() == 2 and one.dtype == torch.float32 and one.numel() > _rooms.SMALL_VALUES
        return fits and one.shape[1] % _COLUMNS == 0 and _rooms.columns(one.shape) == one.shape[1] and (name, tuple(one.shape)) not in self._left

    def encode(self, blocks: Sequence[Mapping[str, torch.Tensor]], exact: Collection[str]) -> list[dict[str, torch.Tensor | Stream]]:
        """Blocks with their matrices as streams, and all else on the host: in one launch for each name, one wait for all.

        What ``exact`` names, and what kernels or a plan cannot take, is as it was.
        """
        with self._lock:
            places: dict[tuple[str, tuple[int, ...]], list[int]] = {}
            for at, block in enumerate(blocks):
                for name, one in block.items():
                    if name not in exact and self._takes(name, one):
                        places.setdefault((name, tuple(one.shape)), []).append(at)
            packed = {key: self._packed(key, [blocks[at][key[0]] for at in own]) for key, own in places.items()}
            rooms = {key: one for key, one in packed.items() if one is not None}
            taken = {(at, key[0]) for key in rooms for at in places[key]}
            rest = [(at, name) for at, block in enumerate(blocks) for name in block if (at, name) not in taken]
            hosts = self._to_host([*rooms.values(), *(blocks[at][name] for at, name in rest)])
            found: list[dict[str, torch.Tensor | Stream]] = [dict(block) for block in blocks]
            for key, host in zip(rooms, hosts):
                for at, own in zip(places[key], self._streams(key, host)):
                    found[at][key[0]] = own if own is not None else blocks[at][key[0]].cpu()
            for (at, name), own in zip(rest, hosts[len(rooms) :]):
                found[at][name] = own
            return found

    def _packed(self, key: tuple[str, tuple[int, ...]], matrices: Sequence[torch.Tensor]) -> torch.Tensor | None:
        rows = torch.stack([one.reshape(-1) for one in matrices])
        try:
            if key not in self._kept:
                self._kept[key] = _Matrices((key[1][0], key[1][1]), self.bits, self.codec, self.device)
            return self._kept[key].pack(rows)
        except (InputError, RunError):
            # No plan is short enough for so few values at this rate.
            self._left.add(key)
            return None

    def _streams(self, key: tuple[str, tuple[int, ...]], host: torch.Tensor) -> list[Stream | None]:
        """Streams of rooms; nothing of one that holds none."""
        kept, begin = self._kept[key], _core.ROOM_HEAD_BYTES
        lengths = [int.from_bytes(room[:8].tobytes(), "little", signed=True) for room in host.numpy()]
        kept.learn(lengths)
        streams = [room[begin : begin + length].tobytes() if length > 0 else None for room, length in zip(host.numpy(), lengths)]
        return [None if one is None else Stream(one, kept.head, key[1]) for one in streams]

    def _to_host(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies on the host, of which only the last is waited for."""
        starts = _starts([one.nbytes for one in tensors])
        memory = self._pinned(starts[-1])
        for one, start in zip(tensors, starts):
            memory[start : start + one.nbytes].copy_(one.contiguous().reshape(-1).view(torch.uint8), non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        # Copies of their own: what is pinned is wanted again.
        return [memory[start : start + one.nbytes].clone().view(one.dtype).reshape(one.shape) for one, start in zip(tensors, starts)]

    def to_device(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors of the host on the device, by one copy that is not waited for."""
        pieces = self._placed([one.contiguous().reshape(-1).view(torch.uint8).numpy() for one in tensors])
        return [piece.view(one.dtype).reshape(one.shape) for piece, one in zip(pieces, tensors)]

    def _placed(self, pieces: Sequence[Any]) -> list[torch.Tensor]:
        starts = _starts([len(one) for one in pieces])
        memory = self._pinned(starts[-1])
        there = memory.numpy()
        for one, start in zip(pieces, starts):
            there[start : start + len(one)] = one
        moved = memory.to(self.device, non_blocking=True)
        return [moved[start : start + len(one)] for one, start in zip(pieces, starts)]

    def _pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    def decode(self, streams: Sequence[Stream]) -> list[torch.Tensor]:
        """Matrices of streams, in one launch for each plan; queued on the current stream, and not waited for.

        Who calls knows by a digest that streams are as they were written: what is damaged would decode to something else.
        """
        sources = self._placed([np.frombuffer(one.bytes, np.uint8) for one in streams])
        plans: dict[tuple[bytes, tuple[int, ...]], list[int]] = {}
        for at, stream in enumerate(streams):
            plans.setdefault((_plan_of(stream), stream.shape), []).append(at)
        found: dict[int, torch.Tensor] = {}
        for (plan, shape), places in plans.items():
            decoder = self._decoder(plan, streams[places[0]])
            out = torch.empty(len(places), *shape, dtype=torch.float32, device=self.device)
            bytes_out, workspace_bytes = decoder.sizes(len(places))
            if bytes_out != out[0].nbytes:
                raise InputError(f"a stream is of {bytes_out // out.element_size()} values, and its matrix is {shape}")
            workspace = torch.empty(workspace_bytes, dtype=torch.uint8, device=self.device)
            decoder.decode_many(
                [sources[at].data_ptr() for at in places], [sources[at].numel() for at in places], [one.data_ptr() for one in out],
                workspace.data_ptr(), _rooms._stream(self.device),
            )  # fmt: skip
            found |= zip(places, out)
        return [found[at] for at in range(len(streams))]

    def _decoder(self, plan: bytes, stream: Stream) -> Any:
        if plan not in self._decoders:
            self._decoders[plan] = _rooms.device_of(self.device).decoder(bytes(stream.bytes), "f32")
            while len(self._decoders) > _DECODERS:
                self._decoders.popitem(last=False)
        self._decoders.move_to_end(plan)
        return self._decoders[plan]


def _starts(sizes: Sequence[int]) -> list[int]:
    """Where each begins that lies behind the others, and the end of all."""
    starts = [0]
    for size in sizes:
        starts.append(-(-(starts[-1] + size) // _ALIGNED) * _ALIGNED)
    return starts


def step_at(stream: bytes | memoryview) -> int:
    """The byte at which a stream's header states its step: behind the magic and two numbers whose last byte has no upper bit."""
    at = 3
    for _ in range(2):
        while stream[at] >= 0x80:
            at += 1
        at += 1
    return at


def _plan_of(stream: Stream) -> bytes:
    """A stream's header without its step: streams of equal ones are decoded together."""
    if not _LEAST_HEAD < stream.head <= len(stream.bytes):
        raise InputError(f"a stream of {len(stream.bytes)} bytes with a header of {stream.head}")
    at = step_at(stream.bytes)
    return bytes(stream.bytes[:at]) + bytes(stream.bytes[at + 4 : stream.head])
