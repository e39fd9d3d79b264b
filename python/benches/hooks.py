"""Communication hooks on one model: `python python/benches/hooks.py [--ranks 2] [--steps 60]`, with PyTorch.

A character-level transformer is trained from the same start by every hook, ranks as
processes over gloo, each with a thread of its own. Prints loss at the end (mean of
the last ten steps), what a rank sent a step, and the processor time of a step as a
multiple of that without a hook in the same run (the least of `--times`), beside
PyTorch's own hooks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

import trinity.torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python/tests"))
from ranks import free_port  # noqa: E402

TEXT = ROOT / "models/lm/data/eval.txt"
#: Bits and options of ours by name.
OURS: dict[str, tuple[float, dict[str, Any]]] = {
    "trinity line-fast 2.6": (2.6, {}),
    "trinity line-fast 2.6 over √v": (2.6, {"scaled": True}),
    "trinity line-fast 1.4 over √v": (1.4, {"scaled": True}),
    "trinity line 2.6": (2.6, {"codec": "line"}),
    "trinity line-fast 2.6, error feedback": (2.6, {"error_feedback": True}),
}
PLAIN = ("none (all-reduce)", "fp16_compress_hook", "powerSGD rank 4")


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        out: torch.Tensor = self.head(self.layers(self.embed(x), mask=mask, is_causal=True))
        return out


def batch(data: torch.Tensor, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    starts = torch.randint(0, len(data) - 65, (8,), generator=generator)
    return torch.stack([data[at : at + 65] for at in starts]).long()


def register(model: nn.Module, name: str, optimizer: torch.optim.Optimizer, ours: tuple[float, dict[str, Any]] | None, **more: Any) -> Any:
    """Gives a model the hook of that name: what counts the bytes it sends, where it has such."""
    if ours is not None:
        options = {**ours[1], **more}
        over = optimizer if options.pop("scaled", False) else None
        hook = trinity.torch.ddp_hook(ours[0], optimizer=over, **options)
        model.register_comm_hook(None, hook)
        return hook
    if name.startswith("fp16"):
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name.startswith("powerSGD"):
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=10)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return state
    return None


def train(rank: int, ranks: int, port: int, name: str, steps: int, width: int, out: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    torch.manual_seed(1)
    # PowerSGD over gloo sends the parts of several buckets in an order that ranks do not agree on: one bucket for all.
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 30
    model = nn.parallel.DistributedDataParallel(Model(width), bucket_cap_mb=1024)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    values = sum(one.numel() for one in model.parameters())
    hook = register(model, name, optimizer, OURS.get(name))
    data = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8)
    losses, began = [], time.process_time()
    for step in range(steps):
        tokens = batch(data, rank, step)
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, 256), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    seconds = time.process_time() - began
    plain = 2 * (ranks - 1) / ranks * 4 * values
    sent = plain / 2 if name.startswith("fp16") else plain
    if hook is not None:
        sent = hook.sent_bytes / steps if name in OURS else plain / max(hook.compression_stats()[0], 1e-9)
    if rank == 0:
        row = {"hook": name, "loss": sum(losses[-10:]) / 10, "sent_kb": sent / 1e3, "bits": 32 * sent / plain, "cpu_ms": 1e3 * seconds / steps}
        Path(out).write_text(json.dumps({**row, "values": values}))
    dist.barrier()
    dist.destroy_process_group()


def run(name: str, asked: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "row.json")
        mp.spawn(train, args=(asked.ranks, free_port(), name, asked.steps, asked.width, out), nprocs=asked.ranks)
        row: dict[str, float] = json.loads(Path(out).read_text())
    print(f"{name}: {row['cpu_ms']:.0f} ms", file=sys.stderr, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--times", type=int, default=3, help="runs of each hook, in turn; the one of the least time counts")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    # Without a hook always: it is what the others are held against.
    names = [PLAIN[0], *(name for name in (*PLAIN[1:], *OURS) if asked.only in name)]
    if len(names) == 1 and asked.only not in PLAIN[0]:
        sys.exit(f"no hook is called so: {asked.only}")
    best: dict[str, dict[str, float]] = {}
    for _ in range(asked.times):
        for name in names:
            row = run(name, asked)
            if name not in best or row["cpu_ms"] < best[name]["cpu_ms"]:
                best[name] = row
    plain = best[PLAIN[0]]
    print("| hook | bits per value | kB sent a step | processor time of a step | loss |\n|---|---:|---:|---:|---:|")
    for name, row in best.items():
        print(f"| {name} | {row['bits']:.2f} | {row['sent_kb']:.0f} | {row['cpu_ms'] / plain['cpu_ms']:.2f} × | {row['loss']:.3f} |")
    print(f"{plain['values']} values, {asked.ranks} ranks, {asked.steps} steps of AdamW")


if __name__ == "__main__":
    main()
