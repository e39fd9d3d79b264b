"""Trinity in PyTorch: gradients, stage boundaries, KV caches and weights, coded.

- `ddp_hook`: data-parallel gradients, coded on the wire; `fsdp_`: those of sharded modules.
- `boundary`, `send`, `recv`: a pipeline's stage boundary.
- `CodedCache`: a KV cache for ``transformers`` with old tokens coded.
- `compress_`, `save_state_dict`, `load_state_dict`: weights.
- `CheckpointWriter`, `CheckpointReader`: checkpoints of ``torch.distributed.checkpoint``.
- `save_pretrained`: a model of ``transformers`` to a folder that ``from_pretrained`` reads (method ``trinity``).

Boundaries, caches and weights that stay coded are coded on the GPU that they are on,
on their stream, by the line-rate codec's CUDA kernels (`DeviceCodec`), with the codecs
that have them (``line-fast``, ``line``, ``trinity-lite``); all else passes through the CPU.
"""

from __future__ import annotations

from .._coded import allow_loading
from ._device import DeviceCodec, DeviceEncoded
from ._ddp import DdpHook, ddp_hook
from ._fsdp import CodedReduceScatter, fsdp_
from ._pipeline import boundary, recv, send
from ._weights import compress_, load_state_dict, save_state_dict
from ._wire import pack, unpack

allow_loading()

__all__ = [
    "CheckpointReader",
    "CheckpointWriter",
    "CodedCache",
    "CodedReduceScatter",
    "DdpHook",
    "DeviceCodec",
    "DeviceEncoded",
    "boundary",
    "compress_",
    "ddp_hook",
    "fsdp_",
    "load_state_dict",
    "pack",
    "recv",
    "TrinityConfig",
    "register",
    "save_pretrained",
    "save_state_dict",
    "send",
    "unpack",
]


def __getattr__(name: str) -> object:
    # `transformers` is heavy, and needed for the cache alone.
    if name == "CodedCache":
        from ._cache import CodedCache

        return CodedCache
    if name in ("CheckpointReader", "CheckpointWriter"):
        from . import _checkpoint

        return getattr(_checkpoint, name)
    if name in ("save_pretrained", "register", "TrinityConfig"):
        from . import _pretrained

        own = _pretrained.register()
        return own if name == "TrinityConfig" else getattr(_pretrained, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
