"""What a block of the vLLM connector costs, without an engine: bytes, error, processor time to keep and to load.

    python python/benches/kv_block.py kv.pt --theta 100000 [--head-dim 64] [--block 128] [--bits 4,3,2]

``kv.pt`` is what ``lmcache_serdes.py kv.pt --make MODEL TEXT`` makes, of a model whose rotary positions have that base
and pairs half a head apart. Its second block is coded, keys as attention keeps them and as they were before; errors
are the mean over layers of squared error over energy. Times are the least of some turns, of all threads.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch

from trinity.vllm import BlockStore
from trinity.vllm._form import Form
from trinity.vllm._frame import Rope

TURNS = 5


def row(name: str, block: torch.Tensor, form: Form, bits: float | None) -> str:
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
    return f"| {name} | {(written or 0) / form.tokens:,.0f} | {keys:.1e} | {values:.1e} | {1e3 * min(keep):.0f} | {1e3 * min(load):.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kv", type=Path)
    parser.add_argument("--theta", type=float, required=True)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--bits", default="4,3,2", type=lambda said: [float(one) for one in said.split(",")])
    asked = parser.parse_args()
    if not asked.kv.is_file():
        print(f"error: {asked.kv} is not there: lmcache_serdes.py {asked.kv} --make MODEL TEXT makes one", file=sys.stderr)
        sys.exit(2)
    kv = torch.load(asked.kv)["kv"]
    _, layers, tokens, channels = kv.shape
    if tokens < 2 * asked.block:
        print(f"error: {asked.kv} has {tokens} tokens, and two blocks are {2 * asked.block}", file=sys.stderr)
        sys.exit(2)
    block = kv[:, :, asked.block : 2 * asked.block].transpose(0, 1).reshape(layers, 2, asked.block, -1, asked.head_dim)
    angles = torch.arange(tokens)[:, None] * asked.theta ** (-torch.arange(0, asked.head_dim, 2) / asked.head_dim)
    rope = Rope(torch.cat([angles.cos(), angles.sin()], -1), interleaved=False)
    heads = channels // asked.head_dim
    print("| kept | bytes per token | NMSE of K | NMSE of V | ms to keep | ms to load |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for bits in asked.bits:
        for name, own in ("as attention keeps keys", None), ("keys before rotary positions", rope):
            form = Form(layers, block.dtype, asked.block, heads, asked.head_dim, 4, own)
            print(row(f"{bits:g} bits, {name}", block, form, bits), flush=True)
    print(row("every bit", block, Form(layers, block.dtype, asked.block, heads, asked.head_dim, None), None))


if __name__ == "__main__":
    main()
