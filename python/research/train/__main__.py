"""``python python/research/train RUN.toml``: trains, writes rows, checkpoints and a summary; `many`: a table of runs."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from typing import Any

from pathlib import Path

# A folder that is run is no package to itself, and is one to the folder above.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from train._config import load  # noqa: E402
from trinity import Error, InputError  # noqa: E402


def _say(row: dict[str, Any]) -> None:
    if os.environ.get("RANK", "0") != "0":
        return
    valid = row["valid_bits_per_byte"]
    if row["step"] % 10 and math.isnan(valid):
        return
    shown = "" if math.isnan(valid) else f", {valid:.4f} on held-out text"
    sent = row["bits_per_value"] or row["activation_bits"]
    print(f"step {row['step']}: {row['train_bits_per_byte']:.4f} bits/byte{shown}; sent {sent:.3f} bits/value", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python python/research/train",
        description="Trains a byte-level model with coded gradients or activations.",
        epilog="example: python python/research/train run.toml; see docs/training.md",
    )
    parser.add_argument("run", help="the run, a TOML file")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--force", action="store_true", help="begin anew where rows of a run are")
    parser.add_argument("--check", action="store_true", help="read the file, say what it means, and stop")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    asked = parser.parse_args(arguments)
    try:
        run = load(asked.run)
        if asked.check:
            print(json.dumps(run.as_dict(), indent=1))
            return 0
        try:
            from train._loop import train
        except ModuleNotFoundError as missing:
            raise InputError(f"{missing.name} is not installed\nhelp: pip install 'trinity[torch]'") from None
        summary = train(run, resume=asked.resume, force=asked.force, say=None if asked.quiet else _say)
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        # Other ranks must see that this one is gone, whatever a backend still waits for.
        if "RANK" in os.environ:
            sys.stderr.flush()
            os._exit(2 if isinstance(error, InputError) else 1)
        return 2 if isinstance(error, InputError) else 1
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(summary, indent=1))
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["many"]:
        from train._many import main as many

        sys.exit(many(sys.argv[2:]))
    sys.exit(main())
