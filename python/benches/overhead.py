"""What a call costs beside the codec: `python python/benches/overhead.py`, with the release wheel installed.

The module's own time is the call's, less ``Encoded.codec_s`` on the way in and
less the same work in the extension module on the way out. Bars: 20 µs at 1 KB,
5 % of the codec's time at 1 MB; the script fails where one is missed. Times are
lower quartiles: whatever else the machine does comes on top of a call.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import trinity

BAR_1KB_S = 20e-6
BAR_1MB = 0.05


def measured(call: Callable[[], Any], inside: Callable[[Any], float], rounds: int) -> tuple[float, float]:
    """Seconds of the codec, which are ``inside`` a call, and beside it."""
    codec_s, beside_s = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        found = call()
        took = time.perf_counter() - start
        codec_s.append(inside(found))
        beside_s.append(took - codec_s[-1])
    return statistics.quantiles(codec_s, n=4)[0], statistics.quantiles(beside_s, n=4)[0]


def encoding(x: np.ndarray, rounds: int, **target: object) -> tuple[float, float]:
    return measured(lambda: trinity.encode(x, **target), lambda e: e.codec_s, rounds)


def decoding(x: np.ndarray, rounds: int, **target: object) -> tuple[float, float]:
    e = trinity.encode(x, **target)
    return measured(lambda: trinity.decode(e), lambda _: trinity._core.decode_s(e.bytes), rounds)


def main() -> int:
    random = np.random.default_rng(1)
    missed = []
    print(f"{'call':<8}{'codec':<12}{'bytes':>9}{'codec µs':>12}{'beside µs':>12}{'share':>8}")
    for size, rounds in ((1 << 10, 400), (1 << 20, 15)):
        x = random.standard_t(6, size=size // 4).astype(np.float32).reshape(-1, 64)
        for codec, target in (
            ("zstd", {"lossless": True}),
            ("line", {"bits": 4, "codec": "line"}),
            ("trinity", {"bits": 4}),
        ):
            for name, measure in ("encode", encoding), ("decode", decoding):
                codec_s, beside_s = measure(x, rounds, **target)
                share = beside_s / codec_s
                print(f"{name:<8}{codec:<12}{x.nbytes:>9}{codec_s * 1e6:>12.1f}{beside_s * 1e6:>12.1f}{share:>8.1%}")
                bar = BAR_1KB_S if size == 1 << 10 else BAR_1MB * codec_s
                if beside_s > bar:
                    missed.append(f"{name} with {codec} at {size} bytes: {beside_s * 1e6:.1f} µs, bar {bar * 1e6:.1f} µs")
    for line in missed:
        print("MISSED", line)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
