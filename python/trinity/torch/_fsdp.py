"""Sharded training (FSDP2): gradients reduced and scattered as coded bytes.

``fully_shard`` lets a module bring a reduce-scatter of its own. This one sends
every rank its shard of everybody's gradient coded, sums in single precision in
the order of ranks, and remembers what coding lost. Parameters are gathered as
they are: coded, they would no longer be those that the optimizer keeps.
"""

import importlib
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .._errors import InputError
from . import _wire
from ._plans import Planned
from ._shards import Shards


class CodedReduceScatter:
    """What `fsdp_` gives a sharded module; ``sent_bytes`` and ``plain_bytes`` count as those of `DdpHook` do."""

    def __init__(self, bits: float, error_feedback: bool, codec: str) -> None:
        self.bits = bits
        self.error_feedback = error_feedback
        self.codec = codec
        self.sent_bytes = 0
        self.plain_bytes = 0
        self._lost: torch.Tensor | None = None
        self._planned: dict[int, Planned | None] = {}
        self._shards: Shards | None = None

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def _pack(self, rank: int, shard: torch.Tensor) -> torch.Tensor:
        if rank not in self._planned:
            self._planned[rank] = _wire.planner(self.bits, self.codec)
        return _wire.pack(shard, self.bits, self.codec, self._planned[rank])

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise InputError(f"a coded reduce-scatter sums or averages, and {op} was asked for")
        if input_tensor.is_cuda and self.codec in _wire.ON_DEVICE:
            self._on_device(output_tensor, input_tensor, group, op == dist.ReduceOp.AVG)
            return
        ranks, length = dist.get_world_size(group), output_tensor.numel()
        meant = input_tensor.detach().to(device="cpu", dtype=torch.float32).reshape(ranks, length)
        if self.error_feedback and self._lost is not None and self._lost.shape == meant.shape:
            meant = meant + self._lost
        packed = torch.stack([self._pack(rank, shard) for rank, shard in enumerate(meant)])
        shapes = [(length,)] * ranks
        if self.error_feedback:
            lost = meant - torch.stack(_wire.unpack_all(list(packed), shapes, torch.float32))
            # A step that overflowed says nothing of what the next one lacks.
            self._lost = torch.where(torch.isfinite(lost), lost, torch.zeros_like(lost))
        wire = packed.reshape(-1).to(input_tensor.device)
        received = torch.empty_like(wire)
        dist.all_to_all_single(received, wire, group=group)
        total = torch.zeros(length)
        for part in _wire.unpack_all(list(received.cpu().reshape(ranks, -1)), shapes, torch.float32):
            total += part
        if op == dist.ReduceOp.AVG:
            total /= ranks
        output_tensor.copy_(total.reshape(output_tensor.shape))
        self.sent_bytes += (ranks - 1) * packed.shape[1]
        self.plain_bytes += (ranks - 1) * length * input_tensor.element_size()


    def _on_device(self, output: torch.Tensor, given: torch.Tensor, group: dist.ProcessGroup, mean: bool) -> None:
        """The same on the device of the gradients, on the stream that asks: queued, and not waited for."""
        ranks, length = dist.get_world_size(group), output.numel()
        if self._shards is None or (self._shards.length, self._shards.ranks) != (length, ranks):
            self._shards = Shards(
                length, self.bits, self.codec, given.device, error_feedback=self.error_feedback, group=group
            )
        total = self._shards.scattered(given.detach().to(torch.float32).reshape(ranks, length))
        output.copy_((total / ranks if mean else total).reshape(output.shape))
        self.sent_bytes += (ranks - 1) * self._shards.bytes
        self.plain_bytes += (ranks - 1) * length * given.element_size()


def fsdp_(
    model: nn.Module, bits: float = 2.6, error_feedback: bool = False, *, codec: str = "line-fast"
) -> list[CodedReduceScatter]:
    """Codes the gradients of every module of ``model`` that ``fully_shard`` has sharded.

    Returns what was put in place, one for each of those modules. Gradients on a GPU
    are coded there with ``line-fast``, ``line`` and ``trinity-lite``, others on the CPU.

    ::

        for block in model.layers:
            fully_shard(block)
        fully_shard(model)
        trinity.torch.fsdp_(model, bits=2.6)
    """
    if not bits > 0:
        raise InputError(f"bits={bits}: expected a number above zero")
    fsdp: Any = importlib.import_module("torch.distributed.fsdp")
    kind: Any = getattr(fsdp, "FSDPModule", None)
    if not hasattr(kind, "set_custom_reduce_scatter"):
        raise InputError(f"PyTorch {torch.__version__} gives sharded modules no reduce-scatter of their own; later ones do")
    sharded: list[Any] = [module for module in model.modules() if isinstance(module, kind)]
    if not sharded:
        help = "call fully_shard(model) first"
        raise InputError(f"no module is sharded\nhelp: {help}", "no module is sharded", help)
    placed = [CodedReduceScatter(bits, error_feedback, codec) for _ in sharded]
    for module, comm in zip(sharded, placed):
        module.set_custom_reduce_scatter(comm)
    return placed
