"""A paged cache as an engine has one, and what moves its blocks, for tests on the host and on a GPU."""

from __future__ import annotations

import logging

import torch
from folders import flipped
from trinity.vllm import BlockStore
from trinity.vllm._basis import FRAMES, Basis, Shape, Sums
from trinity.vllm._form import Form
from trinity.vllm._frame import Rope
from trinity.vllm._layout import Layout, by_block, layout
from trinity.vllm._store import Stream
from trinity.vllm._worker import Group, Moved, Worker

__all__ = ["BlockStore", "Stream"]
LAYERS, HEADS, WIDTH, BLOCK, COUNT = 5, 4, 32, 128, 11


def angles(positions: int, width: int, scale: float = 1.0) -> torch.Tensor:
    """Cosines and sines of rotary positions, a row a position."""
    turned = torch.arange(positions)[:, None] * 10_000 ** (-torch.arange(0, width, 2) / width)
    return scale * torch.cat([turned.cos(), turned.sin()], -1)


ROPE = Rope(angles(4096, WIDTH), interleaved=False)
#: Shapes of a layer's cache: vLLM's, the same in blocks of half the tokens, keys before values in a block or in all of them.
KINDS = {
    "vllm": (COUNT, HEADS, BLOCK, 2 * WIDTH), "halves": (2 * COUNT, HEADS, BLOCK // 2, 2 * WIDTH), "beside": (COUNT, 2, BLOCK, HEADS, WIDTH),
    "before": (2, COUNT, BLOCK, HEADS, WIDTH),
}  # fmt: skip


def paged(seed: int | None, dtype: torch.dtype = torch.bfloat16, kind: str = "vllm") -> list[torch.Tensor]:
    """A cache of each layer; zeros without a seed."""
    caches = [torch.zeros(KINDS[kind], dtype=dtype) for _ in range(LAYERS)]
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        scale = torch.exp(torch.randn(HEADS, WIDTH, generator=generator))
        found = _layout(caches)
        for at in range(COUNT):
            block = torch.randn(LAYERS, 2, BLOCK, HEADS, WIDTH, generator=generator) * scale * 2.0 ** torch.arange(LAYERS).view(-1, 1, 1, 1, 1)
            found.write(block.to(dtype), [by_block(one, COUNT)[at] for one in caches])
    return caches


def _layout(caches: list[torch.Tensor]) -> Layout:
    found = layout(by_block(caches[0], COUNT).shape[1:], BLOCK, HEADS, WIDTH, None)
    assert found is not None
    return found


def _form(dtype: torch.dtype, bits: float | None, basis: Basis | None) -> Form:
    return Form(LAYERS, dtype, BLOCK, HEADS, WIDTH, None if bits is None else 4, ROPE, basis)


def worker(folder, caches: list[torch.Tensor], bits: float | None = 3.0, basis: Basis | None = None, codec: str | None = None) -> Worker:
    store = BlockStore(folder, "m", bits=bits, codec=codec, memory_bytes=0)
    group = Group([by_block(one, COUNT) for one in caches], _layout(caches), _form(caches[0].dtype, bits, basis))
    return Worker(store, [group], logging.getLogger("trinity.tests"))


def kept(folder, caches: list[torch.Tensor], *, make=worker, count: int = COUNT, **options) -> Worker:
    """A worker that has put blocks into its store, all of which were written."""
    own = make(folder, caches, **options)
    own.save(moves(count))
    own.shutdown()
    assert own.store.stats["written"] == count, own.store.stats
    return own


def moves(count: int = COUNT) -> list[Moved]:
    return [Moved("r", at, f"key {at}", at) for at in range(count)]


def spoil(path) -> None:
    """Flips a bit in the middle of a file."""
    path.write_bytes(flipped(path.read_bytes(), path.stat().st_size // 2, 8))


def nmse(got: list[torch.Tensor], meant: list[torch.Tensor], block: int) -> float:
    lost = sum(float((a[block].double() - b[block].double()).square().sum()) for a, b in zip(got, meant))
    return lost / sum(float(b[block].double().square().sum()) for b in meant)


def learned(caches: list[torch.Tensor]) -> Basis:
    """A basis of a cache's own blocks."""
    sums, found, form = Sums(Shape(LAYERS, HEADS, WIDTH, FRAMES[0])), _layout(caches), _form(caches[0].dtype, 3.0, None)
    for at in range(COUNT):
        sums.add(form.scaled(found.read([one[at] for one in caches]), at)[0])
    return sums.basis("a model", "0123")
