"""What an engine's step pays for KV blocks that are kept and loaded, coded on its GPU or by way of the host.

    python python/benches/kv_device.py [--bits 3] [--blocks 16]

Blocks are of 128 tokens in bf16, of the shapes of two models, in the layout of vLLM's caches: keys that rotary positions
turned, channels of unlike sizes. `step` is what the thread that runs a step is held by: until its copies and launches
are queued on a GPU, until they are done by way of the host. `done` is until blocks are written, or lie in the cache. Medians of
some runs, after one that compiles kernels and chooses plans. Needs a GPU.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from trinity.vllm import BlockStore
from trinity.vllm._form import Form
from trinity.vllm._frame import Rope
from trinity.vllm._layout import layout
from trinity.vllm._worker import Group, Moved, Worker

#: Layers, heads of keys and values, channels of one.
MODELS = {"SmolLM2-135M": (30, 3, 64), "Llama-3.1-8B": (32, 8, 128)}
BLOCK = 128


def caches_of(model: tuple[int, int, int], blocks: int) -> list[torch.Tensor]:
    """Every layer's blocks: heads, tokens, channels of keys and then of values."""
    layers, heads, width = model
    generator = torch.Generator("cuda").manual_seed(1)
    made = []
    for _ in range(layers):
        sizes = torch.exp(torch.randn(1, heads, 1, 2 * width, generator=generator, device="cuda"))
        made.append((torch.randn(blocks, heads, BLOCK, 2 * width, generator=generator, device="cuda") * sizes).bfloat16())
    return made


def worker(folder: Path, model: tuple[int, int, int], caches: list[torch.Tensor], bits: float, on_device: bool) -> Worker:
    layers, heads, width = model
    angles = torch.arange(1 << 15)[:, None] * 500_000 ** (-torch.arange(0, width, 2) / width)
    form = Form(layers, torch.bfloat16, BLOCK, heads, width, 4, Rope(torch.cat([angles.cos(), angles.sin()], -1), interleaved=False))
    found = layout(caches[0].shape[1:], BLOCK, heads, width, None)
    assert found is not None
    own = Worker(BlockStore(folder, "m", bits=bits, memory_bytes=0), [Group(caches, found, form)], logging.getLogger("kv"))
    if not on_device:
        own._coder = None
    return own


def timed(step, done) -> tuple[float, float]:
    torch.cuda.synchronize()
    began = time.perf_counter()
    step()
    queued = time.perf_counter() - began
    done()
    torch.cuda.synchronize()
    return queued, time.perf_counter() - began


def measured(own: Worker, reader: Worker, moves: list[Moved], runs: int) -> dict[str, tuple[float, float]]:
    """Medians of milliseconds for each block: of the step, and until all is done."""

    def waited() -> None:
        for job, _ in own._waiting:
            job.result()

    kept, loaded = [], []
    for at in range(runs + 1):
        for path in own.store.folder.glob("*.kv"):
            path.unlink()
        one = timed(lambda: own.save(moves), waited)
        other = timed(lambda: reader.load(moves), lambda: None)
        if at:
            kept.append(one)
            loaded.append(other)
    return {
        name: tuple(statistics.median(column) * 1e3 / len(moves) for column in zip(*rows)) for name, rows in (("kept", kept), ("loaded", loaded))
    }  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=float, default=3.0, help="bits per value (3)")
    parser.add_argument("--blocks", type=int, default=16, help="blocks of a step (16)")
    parser.add_argument("--runs", type=int, default=5, help="runs that medians are of (5)")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("error: there is no GPU: this measures blocks that lie on one", file=sys.stderr)
        sys.exit(2)
    print(f"{asked.blocks} blocks of {BLOCK} tokens at {asked.bits:g} bits, {torch.cuda.get_device_name()}; milliseconds for each block\n")
    print("| model | coded | kept: step | done | loaded: step | done | error | bytes |\n|---|---|---:|---:|---:|---:|---:|---:|")
    for name, model in MODELS.items():
        caches = caches_of(model, asked.blocks)
        moves = [Moved("r", at, f"key {at}", at) for at in range(asked.blocks)]
        for on_device in (True, False):
            back = [torch.zeros_like(one) for one in caches]
            with tempfile.TemporaryDirectory() as folder:
                own = worker(Path(folder), model, caches, asked.bits, on_device)
                found = measured(own, worker(Path(folder), model, back, asked.bits, on_device), moves, asked.runs)
                own.shutdown()
                size = own.store.stats["written_bytes"] / own.store.stats["written"]
            energy = sum(float(one.float().square().sum()) for one in caches)
            lost = sum(float((one.float() - other.float()).square().sum()) for one, other in zip(back, caches))
            times = " | ".join(f"{found[which][at]:.2f}" for which in ("kept", "loaded") for at in (0, 1))
            print(f"| {name} | {'on the GPU' if on_device else 'on the host'} | {times} | {lost / energy:.4f} | {size:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
