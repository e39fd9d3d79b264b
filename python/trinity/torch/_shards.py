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


class Carrier:
    """What carries gradients in shards, one for each rank; how they are coded, those that follow know."""

    def __init__(self, where: torch.device, wire: torch.device, error_feedback: bool, group: dist.ProcessGroup | None) -> None:
        #: Where values are coded, and where collectives take their bytes.
        self.where, self._wire = where, wire
        self.error_feedback, self.group, self.ranks = error_feedback, group, dist.get_world_size(group)
        #: What coding lost of every rank's shard, and of the sum this rank is in charge of.
        self._lost: torch.Tensor | None = None
        self._lost_of_sum: torch.Tensor | None = None

    def _coded(self, rows: torch.Tensor, back: bool) -> torch.Tensor:
        """Shards on their way to others, or sums on their way back, one a row, as rows of bytes."""
        raise NotImplementedError

    def _decoded(self, packed: torch.Tensor, length: int, back: bool) -> torch.Tensor:
        raise NotImplementedError

    def _sum(self, shards: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def scattered(self, x: torch.Tensor) -> torch.Tensor:
        """The sum over ranks of this rank's shard, given one shard for each rank."""
        meant, length = _compensated(x, self._lost), x.shape[1]
        packed = self._coded(meant, False)
        if self.error_feedback:
            self._lost = _finite(meant - self._decoded(packed, length, False))
        wire = packed.to(self._wire)
        received = torch.empty_like(wire)
        dist.all_to_all_single(received.reshape(-1), wire.reshape(-1), group=self.group)
        return self._sum(self._decoded(received.to(self.where), length, False))

    def gathered(self, total: torch.Tensor) -> torch.Tensor:
        """Every rank's shard, from everybody's own: the same bits on all of them."""
        meant, length = _compensated(total, self._lost_of_sum), len(total)
        own = self._coded(meant.reshape(1, -1), True)
        if self.error_feedback:
            self._lost_of_sum = _finite(meant - self._decoded(own, length, True)[0])
        wire = own.to(self._wire)
        everyone = torch.empty(self.ranks, own.shape[1], dtype=torch.uint8, device=wire.device)
        dist.all_gather_into_tensor(everyone.reshape(-1), wire.reshape(-1), group=self.group)
        return self._decoded(everyone.to(self.where), length, True).reshape(-1)


class Shards(Carrier):
    """What carries the gradients of one bucket, ``length`` values for each rank, between GPUs."""

    def __init__(self, length: int, bits: float, codec: str, device: torch.device, *, error_feedback: bool, group: dist.ProcessGroup | None) -> None:
        super().__init__(device, wire_of(device, group), error_feedback, group)
        self.length, best = length, _wire.ON_DEVICE[codec]
        # Backward goes on meanwhile.
        self._out, self._back = (Rooms(padded(length), bits, torch.float32, device, best=best, beside=self.ranks) for _ in range(2))

    @property
    def bytes(self) -> int:
        """Bytes of a coded shard."""
        return self._out.bytes

    @property
    def plans(self) -> int:
        """How often a plan was chosen."""
        return self._out.chosen + self._back.chosen

    def _coded(self, rows: torch.Tensor, back: bool) -> torch.Tensor:
        rooms = self._back if back else self._out
        rows = rooms.whole(rows)
        _agree(rooms, rows, self.group)
        return rooms.pack(rows)

    def _decoded(self, packed: torch.Tensor, length: int, back: bool) -> torch.Tensor:
        return (self._back if back else self._out).unpack(packed)[:, :length]

    def _sum(self, shards: torch.Tensor) -> torch.Tensor:
        return shards.sum(0) if self.ranks > 1 else shards[0]


class HostShards(Carrier):
    """Shards of any length, coded on the host; their sum is in the order of ranks."""

    def __init__(self, bits: float, codec: str, device: torch.device, *, error_feedback: bool, group: dist.ProcessGroup | None) -> None:
        super().__init__(torch.device("cpu"), device, error_feedback, group)
        self.bits, self.codec, self.bytes = bits, codec, 0
        # Plans by the rank that a shard goes to; of the sum, by -1.
        self._planned: dict[int, Planned | None] = {}

    @property
    def plans(self) -> int:
        return sum(one.chosen for one in self._planned.values() if one is not None)

    def _coded(self, rows: torch.Tensor, back: bool) -> torch.Tensor:
        packed = []
        for place, row in zip([-1] if back else range(self.ranks), rows):
            if place not in self._planned:
                self._planned[place] = _wire.planner(self.bits, self.codec)
            packed.append(_wire.pack(row, self.bits, self.codec, self._planned[place]))
        self.bytes = packed[0].numel()
        return torch.stack(packed)

    def _decoded(self, packed: torch.Tensor, length: int, back: bool) -> torch.Tensor:
        return torch.stack(_wire.unpack_all(list(packed), [(length,)] * len(packed), torch.float32))

    def _sum(self, shards: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(shards.shape[1])
        for shard in shards:
            total += shard
        return total


def carrier(before: Carrier | None, length: int, bits: float, codec: str, device: torch.device, **options: Any) -> Shards | HostShards:
    """What carries shards of a length: on a GPU, where it has kernels for the codec, anew for other lengths or ranks."""
    if device.type != "cuda" or codec not in _wire.ON_DEVICE:
        return before if isinstance(before, HostShards) else HostShards(bits, codec, device, **options)
    if isinstance(before, Shards) and (before.length, before.ranks) == (length, dist.get_world_size(options["group"])):
        return before
    return Shards(length, bits, codec, device, **options)


def _compensated(x: torch.Tensor, lost: torch.Tensor | None) -> torch.Tensor:
    """Values with what was lost of them last time; where they are another number of them, anew."""
    return x + lost if lost is not None and lost.shape == x.shape else x
