"""A step of data-parallel training on a GPU, with and without hooks: `python python/benches/step.py [--tokens 65536]`.

A GPT of 85 million parameters, one rank under NCCL; hooks code all the same, so what is
timed is coding and not a network. Hooks take turns, several rounds; prints each one's
median step, its share over no hook, and the rate at which it would send.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from hooks import register
from torch import nn

#: Name: bits and options of ours, nothing for PyTorch's own.
HOOKS: dict[str, tuple[float, dict[str, Any]] | None] = {
    "none": None,
    "fp16_compress_hook": None,
    "powerSGD rank 4": None,
    "trinity line-fast 1.4 over √v": (1.4, {"scaled": True}),
    "trinity line-fast 2.6": (2.6, {}),
    "trinity line 2.6": (2.6, {"codec": "line"}),
}


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        grown: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.second(x))))
        return grown


class Gpt(nn.Module):
    """12 layers of width 768 over bytes: 85 million parameters in its blocks."""

    def __init__(self, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.head = nn.Linear(width, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        out: torch.Tensor = self.head(h)
        return out


class Training:
    def __init__(self, name: str) -> None:
        torch.manual_seed(1)
        self.model = nn.parallel.DistributedDataParallel(Gpt().cuda())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=True)
        register(self.model, name, self.optimizer, HOOKS[name], alone=True)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.reshape(-1, 256), tokens[:, 1:].reshape(-1))
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def timed(training: Training, tokens: torch.Tensor, steps: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        training.step(tokens)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=[16384, 65536], help="tokens of a step")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", default=None, help="also write rows to this file")
    asked = parser.parse_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29555")
    dist.init_process_group("nccl", rank=0, world_size=1)
    rows = []
    for count in asked.tokens:
        tokens = torch.randint(0, 256, (count // 1024, 1025), device="cuda")
        trainings = {name: Training(name) for name in HOOKS}
        for training in trainings.values():
            # Plans are chosen anew after 10 steps; from then on rarely.
            timed(training, tokens, 14)
        seconds: dict[str, list[float]] = {name: [] for name in HOOKS}
        for _ in range(asked.rounds):
            for name, training in trainings.items():
                seconds[name].append(timed(training, tokens, 6))
        plain = statistics.median(seconds["none"])
        for name, training in trainings.items():
            median = statistics.median(seconds[name])
            row = {
                "tokens": count, "hook": name, "ms": 1e3 * median, "over_none": median / plain - 1,
                "spread": (max(seconds[name]) - min(seconds[name])) / median,
            }  # fmt: skip
            rows.append(row)
            print(f"| {count} | {name} | {row['ms']:.2f} | {100 * row['over_none']:+.1f} % |", flush=True)
        del trainings
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as out:
            json.dump(rows, out, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
