"""Prefix hits in vLLM: `python python/benches/vllm_kv.py MODEL [--prompts 6] [--modes none,plain,lossless,4,3,2]`.

For each way of keeping KV blocks, one engine answers prompts and ends, and a second one, started anew, answers them
again: what it finds on disk it need not compute. Prints seconds to the first token of the first and of the second
engine, what is kept, and how many of the second engine's tokens are those of an engine that keeps nothing. `MODEL` is a
folder of transformers; needs vLLM (python/requirements-vllm.txt) and this package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TEXT = Path(__file__).resolve().parents[2] / "models/lm/data/eval.txt"


def transfer(mode: str, folder: str) -> dict | None:
    if mode == "none":
        return None
    if mode == "plain":
        return {"kv_connector": "ExampleConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"shared_storage_path": folder}}
    bits = None if mode == "lossless" else float(mode)
    extra = {"folder": folder, "bits": bits}
    return {
        "kv_connector": "TrinityConnector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra,
    }


def prompts(tokenizer, count: int, length: int) -> list[list[int]]:
    text = TEXT.read_text()
    ids = tokenizer.encode(text[: 8 * count * length])
    return [ids[at * length : (at + 1) * length] for at in range(count)]


def engine(asked: argparse.Namespace) -> None:
    """One engine's life: answers every prompt once."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    from vllm import LLM, SamplingParams

    options = {} if asked.mode == "none" else {"kv_transfer_config": transfer(asked.mode, asked.folder)}
    llm = LLM(
        model=asked.model, dtype=asked.dtype, enforce_eager=True, max_model_len=asked.length + 64, block_size=asked.block,
        enable_prefix_caching=True, disable_hybrid_kv_cache_manager=True, max_num_seqs=4, seed=0, **options,
    )
    tokens = prompts(llm.get_tokenizer(), asked.prompts, asked.length)
    # What is compiled or allocated on the first call is nobody's time to first token.
    llm.generate({"prompt_token_ids": [5] * 64}, SamplingParams(max_tokens=1, temperature=0), use_tqdm=False)
    answers, first = [], []
    for one in tokens:
        began = time.perf_counter()
        llm.generate({"prompt_token_ids": one}, SamplingParams(max_tokens=1, temperature=0), use_tqdm=False)
        first.append(time.perf_counter() - began)
    for one in tokens:
        out = llm.generate({"prompt_token_ids": one}, SamplingParams(max_tokens=asked.answer, temperature=0), use_tqdm=False)
        answers.append(list(out[0].outputs[0].token_ids))
    Path(asked.out).write_text(json.dumps({"answers": answers, "first_s": first}))


def run(asked: argparse.Namespace, mode: str, folder: str) -> dict:
    with tempfile.TemporaryDirectory() as scratch:
        out = os.path.join(scratch, "out.json")
        words = [sys.executable, __file__, asked.model, "--engine", "--mode", mode, "--folder", folder, "--out", out]
        words += ["--prompts", str(asked.prompts), "--length", str(asked.length), "--answer", str(asked.answer)]
        words += ["--dtype", asked.dtype, "--block", str(asked.block)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{mode}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
        return json.loads(Path(out).read_text())


def bytes_in(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def middle(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--answer", type=int, default=32)
    parser.add_argument("--block", type=int, default=128)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--modes", default="none,plain,lossless,4,3,2")
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--mode", default="")
    parser.add_argument("--folder", default="")
    parser.add_argument("--out", default="")
    asked = parser.parse_args()
    if asked.engine:
        engine(asked)
        return
    print("| kept | first token, first engine, s | second engine, s | kept MB | tokens as without |\n|---|---|---|---|---|", flush=True)
    reference = None
    for mode in asked.modes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            first = run(asked, mode, folder)
            second = run(asked, mode, folder) if mode != "none" else first
            reference = reference or first["answers"]
            pairs = [(a, b) for x, y in zip(reference, second["answers"]) for a, b in zip(x, y)]
            same = sum(a == b for a, b in pairs) / max(len(pairs), 1)
            kept = bytes_in(folder) / 1e6
            print(f"| {mode} | {middle(first['first_s']):.3f} | {middle(second['first_s']):.3f} | {kept:.2f} | {same:.1%} |", flush=True)


if __name__ == "__main__":
    main()
