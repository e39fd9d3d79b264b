"""Gradients in shards: to the rank in charge of each, and back as sums.

On a GPU shards are coded into rooms on the device and on the stream they came on, so a
collective has sizes that are known ahead; nothing is copied to the host and nothing
is waited for, but that a plan is chosen now and then. Rank 0 chooses it for all: rooms
are decoded under the plan they were coded under. Elsewhere the host codes them (`HostShards`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from .._errors import InputError
from . import _wire
from ._plans import Planned
from ._rooms import Rooms, padded


def wire_of(device: torch.device, group: dist.ProcessGroup | None) -> torch.device:
    """Where a collective takes its bytes: ``nccl`` from the device, others from the host."""
    return device if dist.get_backend(group) == "nccl" else torch.device("cpu")


def _agree(rooms: Rooms, x: torch.Tensor, group: dist.ProcessGroup | None) -> None:
    """Gives every rank the plan that rank 0 chooses, where one is due."""
    if not rooms.is_due:
        return
    first = dist.get_global_rank(group, 0) if group is not None else 0
    wire = wire_of(x.device, group)
    plan, trouble = b"", "rank 0 could not choose a plan"
    if dist.get_rank(group) == 0:
        try:
            plan = rooms.choose(x)
        except InputError as error:
            # Said to all: nobody waits for a plan that does not come.
            trouble = str(error)
    length = torch.tensor([len(plan)], device=wire)
    dist.broadcast(length, first, group=group)
    if int(length) == 0:
        raise InputError(f"{rooms.values} values at {rooms.bits} bits each: {trouble}")
    payload = torch.zeros(int(length), dtype=torch.uint8)
    if plan:
        payload = torch.frombuffer(bytearray(plan), dtype=torch.uint8)
    payload = payload.to(wire)
    dist.broadcast(payload, first, group=group)
    rooms.adopt(payload.cpu().numpy().tobytes())


def _finite(lost: torch.Tensor) -> torch.Tensor:
    """What coding lost: a step that overflowed says nothing of what the next one lacks."""
    return torch.where(torch.isfinite(lost), lost, torch.zeros_like(lost))


class Shards:
    """What carries the gradients of one bucket, ``length`` values for each rank, between GPUs."""

    def __init__(
        self,
        length: int,
        bits: float,
        codec: str,
        device: torch.device,
        *,
        error_feedback: bool = False,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.length, self.group, self.error_feedback, self.where = length, group, error_feedback, device
        self.ranks = dist.get_world_size(group)
        best = _wire.ON_DEVICE[codec]
        # Backward goes on meanwhile.
        self._out = Rooms(padded(length), bits, torch.float32, device, best=best, beside=self.ranks)
        self._back = Rooms(padded(length), bits, torch.float32, device, best=best, beside=self.ranks)
        self._lost: torch.Tensor | None = None
        self._lost_of_sum: torch.Tensor | None = None

    @property
    def bytes(self) -> int:
        """Bytes of a coded shard."""
        return self._out.bytes

    @property
    def plans(self) -> int:
        """How often a plan was chosen."""
        return self._out.chosen + self._back.chosen

    def scattered(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over ranks of this rank's shard, given one shard for each rank."""
        meant = x if self._lost is None else x + self._lost
        rows = self._out.whole(meant)
        _agree(self._out, rows, self.group)
        packed = self._out.pack(rows)
        if self.error_feedback:
            self._lost = _finite(meant - self._out.unpack(packed)[:, : self.length])
        wire = packed.to(wire_of(packed.device, self.group))
        received = torch.empty_like(wire)
        dist.all_to_all_single(received.reshape(-1), wire.reshape(-1), group=self.group)
        shards = self._out.unpack(received.to(packed.device))[:, : self.length]
        return shards.sum(0) if self.ranks > 1 else shards[0]

    def gathered(self, total: torch.Tensor) -> torch.Tensor:
        """Every rank's shard, from everybody's own: the same bits on all of them."""
        meant = total if self._lost_of_sum is None else total + self._lost_of_sum
        row = self._back.whole(meant.reshape(1, -1))
        _agree(self._back, row, self.group)
        own = self._back.pack(row)
        if self.error_feedback:
            self._lost_of_sum = _finite(meant - self._back.unpack(own)[0, : self.length])
        wire = own.to(wire_of(own.device, self.group))
        everyone = torch.empty(self.ranks, own.shape[1], dtype=torch.uint8, device=wire.device)
        dist.all_gather_into_tensor(everyone.reshape(-1), wire.reshape(-1), group=self.group)
        return self._back.unpack(everyone.to(own.device))[:, : self.length].reshape(-1)


class HostShards:
    """What `Shards` is, coded on the host, for shards of any length; collectives take their bytes from ``device``."""

    def __init__(self, bits: float, codec: str, device: torch.device, *, error_feedback: bool = False, group: dist.ProcessGroup | None = None) -> None:
        self.bits, self.codec, self.device, self.group, self.error_feedback = bits, codec, device, group, error_feedback
        self.ranks, self.where = dist.get_world_size(group), torch.device("cpu")
        # Plans by the rank that a shard goes to; of the sum, by -1.
        self._planned: dict[int, Planned | None] = {}
        self._lost: torch.Tensor | None = None
        self._lost_of_sum: torch.Tensor | None = None
        #: Bytes of a coded shard.
        self.bytes = 0

    @property
    def plans(self) -> int:
        return sum(one.chosen for one in self._planned.values() if one is not None)

    def _pack(self, place: int, x: torch.Tensor) -> torch.Tensor:
        if place not in self._planned:
            self._planned[place] = _wire.planner(self.bits, self.codec)
        return _wire.pack(x, self.bits, self.codec, self._planned[place])

    def _shards(self, packed: torch.Tensor, length: int) -> list[torch.Tensor]:
        return _wire.unpack_all(list(packed.cpu().reshape(self.ranks, -1)), [(length,)] * self.ranks, torch.float32)

    def scattered(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over ranks, in their order, of this rank's shard, given one shard for each rank."""
        meant = _compensated(x, self._lost)
        packed = torch.stack([self._pack(rank, shard) for rank, shard in enumerate(meant)])
        self.bytes, length = packed.shape[1], x.shape[1]
        if self.error_feedback:
            self._lost = _finite(meant - torch.stack(self._shards(packed, length)))
        wire = packed.reshape(-1).to(self.device)
        received = torch.empty_like(wire)
        dist.all_to_all_single(received, wire, group=self.group)
        total = torch.zeros(length)
        for shard in self._shards(received, length):
            total += shard
        return total

    def gathered(self, total: torch.Tensor) -> torch.Tensor:
        meant = _compensated(total, self._lost_of_sum)
        own = self._pack(-1, meant)
        if self.error_feedback:
            self._lost_of_sum = _finite(meant - _wire.unpack(own, (len(total),), torch.float32))
        own = own.to(self.device)
        everyone = torch.empty(self.ranks * own.numel(), dtype=torch.uint8, device=self.device)
        dist.all_gather_into_tensor(everyone, own, group=self.group)
        return torch.cat(self._shards(everyone, len(total)))


Carrier = Shards | HostShards


def carrier(before: Carrier | None, length: int, bits: float, codec: str, device: torch.device, **options: Any) -> Carrier:
    """What carries shards of a length: on a GPU, where it has kernels for the codec, anew for other lengths or ranks."""
    if device.type != "cuda" or codec not in _wire.ON_DEVICE:
        return before or HostShards(bits, codec, device, **options)
    if isinstance(before, Shards) and (before.length, before.ranks) == (length, dist.get_world_size(options["group"])):
        return before
    return Shards(length, bits, codec, device, **options)


def _compensated(x: torch.Tensor, lost: torch.Tensor | None) -> torch.Tensor:
    """Values with what was lost of them last time; where they are another number of them, anew."""
    return x + lost if lost is not None and lost.shape == x.shape else x
