"""A Llama-style language model of bytes, its weights in one row of memory.

RMSNorm, rotary positions, grouped-query attention, SwiGLU, tied embedding: the
architecture of `trinity-lm`, in PyTorch. Knows nothing of who trains it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 256
_EPSILON = 1e-5
_ROTARY_BASE = 10000.0


class Block(nn.Module):
    """One layer: attention and feed-forward, each on a residual."""

    def __init__(self, hidden: int, heads: int, kv_heads: int, ffn: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, hidden // heads
        self.input_layernorm = nn.Parameter(torch.ones(hidden))
        self.post_attention_layernorm = nn.Parameter(torch.ones(hidden))
        kv = kv_heads * self.head

        def matrix(rows: int, cols: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(rows, cols))

        self.q_proj, self.k_proj, self.v_proj = matrix(hidden, hidden), matrix(kv, hidden), matrix(kv, hidden)
        self.o_proj = matrix(hidden, hidden)
        self.gate_proj, self.up_proj, self.down_proj = matrix(ffn, hidden), matrix(ffn, hidden), matrix(hidden, ffn)

    def _heads(self, x: torch.Tensor, count: int) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], count, self.head).transpose(1, 2)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        h = F.rms_norm(x, (x.shape[-1],), self.input_layernorm, _EPSILON)
        q = _rotated(self._heads(F.linear(h, self.q_proj), self.heads), cos, sin)
        k = _rotated(self._heads(F.linear(h, self.k_proj), self.kv_heads), cos, sin)
        v = self._heads(F.linear(h, self.v_proj), self.kv_heads)
        if self.kv_heads != self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        attended = F.scaled_dot_product_attention(q, k, v.to(q.dtype), is_causal=True)
        x = x + F.linear(attended.transpose(1, 2).reshape(x.shape), self.o_proj)
        h = F.rms_norm(x, (x.shape[-1],), self.post_attention_layernorm, _EPSILON)
        return x + F.linear(F.silu(F.linear(h, self.gate_proj)) * F.linear(h, self.up_proj), self.down_proj)


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class Llama(nn.Module):
    """The model; `boundary` is called between stages with the residual stream and the stage's number."""

    def __init__(self, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Parameter(torch.empty(VOCABULARY, hidden))
        self.layers = nn.ModuleList(Block(hidden, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = nn.Parameter(torch.ones(hidden))
        self.hidden, self.head = hidden, hidden // heads

    def initialize(self, seed: int) -> None:
        """Weights as a seed says, drawn on the CPU so that every device starts alike."""
        generator = torch.Generator().manual_seed(seed)
        deep = (2 * len(self.layers)) ** -0.5
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if parameter.dim() < 2:
                    continue
                deviation = 0.02 * (deep if name.endswith(("o_proj", "down_proj")) else 1.0)
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * deviation)

    def _angles(self, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        half = self.head // 2
        frequency = _ROTARY_BASE ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
        angle = torch.arange(length, device=device, dtype=torch.float32)[:, None] * frequency
        return angle.cos(), angle.sin()

    def stage(self, x: torch.Tensor, number: int, stages: int) -> torch.Tensor:
        """One of so many equal stages: bytes into the first, logits out of the last, the residual stream between."""
        if number == 0:
            x = F.embedding(x, self.embed_tokens)
        cos, sin = self._angles(x.shape[1], x.device)
        each = len(self.layers) // stages
        for layer in self.layers[number * each : (number + 1) * each]:
            x = layer(x, cos, sin)
        if number < stages - 1:
            return x
        return F.linear(F.rms_norm(x, (x.shape[-1],), self.norm, _EPSILON), self.embed_tokens)

    def forward(
        self,
        tokens: torch.Tensor,
        stages: int = 1,
        boundary: Callable[[torch.Tensor, int], torch.Tensor] | None = None,
    ) -> torch.Tensor:
        x = tokens
        for number in range(stages):
            if boundary is not None and number:
                x = boundary(x, number - 1)
            x = self.stage(x, number, stages)
        return x


class Flat:
    """A model's parameters and gradients as two rows of memory: matrices first, then vectors.

    Matrices fill rows as wide as the model, which is how they are coded:
    ``matrices(x)`` is that part of such a row as a matrix.
    """

    def __init__(self, model: Llama, device: torch.device) -> None:
        named = sorted(model.named_parameters(), key=lambda item: item[1].dim() < 2)
        self.names = [name for name, _ in named]
        self.shapes = [tuple(parameter.shape) for _, parameter in named]
        sizes = [parameter.numel() for _, parameter in named]
        ends = list(accumulate(sizes))
        self.spans, self.total = list(zip([0, *ends], ends)), ends[-1]
        self.matrix_values = sum(size for size, (_, p) in zip(sizes, named) if p.dim() >= 2)
        self.matrix_count = sum(p.dim() >= 2 for _, p in named)
        self.width = model.hidden
        # Matrices fill whole rows: for each row, which one it is of, and how many rows each has.
        self.tensor_rows = torch.tensor([size // self.width for size in sizes[: self.matrix_count]], device=device)
        self.row_tensor = torch.arange(self.matrix_count, device=device).repeat_interleave(self.tensor_rows)
        #: Where the tied embedding lies, which the first and the last stage of a pipeline both use.
        self.embedding = self.spans[self.names.index("embed_tokens")]
        self.weights = torch.empty(self.total, device=device)
        self.gradient = torch.zeros(self.total, device=device)
        with torch.no_grad():
            for (_, parameter), (first, last) in zip(named, self.spans):
                view = self.weights[first:last].view(parameter.shape)
                view.copy_(parameter)
                parameter.data = view
                parameter.grad = self.gradient[first:last].view(parameter.shape)

    def matrices(self, flat: torch.Tensor) -> torch.Tensor:
        return flat[: self.matrix_values].view(-1, self.width)

    def vectors(self, flat: torch.Tensor) -> torch.Tensor:
        return flat[self.matrix_values :]

    def each_matrix(self, matrices: torch.Tensor) -> list[torch.Tensor]:
        """The tensors in a matrix of all, in their own shapes."""
        row = matrices.reshape(-1)
        spans = self.spans[: self.matrix_count]
        return [row[first:last].view(shape) for (first, last), shape in zip(spans, self.shapes)]

    def name_at(self, place: int) -> str:
        return next((name for name, (first, last) in zip(self.names, self.spans) if first <= place < last), "?")
