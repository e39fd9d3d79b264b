"""What of a block is coded: matrices of keys and of values, a few layers side by side.

Rows are tokens, columns the channels of every head of some layers, each layer over its own root mean square, so that
errors are the same share of each; in a basis of the model's, where there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from .._spans import spans
from ._basis import FRAMES, Basis, Shape
from ._frame import Rope
from ._store import Expected

_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_KEYS, _VALUES, _SCALES, _SINK = "keys", "values", "scales", "sink"


@dataclass(frozen=True)
class Form:
    """Layers of one kind: how many, their number format, the shape of one's block as tokens, heads and channels."""

    layers: int
    dtype: torch.dtype
    tokens: int
    heads: int
    width: int
    #: First tokens of a prompt that keep every bit; all do where this is nothing.
    sink: int | None
    rope: Rope | None = None
    basis: Basis | None = None

    @property
    def shape(self) -> Shape:
        """What a basis of it would be of."""
        return Shape(self.layers, self.heads, self.width, FRAMES[0] if self.rope is not None else FRAMES[1])

    def _turned(self, index: int) -> Basis | None:
        """The basis of a prompt's block of that index, none where its keys are not as they were when it was learned."""
        return self.basis if self.rope is None or self._before(index) else None

    def _first(self, index: int) -> int:
        return (self.sink or 0) if index == 0 else 0

    def _before(self, index: int) -> bool:
        """Whether keys of a prompt's block of that index are coded as they were before rotary positions."""
        return self.rope is not None and self.sink is not None and self.rope.has((index + 1) * self.tokens)

    def _spans(self, index: int) -> list[tuple[int, int]]:
        """Layers that go together at a rate, none where all tokens keep every bit."""
        tokens = self.tokens - self._first(index)
        basis = self._turned(index)
        if tokens and basis is not None:
            return list(basis.parts.spans)
        return spans(self.layers, tokens * self.heads * self.width) if tokens else []

    def expected(self, index: int) -> Expected:
        """Tensors that a prompt's block of that index is coded as."""
        first, channels = self._first(index), self.heads * self.width
        whole = _DTYPES[self.dtype]
        if self.sink is None:
            # Layers one below the other: a codec of every bit learns from all that came before.
            return dict.fromkeys((_KEYS, _VALUES), (whole, (self.layers * self.tokens, channels)))
        # Angles are part of what keys are, and a basis of what both are.
        keys = f"{_KEYS} before {self.rope.identity}" if self.rope is not None and self._before(index) else _KEYS
        basis = self._turned(index)
        turned = "" if basis is None else f" in {basis.identity}"
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        if first:
            found[_SINK] = (whole, (2 * first, self.layers * channels))
        for name in (keys, _VALUES):
            for start, end in self._spans(index):
                shape = (self.tokens - first, (end - start) * channels)
                found[f"{name}{turned} {start}"] = ("f32", shape)
        if first < self.tokens:
            found[_SCALES] = ("f32", (2, self.layers))
        return found

    @property
    def exact(self) -> list[str]:
        """Those that keep every bit."""
        return [_SINK, _SCALES]

    def pack(self, block: torch.Tensor, index: int) -> dict[str, torch.Tensor]:
        """A block, ``(layers, keys and values, tokens, heads, channels)``, as what is coded."""
        first, own = self._first(index), self._spans(index)
        parts: list[torch.Tensor] = []
        if first:
            parts.append(_rows(block[:, :, :first]).flatten(0, 1))
        if self.sink is None:
            parts += [block[:, which].reshape(-1, self.heads * self.width) for which in (0, 1)]
        elif own:
            coded, scales = self.scaled(block, index)
            basis = self._turned(index)
            parts += [*(_rows_of(coded, own) if basis is None else basis.forward(coded)), scales.T.contiguous()]
        return dict(zip(self.expected(index), parts))

    def scaled(self, block: torch.Tensor, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A block's tokens behind the first, keys as they are coded, each layer over its own root mean square; and those."""
        first = self._first(index)
        coded = block[:, :, first:].to(torch.float32, copy=True)
        if self.rope is not None and self._before(index):
            coded[:, 0] = self.rope.undo(coded[:, 0], index * self.tokens + first)
        scales = coded.square().mean(dim=(2, 3, 4)).sqrt()
        scales.masked_fill_(scales == 0, 1)
        coded /= scales[:, :, None, None, None]
        return coded, scales

    def unpack(self, found: dict[str, torch.Tensor], index: int) -> torch.Tensor:
        return self.unpack_many([found], [index])[0]

    def unpack_many(self, found: Sequence[dict[str, torch.Tensor]], indices: Sequence[int]) -> torch.Tensor:
        """Several blocks that are coded as the same tensors: ``(blocks, layers, keys and values, tokens, heads, channels)``."""
        first, own, count = self._first(indices[0]), self._spans(indices[0]), len(found)
        parts = [torch.stack([one[name] for one in found]) if count > 1 else found[0][name][None] for name in self.expected(indices[0])]
        if self.sink is None:
            return torch.stack([one.view(count, self.layers, self.tokens, self.heads, self.width) for one in parts], 2)
        block = torch.empty(count, self.layers, 2, self.tokens, self.heads, self.width, dtype=self.dtype, device=parts[0].device)
        if first:
            sink = parts.pop(0).view(count, 2, first, self.layers, self.heads, self.width)
            block[:, :, :, :first] = sink.permute(0, 3, 1, 2, 4, 5)
        if own:
            scales, basis = parts.pop(), self._turned(indices[0])
            coded = torch.empty(count, 2, self.layers, self.tokens - first, self.heads, self.width, device=block.device)
            for at, part in enumerate(parts):
                (start, end), which = own[at % len(own)], at // len(own)
                rows = part if basis is None else basis.back(part.flatten(0, 1), which, at % len(own))
                coded[:, which, start:end] = rows.view(count, -1, end - start, self.heads, self.width).transpose(1, 2)
            coded *= scales[..., None, None, None]
            if self.rope is not None and self._before(indices[0]):
                coded[:, 0] = self.rope.apply_many(coded[:, 0], [index * self.tokens + self._first(index) for index in indices])
            most = torch.finfo(self.dtype).max
            block[:, :, :, first:] = coded.clamp_(-most, most).transpose(1, 2)
        return block


def _rows(block: torch.Tensor) -> torch.Tensor:
    """A row a token, all channels of all layers in it; keys and values apart."""
    return block.permute(1, 2, 0, 3, 4).reshape(block.shape[1], block.shape[2], -1)


def _rows_of(block: torch.Tensor, own: list[tuple[int, int]]) -> list[torch.Tensor]:
    """Keys of layers that go together, then values."""
    return [_rows(block[start:end, which : which + 1])[0] for which in (0, 1) for start, end in own]
