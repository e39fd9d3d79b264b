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
from ._shards import HostShards, Shards, carrier


class CodedReduceScatter:
    """What `fsdp_` gives a sharded module; ``sent_bytes`` and ``plain_bytes`` count as those of `DdpHook` do."""

    def __init__(self, bits: float, error_feedback: bool, codec: str) -> None:
        self.bits = bits
        self.error_feedback = error_feedback
        self.codec = codec
        self.sent_bytes = 0
        self.plain_bytes = 0
        self._shards: Shards | HostShards | None = None

    def allocate(
        self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

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
        ranks, length = dist.get_world_size(group), output_tensor.numel()
        options = {"error_feedback": self.error_feedback, "group": group}
        self._shards = shards = carrier(self._shards, length, self.bits, self.codec, input_tensor.device, **options)
        total = shards.scattered(input_tensor.detach().to(device=shards.where, dtype=torch.float32).reshape(ranks, length))
        output_tensor.copy_((total / ranks if op == dist.ReduceOp.AVG else total).reshape(output_tensor.shape))
        self.sent_bytes += (ranks - 1) * shards.bytes
        self.plain_bytes += (ranks - 1) * length * input_tensor.element_size()


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
        raise InputError.advised("no module is sharded", "call fully_shard(model) first")
    placed = [CodedReduceScatter(bits, error_feedback, codec) for _ in sharded]
    for module, comm in zip(sharded, placed):
        module.set_custom_reduce_scatter(comm)
    return placed
