"""Tensors as bytes of a known length: what a collective can exchange.

A packed tensor takes exactly as many bytes as its rate allows, whatever it
holds, so nobody has to ask others how much is coming. The first eight bytes
say how many of the others count.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _coded
from .._coded import Encoded

#: Values up to which a tensor goes as it is: a container's index would outweigh the gain.
SMALL_VALUES = 2048
#: The length that says: a value was not finite, so none of them is worth sending.
_NOT_FINITE = (1 << 64) - 1
_HEAD = 8


def capacity(values: int, bits: float, element_size: int) -> int:
    """Bytes of a packed tensor."""
    if values <= SMALL_VALUES:
        return _HEAD + values * element_size
    return _HEAD + int(values * bits / 8)


def pack(x: torch.Tensor, bits: float, codec: str = "line") -> torch.Tensor:
    """A tensor as `capacity` bytes on the CPU, at most ``bits`` per value and eight bytes."""
    out = torch.zeros(capacity(x.numel(), bits, x.element_size()), dtype=torch.uint8)
    if x.numel() <= SMALL_VALUES:
        payload = x.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        length = payload.numel()
    else:
        asked = _coded._asked(codec, ("bits", float(bits)), measure=False)
        (coded,) = _coded._encode(["x"], [x], None, asked, False)
        if coded.exact is not None:
            out[:_HEAD] = 255
            return out
        payload = torch.frombuffer(bytearray(coded.bytes), dtype=torch.uint8)
        length = payload.numel()
    out[:_HEAD] = torch.frombuffer(bytearray(length.to_bytes(_HEAD, "little")), dtype=torch.uint8)
    out[_HEAD : _HEAD + length] = payload
    return out


def unpack(packed: torch.Tensor, shape: Any, dtype: torch.dtype) -> torch.Tensor:
    """The tensor that `pack` took, on the CPU; NaN where its values were not finite."""
    return unpack_all([packed], [shape], dtype)[0]


def unpack_all(packed: list[torch.Tensor], shapes: list[Any], dtype: torch.dtype) -> list[torch.Tensor]:
    """Several at once, which takes no longer than the slowest where there are threads."""
    found: list[torch.Tensor | None] = []
    coded: list[tuple[int, Encoded]] = []
    for at, (one, shape) in enumerate(zip(packed, shapes)):
        host = one.cpu().numpy()
        length = int.from_bytes(host[:_HEAD].tobytes(), "little")
        values = torch.Size(shape).numel()
        if length == _NOT_FINITE:
            found.append(torch.full(torch.Size(shape), float("nan"), dtype=dtype))
        elif values <= SMALL_VALUES:
            raw = torch.frombuffer(bytearray(host[_HEAD : _HEAD + length].tobytes()), dtype=torch.uint8)
            found.append(raw.view(dtype).reshape(shape) if values else torch.empty(shape, dtype=dtype))
        else:
            coded.append((at, Encoded(host[_HEAD : _HEAD + length].tobytes(), "torch")))
            found.append(None)
    decoded = _coded._decode([one for _, one in coded], "torch", False)
    for (at, _), tensor in zip(coded, decoded):
        found[at] = tensor.reshape(shapes[at])
    return [one for one in found if one is not None]
