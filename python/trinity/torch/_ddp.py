"""Data-parallel gradients, coded on the wire.

A packed gradient cannot be summed on the way, so an all-reduce becomes two
steps: every rank gets its shard of everybody's gradient (all-to-all), sums it in
single precision in the order of ranks, and gives the sum to everybody
(all-gather). Both steps carry coded bytes. All ranks decode the same bytes in
the end, so all of them hold the same bits.
"""

# Annotations are not postponed here: DDP compares those of a hook with its classes.
from typing import Any

import torch
import torch.distributed as dist

from . import _wire


class DdpHook:
    """What `ddp_hook` makes; ``sent_bytes`` counts what this rank put on the wire, and
    ``plain_bytes`` what the same gradients would have taken as they are.
    """

    def __init__(
        self, bits: float, error_feedback: bool, codec: str, process_group: dist.ProcessGroup | None
    ) -> None:
        if not bits > 0:
            raise ValueError(f"bits={bits}: expected a number above zero")
        # DDP names hooks in its logs, as it would a function.
        self.__name__ = self.__qualname__ = "trinity.torch.ddp_hook"
        self.bits = bits
        self.error_feedback = error_feedback
        self.codec = codec
        self.group = process_group
        self.sent_bytes = 0
        self.plain_bytes = 0
        # What coding lost of a bucket, by its index; and of the sum this rank is in charge of.
        self._lost: dict[int, torch.Tensor] = {}
        self._lost_of_sum: dict[int, torch.Tensor] = {}

    def __call__(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        buffer = bucket.buffer()
        result = buffer.detach().clone() if dist.get_world_size(self.group) == 1 else self._exchange(bucket.index(), buffer)
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(result)
        return future

    def _compensated(self, kept: dict[int, torch.Tensor], index: int, x: torch.Tensor) -> torch.Tensor:
        """The values with what was lost of them last time; a bucket that changed its size starts anew."""
        lost = kept.get(index)
        return x + lost if self.error_feedback and lost is not None and lost.shape == x.shape else x

    def _remember(self, kept: dict[int, torch.Tensor], index: int, meant: torch.Tensor, sent: torch.Tensor) -> None:
        if self.error_feedback:
            lost = meant - sent
            # A step that overflowed says nothing of what the next one lacks.
            kept[index] = torch.where(torch.isfinite(lost), lost, torch.zeros_like(lost))

    def _exchange(self, index: int, buffer: torch.Tensor) -> torch.Tensor:
        group, ranks = self.group, dist.get_world_size(self.group)
        values = buffer.detach().to(device="cpu", dtype=torch.float32).reshape(-1)
        length = -(-values.numel() // ranks)
        padded = torch.zeros(ranks * length)
        padded[: values.numel()] = values
        meant = self._compensated(self._lost, index, padded).reshape(ranks, length)
        size = _wire.capacity(length, self.bits, 4)

        packed = torch.stack([_wire.pack(shard, self.bits, self.codec) for shard in meant])
        shapes = [(length,)] * ranks
        sent = torch.stack(_wire.unpack_all(list(packed), shapes, torch.float32))
        self._remember(self._lost, index, meant.reshape(-1), sent.reshape(-1))

        wire = packed.reshape(-1).to(buffer.device) if buffer.is_cuda else packed.reshape(-1)
        received = torch.empty_like(wire)
        dist.all_to_all_single(received, wire, group=group)
        parts = _wire.unpack_all(list(received.cpu().reshape(ranks, size)), shapes, torch.float32)
        total = torch.zeros(length)
        for part in parts:
            total += part
        total /= ranks

        meant_sum = self._compensated(self._lost_of_sum, index, total)
        own = _wire.pack(meant_sum, self.bits, self.codec)
        self._remember(self._lost_of_sum, index, meant_sum, _wire.unpack(own, (length,), torch.float32))
        own = own.to(buffer.device) if buffer.is_cuda else own
        gathered = torch.empty(ranks * size, dtype=torch.uint8, device=own.device)
        dist.all_gather_into_tensor(gathered, own, group=group)
        sums = _wire.unpack_all(list(gathered.cpu().reshape(ranks, size)), shapes, torch.float32)

        self.sent_bytes += 2 * (ranks - 1) * size
        self.plain_bytes += 2 * (ranks - 1) * length * buffer.element_size()
        whole = torch.cat(sums)[: values.numel()]
        return whole.to(device=buffer.device, dtype=buffer.dtype).reshape(buffer.shape)


def ddp_hook(
    bits: float = 2.6,
    error_feedback: bool = True,
    *,
    codec: str = "line",
    process_group: dist.ProcessGroup | None = None,
) -> DdpHook:
    """A communication hook for ``DistributedDataParallel``: gradients at ``bits`` per value.

    What coding loses in a step is added to the next one's gradient with
    ``error_feedback``. Every rank ends with the same bits. Buckets are coded on
    the CPU, whatever device they are on; ``gloo`` and ``nccl`` carry them. A
    gradient that is not finite arrives as NaN on all ranks, as a sum would be.

    ::

        model = DistributedDataParallel(model)
        model.register_comm_hook(None, trinity.torch.ddp_hook(bits=2.6))
    """
    return DdpHook(bits, error_feedback, codec, process_group)
