"""``python -m trinity.vllm basis MODEL TEXT -o FILE``: learns a basis for the connector's option ``basis``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from typing import Any, NoReturn

from .._errors import InputError, RunError


def _count(said: str) -> int:
    count = int(said)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{said}: expected 1 or more")
    return count


def _options(said: str) -> dict[str, Any]:
    try:
        found = json.loads(said)
    except ValueError as why:
        raise argparse.ArgumentTypeError(f"{said}: {why}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{said}: expected names and values, as {{\"dtype\": \"bfloat16\"}}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trinity.vllm", description="Tools of the vLLM connector.")
    commands = parser.add_subparsers(required=True)
    basis = commands.add_parser("basis", help="learn a basis of a model's keys and values from a text", description="Learns a basis of a model's keys and values from a text, for the connector's option `basis`.")
    basis.add_argument("model", metavar="MODEL", help="what vLLM would serve: a folder, or a hub's name")
    basis.add_argument("text", metavar="TEXT", help="a text like those that the model will read")
    basis.add_argument("-o", "--output", metavar="FILE", required=True)
    basis.add_argument("--tokens", type=_count, default=16_384, help="tokens of the text that are read (16384)")
    basis.add_argument("--engine", type=_options, default={}, metavar="JSON", help="options of vllm.LLM that the model is served with, as {\"dtype\": \"bfloat16\"}")
    basis.add_argument("--force", action="store_true", help="replace FILE")
    asked = parser.parse_args()
    # Before anything of vLLM is imported: the engine is this process. Its warnings are of every tensor that it reads.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if importlib.util.find_spec("vllm") is None:
        _fail("vLLM is not installed here: python/requirements-vllm.txt is what runs it", 2)
    try:
        from ._learn import learn

        made = learn(asked.model, asked.text, asked.output, tokens=asked.tokens, engine=asked.engine, force=asked.force)
    except (InputError, ValueError) as error:
        _fail(error, 2)
    except (RunError, OSError) as error:
        _fail(error, 1)
    print(f"{asked.output}: basis {made.identity} of {made.about['name']}, {made.shape}, from {made.about['tokens']} tokens, {os.path.getsize(asked.output):,} bytes")


def _fail(why: object, code: int) -> NoReturn:
    print(f"error: {why}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
