"""What a block of the vLLM connector costs, without an engine: bytes, error, processor time to keep and to load.

    python python/benches/kv_block.py kv.pt --theta 100000 [--head-dim 64] [--block 128] [--bits 4,3,2] [--basis FILE]

``kv.pt`` is what ``lmcache_serdes.py kv.pt --make MODEL TEXT`` makes, of a model whose rotary positions have that base
and pairs half a head apart. Its second block is coded, keys as attention keeps them, as they were before, and in a basis
of ``python -m trinity.vllm basis``, which is to be of another text; errors are the mean over layers of squared error over
energy, of keys, of values, and of what the block's queries make of both. Times are the least of some turns, of all threads.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from trinity.vllm import BlockStore
from trinity.vllm._basis import Basis
from trinity.vllm._form import Form
from trinity.vllm._frame import Rope

TURNS = 5


def attention(before: torch.Tensor, block: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """What a block's queries make of the block before it and of itself: layers, heads, tokens, channels."""
    own = torch.cat([before, block], 2).float().transpose(2, 3)
    keys, values = (one.repeat_interleave(queries.shape[1] // own.shape[2], 1) for one in (own[:, 0], own[:, 1]))
    tokens = queries.shape[2]
    seen = torch.ones(tokens, keys.shape[2], dtype=torch.bool).tril(keys.shape[2] - tokens)
    return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)


def row(name: str, blocks: tuple[torch.Tensor, torch.Tensor], queries: torch.Tensor, form: Form, bits: float | None) -> str:
    before, block = blocks
    keep, load = [], []
    for turn in range(TURNS):
        with tempfile.TemporaryDirectory() as folder:
            store = BlockStore(folder, "model", bits=bits)
            start = time.process_time()
            written = store.put("key", form.pack(block, 1), exact=form.exact)
            middle = time.process_time()
            found = form.unpack(store.get("key", form.expected(1)), 1)
            keep.append(middle - start)
            load.append(time.process_time() - middle)
    errors = (found.double() - block.double()).square().sum((2, 3, 4)) / block.double().square().sum((2, 3, 4))
    keys, values = errors.mean(0).tolist()
    plain, coded = (attention(before, one, queries).double() for one in (block, found))
    outputs = ((coded - plain).square().sum((1, 2, 3)) / plain.square().sum((1, 2, 3))).mean()
    return f"| {name} | {(written or 0) / form.tokens:,.0f} | {keys:.1e} | {values:.1e} | {outputs:.1e} | {1e3 * min(keep):.0f} | {1e3 * min(load):.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kv", type=Path)
    parser.add_argument("--theta", type=float, required=True)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--bits", default="4,3,2", type=lambda said: [float(one) for one in said.split(",")])
    parser.add_argument("--basis", help="what python -m trinity.vllm basis made of the same model")
    asked = parser.parse_args()
    if not asked.kv.is_file():
        print(f"error: {asked.kv} is not there: lmcache_serdes.py {asked.kv} --make MODEL TEXT makes one", file=sys.stderr)
        sys.exit(2)
    read = torch.load(asked.kv)
    kv = read["kv"]
    _, layers, tokens, channels = kv.shape
    if tokens < 2 * asked.block:
        print(f"error: {asked.kv} has {tokens} tokens, and two blocks are {2 * asked.block}", file=sys.stderr)
        sys.exit(2)
    whole = kv[:, :, : 2 * asked.block].transpose(0, 1).reshape(layers, 2, 2 * asked.block, -1, asked.head_dim)
    blocks = whole[:, :, : asked.block], whole[:, :, asked.block :]
    queries, dtype = read["q"][:, :, asked.block : 2 * asked.block], kv.dtype
    angles = torch.arange(tokens)[:, None] * asked.theta ** (-torch.arange(0, asked.head_dim, 2) / asked.head_dim)
    rope = Rope(torch.cat([angles.cos(), angles.sin()], -1), interleaved=False)
    heads = channels // asked.head_dim
    forms = {"as attention keeps keys": Form(layers, dtype, asked.block, heads, asked.head_dim, 4)}
    forms["keys before rotary positions"] = plain = replace(forms["as attention keeps keys"], rope=rope)
    if asked.basis:
        basis = Basis.open(asked.basis)
        basis.held_against_shape(asked.basis, plain.shape)
        forms["in a basis"] = replace(plain, basis=basis)
    print("| kept | bytes per token | NMSE of K | NMSE of V | NMSE of attention's outputs | ms to keep | ms to load |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    for bits in asked.bits:
        for name, form in forms.items():
            print(row(f"{bits:g} bits, {name}", blocks, queries, form, bits), flush=True)
    print(row("every bit", blocks, queries, Form(layers, dtype, asked.block, heads, asked.head_dim, None), None))


if __name__ == "__main__":
    main()
