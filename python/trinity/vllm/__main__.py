"""``python -m trinity.vllm basis MODEL TEXT -o FILE``: learns a basis for the connector's option ``basis``."""

from __future__ import annotations

import argparse
import json
import os
import sys

from .._errors import InputError


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trinity.vllm", description="Tools of the vLLM connector.")
    commands = parser.add_subparsers(required=True)
    basis = commands.add_parser("basis", help="learn a basis of a model's keys and values from a text", description="Learns a basis of a model's keys and values from a text, for the connector's option `basis`.")
    basis.add_argument("model", metavar="MODEL", help="what vLLM would serve: a folder, or a hub's name")
    basis.add_argument("text", metavar="TEXT", help="a text like those that the model will read")
    basis.add_argument("-o", "--output", metavar="FILE", required=True)
    basis.add_argument("--tokens", type=int, default=16_384, help="tokens of the text that are read (16384)")
    basis.add_argument("--engine", type=json.loads, default={}, metavar="JSON", help="options of vllm.LLM that the model is served with, as {\"dtype\": \"bfloat16\"}")
    basis.add_argument("--force", action="store_true", help="replace FILE")
    asked = parser.parse_args()
    # Before anything of vLLM is imported: the engine is this process.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    try:
        from ._learn import learn

        made = learn(asked.model, asked.text, asked.output, tokens=asked.tokens, engine=asked.engine, force=asked.force)
    except (InputError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{asked.output}: basis {made.identity} of {made.about['name']}, {made.shape}, from {made.about['tokens']} tokens, {os.path.getsize(asked.output):,} bytes")


if __name__ == "__main__":
    main()
