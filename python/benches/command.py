"""The command, one thread and all, beside the package: `python python/benches/command.py TRINITY`.

Codes one file of Gaussian values at 3 bits by `trinity encode` and by `trinity.encode_file`, and reads it back by
`trinity decode` and by `trinity.read`. Seconds are wall-clock, the least of several turns; a turn has one run of
each, so that what else the machine does meets all. `alone` is what the machine has to give: as many commands of one
thread at once as there are cores, each with a file of its own, over one. Bars: all threads 12 times one on 16 cores,
the package within 5 % of the command. `--checkpoint GB` also codes a model of so many GB in bf16 by the command on two
cores, and says how much memory that took.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CODECS = ["trinity", "trinity-lite", "line-fast", "line-uniform"]
BITS = 3

CHILD = """
import sys, time, trinity
source, target, codec, bits = sys.argv[1:]
start = time.perf_counter()
trinity.encode_file(source, target, codec=codec, bits=float(bits), force=True)
encode_s = time.perf_counter() - start
start = time.perf_counter()
trinity.read(target)
print(encode_s, time.perf_counter() - start)
"""


def timed(*command: str) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def encoding(trinity: str, source: Path, codec: str, threads: int, target: Path) -> list[str]:
    words = [trinity, "encode", str(source), "--codec", codec, "--bits", str(BITS), "--threads", str(threads)]
    return [*words, "--quiet", "--force", "-o", str(target)]


def command(trinity: str, codec: str, threads: int, folder: Path) -> tuple[float, float]:
    """Seconds of encoding and decoding."""
    coded = folder / "command.tri"
    decode = [trinity, "decode", str(coded), "--threads", str(threads), "--quiet", "--force", "-o", str(folder / "back.npy")]
    return timed(*encoding(trinity, folder / "in.npy", codec, threads, coded)), timed(*decode)


def alone(trinity: str, codec: str, every: int, folder: Path) -> float:
    """Seconds of as many encodings at once, of one thread each."""
    words = [encoding(trinity, folder / "in.npy", codec, 1, folder / f"{n}.tri") for n in range(every)]
    start = time.perf_counter()
    running = [subprocess.Popen(one, stdout=subprocess.DEVNULL) for one in words]
    if any(child.wait() for child in running):
        raise SystemExit("a command failed")
    return time.perf_counter() - start


def package(codec: str, threads: int, folder: Path) -> tuple[float, float]:
    env = {**os.environ, "RAYON_NUM_THREADS": str(threads)}
    words = [sys.executable, "-c", CHILD, str(folder / "in.npy"), str(folder / "package.tri"), codec, str(BITS)]
    said = subprocess.run(words, check=True, env=env, capture_output=True, text=True).stdout.split()
    return float(said[0]), float(said[1])


def checkpoint(path: Path, gigabytes: float) -> int:
    """Writes a model of layers like those of a transformer, in bf16; how many parameters it has."""
    width, draw = 2048, np.random.default_rng(7)
    shapes = {
        "q_proj": (width, width),
        "o_proj": (width, width),
        "up_proj": (4 * width, width),
        "down_proj": (width, 4 * width),
    }
    layers = max(1, round(gigabytes * 1e9 / 2 / sum(rows * cols for rows, cols in shapes.values())))
    entries, at = {}, 0
    for layer in range(layers):
        for name, (rows, cols) in shapes.items():
            end = at + 2 * rows * cols
            entry = {"dtype": "BF16", "shape": [rows, cols], "data_offsets": [at, end]}
            entries[f"model.layers.{layer}.{name}.weight"] = entry
            at = end
    header = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for entry in entries.values():
            rows, cols = entry["shape"]
            scales = np.exp(0.3 * draw.standard_normal((rows, 1), dtype=np.float32)) * 0.02
            values = (draw.standard_normal((rows, cols), dtype=np.float32) * scales).view(np.uint32)
            file.write(((values + 0x8000) >> 16).astype(np.uint16).tobytes())
    return at // 2


def large(trinity: str, folder: Path, gigabytes: float) -> None:
    path = folder / "model.safetensors"
    parameters = checkpoint(path, gigabytes)
    two = sorted(os.sched_getaffinity(0))[:2]
    for codec in ["trinity", "trinity-lite"]:
        encode = encoding(trinity, path, codec, 2, folder / "model.tri")
        seconds = timed("taskset", "-c", ",".join(map(str, two)), *encode)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        size = (folder / "model.tri").stat().st_size
        print(
            f"{codec}: {parameters / 1e9:.2f} billion parameters on two cores in {seconds:.0f} s, "
            f"{8 * size / parameters:.3f} bits each, {peak:.2f} GiB of memory at most",
            flush=True,
        )


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("trinity", help="the command")
    asked.add_argument("--values", type=int, default=1 << 26, help="how many (default: 67 million)")
    asked.add_argument("--turns", type=int, default=3)
    asked.add_argument("--checkpoint", type=float, metavar="GB", help="also a model of so many GB on two cores")
    args = asked.parse_args()
    every = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.checkpoint:
            large(args.trinity, folder, args.checkpoint)
        values = np.random.default_rng(11).standard_normal((args.values // 4096, 4096), dtype=np.float32)
        np.save(folder / "in.npy", values)
        print(f"{values.size / 1e6:.1f} million values, f32, at {BITS} bits, seconds, least of {args.turns}")
        heads = f"{'1':>8}{every:>8}{'times':>8}{'alone':>8}{'package, 1':>12}{'to command':>12}"
        print(f"{'':<22}{heads}{f'package, {every}':>14}")
        for codec in CODECS:
            runs = []
            for _ in range(args.turns):
                one, all_ = command(args.trinity, codec, 1, folder), command(args.trinity, codec, every, folder)
                own, own_all = package(codec, 1, folder), package(codec, every, folder)
                runs.append((one, all_, own, own_all, (alone(args.trinity, codec, every, folder), 0.0)))
            for at, what in enumerate(["encode", "decode"]):
                one, all_, own, own_all, crowd = (min(run[kind][at] for run in runs) for kind in range(5))
                most = f"{every * one / crowd:.1f}" if crowd else ""
                print(
                    f"{codec:<14}{what:<8}{one:>8.2f}{all_:>8.2f}{one / all_:>8.1f}{most:>8}"
                    f"{own:>12.2f}{own / one:>12.2f}{own_all:>14.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
