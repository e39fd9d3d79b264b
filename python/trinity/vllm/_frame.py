"""What keys are coded as: as attention keeps them, or as they were before rotary positions.

Neighbouring tokens' keys are alike before they are turned by their positions, and not after. Which turns an engine
makes is asked of its own operation; where that is not understood, keys are coded as attention keeps them. Turning
back and forth leaves a key what it was but for rounding, so that angles which no layer uses would cost bits and
spoil nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import torch

#: Rotations that are one angle for each pair of channels and position: what may be asked for their angles.
_KNOWN = {
    "RotaryEmbedding", "LinearScalingRotaryEmbedding", "DynamicNTKScalingRotaryEmbedding", "NTKScalingRotaryEmbedding",
    "Llama3RotaryEmbedding", "YaRNScalingRotaryEmbedding",
}


#: By how much products of keys and angles of 16 bits may differ from ours, over the largest.
_ROUNDING = 0.02


class NotUndone(ValueError):
    """Why rotary positions are left as they are."""


class Rope:
    """Angles of pairs of channels, by position."""

    def __init__(self, table: torch.Tensor, *, interleaved: bool) -> None:
        #: Cosines and sines, a row a position.
        self.cos, self.sin = (one.contiguous() for one in table.float().chunk(2, dim=-1))
        #: Pairs are neighbours; else the second of each is as many channels behind the first as there are pairs.
        self.interleaved = interleaved
        # Scaled rotations are longer than what they turn.
        self._norm = (self.cos**2 + self.sin**2).clamp_min(torch.finfo(torch.float32).tiny)
        #: The same on other devices, as they were asked for.
        self._there: dict[torch.device, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        digest = hashlib.blake2b(bytes([interleaved]), digest_size=8)
        for one in (self.cos, self.sin):
            digest.update(one.numpy().tobytes())
        #: A hash of angles and pairs.
        self.identity = digest.hexdigest()

    def _on(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Cosines, sines and their squares' sum where keys are."""
        if device not in self._there:
            self._there[device] = self.cos.to(device), self.sin.to(device), self._norm.to(device)
        return self._there[device]

    def _halves(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Views of the channels that are turned: the first of each pair, and the second."""
        pairs = self.cos.shape[-1]
        if self.interleaved:
            return keys[..., 0 : 2 * pairs : 2], keys[..., 1 : 2 * pairs : 2]
        return keys[..., :pairs], keys[..., pairs : 2 * pairs]

    def _turned(self, keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        first, second = self._halves(keys)
        cos, sin = cos[..., None, :], sin[..., None, :]
        turned = torch.empty_like(keys)
        own = self._halves(turned)
        own[0].copy_(first * cos).addcmul_(second, sin, value=-1)
        own[1].copy_(second * cos).addcmul_(first, sin)
        rest = 2 * cos.shape[-1]
        turned[..., rest:] = keys[..., rest:]
        return turned

    def has(self, end: int) -> bool:
        """Whether angles of all positions before this one are known."""
        return end <= self.cos.shape[0]

    def undo(self, keys: torch.Tensor, start: int) -> torch.Tensor:
        """Keys ``(…, tokens, heads, channels)`` in f32, of positions from ``start`` on, as they were before."""
        cos, sin, norm = (one[start : start + keys.shape[-3]] for one in self._on(keys.device))
        return self._turned(keys, cos / norm, -sin / norm)

    def apply(self, keys: torch.Tensor, start: int) -> torch.Tensor:
        """The way back from `undo`."""
        cos, sin, _ = (one[start : start + keys.shape[-3]] for one in self._on(keys.device))
        return self._turned(keys, cos, sin)

    def apply_many(self, keys: torch.Tensor, starts: Sequence[int]) -> torch.Tensor:
        """`apply` of several blocks, ``(blocks, layers, tokens, heads, channels)``, each from a position of its own on."""
        cos, sin, _ = self._on(keys.device)
        own = [slice(start, start + keys.shape[-3]) for start in starts]
        return self._turned(keys, *(torch.stack([one[each] for each in own])[:, None] for one in (cos, sin)))


def asked(module: Any, width: int) -> Rope:
    """The angles of one of vLLM's rotary embeddings, held against what it does to keys; `NotUndone` with the reason."""
    name = type(module).__name__
    if name not in _KNOWN:
        raise NotUndone(f"{name} is not known")
    if int(getattr(module, "head_size", 0)) != width:
        raise NotUndone(f"{name} turns heads of {getattr(module, 'head_size', 0)} channels, and the cache has {width}")
    turned = int(module.rotary_dim)
    table = module.cos_sin_cache.detach().cpu().float()
    if turned % 2 or turned > width or table.dim() != 2 or table.shape[1] != turned:
        raise NotUndone(f"{name} has angles of an unknown form")
    rope = Rope(table, interleaved=not module.is_neox_style)
    # It may do otherwise than its name and its options say. Asked in its own format, of which it keeps its angles.
    generator = torch.Generator().manual_seed(1)
    positions = torch.randint(0, table.shape[0], (16,), generator=generator)
    keys = torch.randn(16, width, generator=generator).to(module.cos_sin_cache)
    _, own = module.forward_native(positions.to(keys.device), keys.clone(), keys.clone())
    expected = torch.cat([rope.apply(key.cpu().float().view(1, 1, width), int(at))[0] for key, at in zip(keys, positions)])
    if (own.cpu().float() - expected).abs().max() > _ROUNDING * expected.abs().max():
        raise NotUndone(f"{name} does otherwise than its angles say")
    return rope


def rope_of(modules: Iterable[Any], width: int) -> Rope:
    """The one rotation that a model's layers have; `NotUndone` where they have none, or several."""
    found: dict[str, Rope] = {}
    for module in modules:
        rope = asked(module, width)
        found[rope.identity] = rope
    if not found:
        raise NotUndone("this engine's rotary positions were not found")
    if len(found) > 1:
        raise NotUndone("this model's layers have rotary positions of several kinds")
    return next(iter(found.values()))
