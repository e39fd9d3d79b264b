"""What a delta of two model folders takes beside zstd and beside sending everything: `python python/benches/delta_folders.py`.

A language model over bytes is trained a while in f32 and published in bf16, as sharded folders: before and after some
steps of AdamW at a rate as reinforcement learning has them (10⁻⁶), as fine-tuning does (10⁻⁵, 10⁻⁴), or after a change
of every weight. Every way of sending the new folder to who has the old one: all of it, `zstd -3` and `zstd -19` of all,
`zstd -3 --patch-from` the old file, and `trinity delta`, exact and with a loss. Prints bytes as a share of everything,
and the processor time to make and to apply, as multiples of `zstd -3` and `zstd -d` of everything in the same run (the
least of `--times`). What comes back is compared with what was sent. Needs PyTorch, transformers, and `zstd` and `trinity` on
the path (or `TRINITY_COMMAND`).
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

TEXT = Path(__file__).resolve().parents[2] / "models/lm/data/eval.txt"
TRINITY = os.environ.get("TRINITY_COMMAND") or "trinity"
#: Name, learning rate, steps between the two folders.
CHANGES = [("1 step at 1e-6", 1e-6, 1), ("8 steps at 1e-6", 1e-6, 8), ("8 steps at 1e-5", 1e-5, 8), ("32 steps at 1e-4", 1e-4, 32)]


def model(width: int, layers: int) -> transformers.PreTrainedModel:
    torch.manual_seed(1)
    sizes = {"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers, "num_attention_heads": 8}
    config = transformers.LlamaConfig(vocab_size=256, max_position_embeddings=128, **sizes)
    return transformers.LlamaForCausalLM(config)


def train(own: transformers.PreTrainedModel, optimizer: torch.optim.Optimizer, steps: int, seed: int) -> None:
    data = torch.frombuffer(bytearray(TEXT.read_bytes()), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(0, len(data) - 64, (4,), generator=generator)
        tokens = torch.stack([data[at : at + 64] for at in starts])
        optimizer.zero_grad()
        own(tokens, labels=tokens).loss.backward()
        optimizer.step()


def publish(own: transformers.PreTrainedModel, folder: Path) -> None:
    """In bf16, in shards under an index; what is trained stays in f32."""
    state = {name: one.detach().bfloat16() for name, one in own.state_dict().items()}
    own.save_pretrained(folder, state_dict=state, max_shard_size="16MB")


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr}")


def least(times: int, work: Callable[[], None]) -> float:
    """Processor seconds of the commands that the work runs: what else the machine does changes them little."""
    seconds = []
    for _ in range(times):
        began = os.times()
        work()
        ended = os.times()
        seconds.append(ended.children_user + ended.children_system - began.children_user - began.children_system)
    return min(seconds)


def tensors_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def digest(folder: Path) -> dict[str, str]:
    """Of every tensor, whatever lies around it in its file."""
    from safetensors import safe_open

    found = {}
    for path in tensors_of(folder):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118
                found[name] = hashlib.sha256(file.get_tensor(name).contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
    return found


class Ways:
    """Every way from one folder to another, each with its bytes, seconds to make and to apply, and whether it is exact."""

    def __init__(self, base: Path, tuned: Path, scratch: Path, times: int) -> None:
        self.base, self.tuned, self.scratch, self.times = base, tuned, scratch, times
        self.names = [path.name for path in tensors_of(tuned)]
        self.everything = sum(path.stat().st_size for path in tensors_of(tuned))
        self.wanted = digest(tuned)

    def zstd(self, *options: str, patch: bool = False, times: int | None = None) -> tuple[int, float, float, bool]:
        out, back = self.scratch / "zstd", self.scratch / "back"
        shutil.rmtree(back, ignore_errors=True)
        for folder in out, back:
            folder.mkdir(exist_ok=True)

        def words(name: str) -> list[str]:
            return ["-q", "-f", *([f"--patch-from={self.base / name}"] if patch else [])]

        def make() -> None:
            for name in self.names:
                run("zstd", *options, *words(name), str(self.tuned / name), "-o", str(out / name))

        def apply() -> None:
            for name in self.names:
                run("zstd", "-d", *words(name), str(out / name), "-o", str(back / name))

        made, applied = least(times or self.times, make), least(times or self.times, apply)
        return sum((out / name).stat().st_size for name in self.names), made, applied, digest(back) == self.wanted

    def delta(self, *options: str, times: int | None = None) -> tuple[int, float, float, bool]:
        out, back = self.scratch / "delta.tri", self.scratch / "again"
        made = least(times or self.times, lambda: run(TRINITY, "delta", "make", str(self.base), str(self.tuned), *options, "-o", str(out), "--force", "-q"))

        def apply() -> None:
            shutil.rmtree(back, ignore_errors=True)
            run(TRINITY, "delta", "apply", str(self.base), str(out), "-o", str(back), "-q")

        applied = least(times or self.times, apply)
        return out.stat().st_size, made, applied, digest(back) == self.wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--warm", type=int, default=30, help="steps before the first folder")
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    own = model(asked.width, asked.layers)
    train(own, torch.optim.AdamW(own.parameters(), lr=1e-3), asked.warm, 0)
    start = {name: one.clone() for name, one in own.state_dict().items()}
    values = sum(one.numel() for one in own.parameters())
    print(f"{values} values in bf16\n\n| change | sent | bytes, of everything | time to make, of `zstd -3` | to apply, of `zstd -d` | comes back |\n|---|---|---:|---:|---:|---|")
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        publish(own, scratch / "base")
        for change, rate, steps in CHANGES:
            own.load_state_dict(start)
            train(own, torch.optim.AdamW(own.parameters(), lr=rate), steps, 1)
            shutil.rmtree(scratch / "tuned", ignore_errors=True)
            publish(own, scratch / "tuned")
            ways = Ways(scratch / "base", scratch / "tuned", scratch, asked.times)
            plain = ways.zstd("-3")
            rows = {"`zstd -3`": plain, "`zstd -19`": ways.zstd("-19", times=1), "`zstd -3 --patch-from`": ways.zstd("-3", "--long=27", patch=True)}
            rows |= {"`trinity delta`, exact": ways.delta(), "`trinity delta --bits 1 --codec line-fast`": ways.delta("--bits", "1", "--codec", "line-fast", times=1)}
            print(f"| {change} | everything | 100 % | | | exact |")
            for sent, (size, made, applied, exact) in rows.items():
                back = "exact" if exact else "with a loss"
                print(f"| | {sent} | {100 * size / ways.everything:.2f} % | {made / plain[1]:.2f} | {applied / plain[2]:.2f} | {back} |", flush=True)


if __name__ == "__main__":
    main()
