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
from . import _plans
from ._plans import Planned

#: Values up to which a tensor goes as it is: a container's index would outweigh the gain.
SMALL_VALUES = 2048
#: The length that says: a value was not finite, so none of them is worth sending.
_NOT_FINITE = (1 << 64) - 1
#: Added to the length of what was coded under a plan that was chosen before.
_PLANNED = 1 << 62
_HEAD = 8
#: Codecs whose plans are kept from step to step, and that code tensors on a GPU there; whether all of their effort goes
#: into a plan.
ON_DEVICE = {"line-fast": False, "line": True, "trinity-lite": True}


def planner(bits: float, codec: str) -> Planned | None:
    """What keeps a plan for tensors of one place, where the codec has plans."""
    return Planned(bits, ON_DEVICE[codec]) if codec in ON_DEVICE else None


def capacity(values: int, bits: float, element_size: int) -> int:
    """Bytes of a packed tensor."""
    if values <= SMALL_VALUES:
        return _HEAD + values * element_size
    return _HEAD + int(values * bits / 8)


def pack(x: torch.Tensor, bits: float, codec: str = "line-fast", planned: Planned | None = None) -> torch.Tensor:
    """A tensor as `capacity` bytes on the CPU, at most ``bits`` per value and eight bytes.

    ``planned`` keeps the codec's plan for the next tensor of the same place.
    """
    out = torch.zeros(capacity(x.numel(), bits, x.element_size()), dtype=torch.uint8)
    if planned is not None and x.numel() > SMALL_VALUES and bool(torch.isfinite(x).all()):
        stream = planned.encode(x.detach().cpu(), out.numel() - _HEAD)
        if stream is not None:
            return _placed(out, stream, _PLANNED)
    if x.numel() <= SMALL_VALUES:
        return _placed(out, x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(), 0)
    asked = _coded._asked(codec, ("bits", float(bits)), measure=False)
    (coded,) = _coded._encode(["x"], [x], None, asked, False)
    if coded.exact is not None:
        out[:_HEAD] = 255
        return out
    return _placed(out, coded.bytes, 0)


def _placed(out: torch.Tensor, payload: bytes, flags: int) -> torch.Tensor:
    whole = bytearray((len(payload) | flags).to_bytes(_HEAD, "little") + payload)
    out[: len(whole)] = torch.frombuffer(whole, dtype=torch.uint8)
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
        elif length & _PLANNED:
            stream = host[_HEAD : _HEAD + (length ^ _PLANNED)].tobytes()
            found.append(_plans.decode(stream, values).to(dtype).reshape(shape))
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
