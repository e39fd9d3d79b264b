"""Ten thousand requests to a vLLM engine that is killed and started again: `python python/benches/vllm_requests.py`.

A small model whose answers hang on every token before answers prompts that share their beginnings, several at once, in
any order, with blocks kept to the bit in a folder; the engine's own cache is emptied after every round, so that
prefixes come from the folder. Now and then the engine is killed with SIGKILL, whatever it does, and before it starts
again some blocks are cut, flipped or put in place of others. Every answer is held against that of an engine that
keeps nothing. Prints how many requests there were, how many were answered otherwise, what came from the folder, and
what was refused; exits 1 where an answer is wrong. Without a connector (`--mode none`) the same is the control.
Needs vLLM (python/requirements-vllm.txt) and this package.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import folders  # noqa: E402

#: Tokens of a block, tokens that a prompt is of, tokens of an answer.
BLOCK, VOCABULARY, ANSWER = 32, 512, 6


def prompts(count: int) -> list[list[int]]:
    """Of 40 to 240 tokens; the first blocks are one of four beginnings."""
    source = random.Random(1)
    shared = [[source.randrange(VOCABULARY) for _ in range(4 * BLOCK)] for _ in range(4)]
    return [
        shared[at % 4][: BLOCK * source.randrange(5)] + [source.randrange(VOCABULARY) for _ in range(source.randrange(40, 112))]
        for at in range(count)
    ]


def engine(asked: argparse.Namespace) -> None:
    """One life of an engine: rounds of requests, each round a line of the log, until it is killed or enough are answered."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    # One process: what is killed is the engine.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM, SamplingParams

    options = {}
    if asked.mode != "none":
        options["kv_transfer_config"] = folders.transfer(folder=asked.folder, mode=asked.mode, memory_bytes=0)
    llm = LLM(
        model=asked.model, dtype="float32", enforce_eager=True, max_model_len=512, block_size=BLOCK, max_num_seqs=16, seed=0,
        disable_hybrid_kv_cache_manager=True, **options,
    )
    wanted = prompts(asked.prompts)
    sampling = SamplingParams(max_tokens=ANSWER, temperature=0, ignore_eos=True, detokenize=False)
    order = random.Random(os.getpid())
    with open(asked.log, "a") as log:
        while True:
            chosen = [order.randrange(len(wanted)) for _ in range(asked.round)] if asked.known else list(range(len(wanted)))
            done = llm.generate([{"prompt_token_ids": wanted[at]} for at in chosen], sampling, use_tqdm=False)
            answers = [(at, list(one.outputs[0].token_ids), one.num_cached_tokens or 0) for at, one in zip(chosen, done)]
            log.write(json.dumps(answers) + "\n")
            log.flush()
            if not asked.known:
                return
            llm.reset_prefix_cache()


def damage(folder: str, source: random.Random) -> int:
    """Spoils one block of ten, each in its own way."""
    files = sorted(Path(folder).rglob("*.kv"))
    hurt = source.sample(files, len(files) // 10)
    for at, path in enumerate(hurt):
        whole = bytearray(path.read_bytes())
        if at % 3 == 0:
            whole[source.randrange(len(whole))] ^= 1 << source.randrange(8)
        elif at % 3 == 1:
            whole = whole[: source.randrange(len(whole))]
        else:
            whole = bytearray(source.choice(files).read_bytes())
        path.write_bytes(whole)
    return len(hurt)


def start(asked: argparse.Namespace, log: Path, said: Path, mode: str, known: bool) -> subprocess.Popen[bytes]:
    words = [sys.executable, __file__, "--engine", "--mode", mode, "--model", asked.model, "--folder", asked.folder, "--log", str(log)]
    words += ["--prompts", str(asked.prompts), "--round", str(asked.round), *(["--known"] if known else [])]
    with open(said, "ab") as out:
        return subprocess.Popen(words, stdout=out, stderr=out)


def answered(log: Path) -> list[tuple[int, list[int], int]]:
    """Every answer of whole lines: the last may have been cut by a kill."""
    if not log.exists():
        return []
    lines = log.read_text().split("\n")[:-1]
    return [tuple(one) for line in lines for one in json.loads(line)]


def reference(asked: argparse.Namespace, scratch: Path) -> dict[int, list[int]]:
    """What an engine that keeps nothing answers."""
    log, said = scratch / "reference.log", scratch / "reference.out"
    if start(asked, log, said, "none", known=False).wait() != 0:
        sys.exit(f"an engine without a connector fails: {said.read_text(errors='replace')[-3000:]}")
    return {at: tokens for at, tokens, _ in answered(log)}


def lives(asked: argparse.Namespace, log: Path, said: Path) -> tuple[int, int]:
    """Starts engines and kills them until enough requests are answered; kills and blocks that were damaged."""
    source, kills, hurt = random.Random(asked.seed), 0, 0
    while len(answered(log)) < asked.requests:
        before = len(answered(log))
        hurt += damage(asked.folder, source) if kills else 0
        life = start(asked, log, said, asked.mode, known=True)
        until = before + source.randrange(1, 2 * asked.requests // max(asked.kills, 1) + 1)
        while len(answered(log)) < min(until, asked.requests):
            time.sleep(source.random())
            if life.poll() is not None:
                sys.exit(f"an engine ended by itself: {said.read_text(errors='replace')[-3000:]}")
        life.send_signal(signal.SIGKILL)
        life.wait()
        kills += 1
        print(f"{len(answered(log))} requests, {kills} kills", file=sys.stderr, flush=True)
    return kills, hurt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10, help="about how many times the engine is killed")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--round", type=int, default=32, help="requests that are put at once")
    parser.add_argument("--mode", default="lossless", help="lossless, bits per value, or none for the control")
    parser.add_argument("--model", default="", help="a folder of transformers; a small model is made unless one is named")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--known", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    parser.add_argument("--log", default="", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.engine:
        engine(asked)
        return
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        asked.folder = str(scratch / "kv")
        if not asked.model:
            asked.model = str(scratch / "model")
            folders.hanging_llama(Path(asked.model))
        known = reference(asked, scratch)
        log, said = scratch / "requests.log", scratch / "requests.out"
        kills, hurt = lives(asked, log, said)
        rows = answered(log)
        wrong = sum(tokens != known[at] for at, tokens, _ in rows)
        lengths = [len(one) for one in prompts(asked.prompts)]
        asked_tokens = sum(lengths[at] for at, _, _ in rows)
        refused = said.read_text(errors="replace").count("is computed anew")
        print("| requests | kills | answered otherwise | tokens from the folder | blocks damaged | refused and computed anew |\n|---|---|---|---|---|---|")
        share = sum(cached for *_, cached in rows) / max(asked_tokens, 1)
        print(f"| {len(rows)} | {kills} | {wrong} | {share:.1%} | {hurt} | {refused} |")
        if wrong and asked.mode in ("none", "lossless"):
            sys.exit(f"{wrong} answers are not those of an engine that keeps nothing")


if __name__ == "__main__":
    main()
