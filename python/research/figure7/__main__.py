"""Fidelity against bits of models that are no language models (LLM.265, Figure 7).

    python python/research/figure7 CACHE OUT.csv [--models minilm-l6-v2,whisper-base,mobile-sam] [--methods ...] [--bits ...]

CACHE is where `cargo xtask models minilm-l6-v2 whisper-base mobile-sam asterisk-en` put them. Each row of OUT.csv is
one model after one method at one rate, beside the same model uncoded. Rows that OUT.csv has already are left alone, so
a run that was cut off goes on where it stopped.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import time
from pathlib import Path
from typing import Any

import coding
import layers
import numpy as np

MODULES = {"minilm-l6-v2": "retrieval", "whisper-base": "speech", "mobile-sam": "masks"}
COLUMNS = [
    "model", "method", "target_bits", "bits_per_value", "model_bits", "nmse", "agreement", "second", "values",
    "seconds",
]  # fmt: skip


def row_of(subject: Any, method: str, bits: float, ready: dict[str, Any]) -> dict[str, Any]:
    """Codes the model, runs it and holds it against the uncoded one."""
    matrices = ready["matrices"]
    values = sum(m.size for m in matrices.values())
    start = time.perf_counter()
    decoded, size = coding.code(method, bits, matrices, ready["moments"])
    seconds = time.perf_counter() - start
    layers.put(subject.model, decoded)
    agreement, second = subject.compare(ready["uncoded"], subject.run())
    layers.put(subject.model, matrices)
    error = sum(float(((decoded[n] - m) ** 2).sum()) for n, m in matrices.items())
    energy = sum(float((m**2).sum()) for m in matrices.values())
    exact = layers.exact_bytes(subject.model, subject.width)
    return {
        "model": subject.name,
        "method": method,
        "target_bits": f"{bits:g}",
        "bits_per_value": f"{8 * size / values:.4f}",
        "model_bits": f"{8 * (size + exact) / (values + exact // subject.width):.4f}",
        "nmse": f"{error / energy:.5g}",
        "agreement": f"{agreement:.5f}",
        "second": f"{second:.5f}",
        "values": values,
        "seconds": f"{seconds:.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", default=",".join(MODULES))
    parser.add_argument("--methods", default=",".join(coding.METHODS))
    parser.add_argument("--bits", default="2,2.5,3,4,5")
    args = parser.parse_args()
    done = set()
    if args.out.exists():
        with args.out.open() as file:
            done = {(row["model"], row["method"], row["target_bits"]) for row in csv.DictReader(file)}
    with args.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        for name in args.models.split(","):
            wanted = [(m, b) for b in map(float, args.bits.split(",")) for m in args.methods.split(",")]
            wanted = [(m, b) for m, b in wanted if (name, m, f"{b:g}") not in done]
            if not wanted:
                continue
            subject = importlib.import_module(MODULES[name]).Subject(args.cache)
            ready = {"matrices": layers.matrices(subject.model), "uncoded": subject.run()}
            ready["moments"] = layers.moments(subject.model, subject.calibrate)
            print(f"{name}: inputs {subject.inputs()}, measures: {'; '.join(subject.measures)}", flush=True)
            for method, bits in wanted:
                row = row_of(subject, method, bits, ready)
                print(row, flush=True)
                writer.writerow(row)
                file.flush()


if __name__ == "__main__":
    np.seterr(over="raise")
    main()
