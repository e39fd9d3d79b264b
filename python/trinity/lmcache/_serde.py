"""The two halves of the serde, as LMCache wants them."""

from __future__ import annotations

from typing import Any

import torch
from lmcache.logging import init_logger
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.serde import AsyncSerdeProcessor, Deserializer, SerdeProcessor, Serializer
from lmcache.v1.memory_management import MemoryObj

from .._errors import InputError
from ._blocks import BlockCoder, Refused

logger = init_logger(__name__)

#: Number formats of KV caches, as `BlockCoder` names them.
_NAMES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.float8_e4m3fn: "f8e4m3", torch.float8_e5m2: "f8e5m2"}


def _identity(key: ObjectKey) -> bytes:
    """What a chunk is of: its tokens, its model, its rank, its tenant."""
    own = (key.chunk_hash.hex(), key.model_name, key.kv_rank, key.object_group_id, key.cache_salt)
    return repr(own).encode()


def _name(dtype: torch.dtype) -> str:
    if dtype not in _NAMES:
        raise Refused(f"a chunk of {dtype}: expected one of {', '.join(map(str, _NAMES))}")
    return _NAMES[dtype]


def _tensor(one: MemoryObj, what: str) -> torch.Tensor:
    if one.tensor is None:
        raise Refused(f"the {what} has no tensor")
    return one.tensor


class TrinitySerializer(Serializer):  # type: ignore[misc]
    """Codes a chunk; what is not finite is not kept, and the log says why."""

    def __init__(self, coder: BlockCoder, pad: bool) -> None:
        self.coder, self.pad = coder, pad

    def serialize(self, src: MemoryObj, dst: MemoryObj, key: ObjectKey) -> int:
        values = _tensor(src, "source")
        _name(values.dtype)
        try:
            packed = self.coder.pack(values, _identity(key))
        except Refused as error:
            logger.warning("trinity: chunk %s is not kept: %s", key.chunk_hash.hex()[:16], error)
            raise
        room = _tensor(dst, "destination").view(torch.uint8).flatten()
        if len(packed) > room.numel():
            raise Refused(f"{len(packed)} bytes do not fit into {room.numel()}")
        room[: len(packed)].copy_(torch.frombuffer(bytearray(packed), dtype=torch.uint8))
        if not self.pad:
            return len(packed)
        # LMCache's adapter of files serves no object that is shorter than was estimated.
        room[len(packed) :].zero_()
        return int(room.numel())

    def estimate_serialized_size(self, layout_desc: MemoryLayoutDesc) -> int:
        sizes = zip(layout_desc.shapes, layout_desc.dtypes)
        return sum(self.coder.capacity(shape, torch.empty((), dtype=dtype).element_size()) for shape, dtype in sizes)


class TrinityDeserializer(Deserializer):  # type: ignore[misc]
    """Decodes a chunk into its place, or leaves that as it is and says why."""

    def __init__(self, coder: BlockCoder) -> None:
        self.coder = coder

    def deserialize(self, src: MemoryObj, dst: MemoryObj, key: ObjectKey) -> None:
        place = _tensor(dst, "destination")
        packed = _tensor(src, "source").view(torch.uint8).flatten().cpu().numpy().tobytes()
        try:
            values = self.coder.unpack(packed, place.shape, _name(place.dtype), _identity(key))
        except Refused as error:
            logger.warning("trinity: chunk %s is not served: %s", key.chunk_hash.hex()[:16], error)
            raise
        found = torch.frombuffer(bytearray(values), dtype=torch.uint8).view(place.dtype)
        place.copy_(found.reshape(place.shape))


def create(kwargs: dict[str, Any]) -> SerdeProcessor:
    """The serde of ``{"type": "trinity", "bits": 3, "codec": "line-fast", "max_workers": 1, "pad": true}``.

    ``"bits": null`` keeps every bit. Chunks are as long as was estimated unless ``"pad": false``, which saves what is
    left of the estimate where an adapter takes objects of any length.
    """
    known = {"bits", "codec", "max_workers", "pad"}
    if unknown := sorted(set(kwargs) - known):
        raise InputError(f"serde trinity has no option {unknown[0]!r}: expected one of {', '.join(sorted(known))}")
    coder = BlockCoder(kwargs.get("bits", 3.0), kwargs.get("codec"))
    return AsyncSerdeProcessor(TrinitySerializer(coder, bool(kwargs.get("pad", True))), TrinityDeserializer(coder), max_workers=int(kwargs.get("max_workers", 1)))
