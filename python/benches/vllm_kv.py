"""What a prefix hit is worth in vLLM, by what keeps the prefix: nothing, vLLM's own connector, ours at several rates.

    python python/benches/vllm_kv.py MODEL [--prompts 16] [--prefix 768] [--modes plain,lossless,4,3,2] [--basis FILE]

`MODEL` is a folder of transformers, or a GGUF file of a Llama (SmolLM2: `cargo xtask models smollm2-135m`), which is
made one. Each prompt is a passage of a text and a question, which is what follows it. One engine is asked a first
question about every passage, and ends. Another one, started anew on what the first one kept, is asked a second
question about each, one after another and in turns with an engine without a connector that computes the same prompt
whole: the time to the first token is the median of those ratios, by the clock (with its quartiles) and by processor
time, which is steadier on a busy machine. Engines have one thread unless `--threads` says. The answers of the engine without a connector are
what others are held against: whole answers, their tokens place by place, and each next token where the tokens before
it are given. The row `own cache` is that engine again, with its own cache of prefixes, in memory: what differs there
differs by rounding, since fewer tokens are computed at once. `plain` is vLLM's ExampleConnector, which writes every
value as it is; its OffloadingConnector asks for a GPU. A mode `3+basis` is 3 bits in the basis that `--basis` names
(`python -m trinity.vllm basis`). Needs vLLM (python/requirements-vllm.txt) and this package.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TEXT = ROOT / "models/lm/data/eval.txt"
#: Tokens of a question.
QUESTION = 32
#: Bytes of a value that is kept as it is.
PLAIN_BYTES = 2
#: What a mode ends with whose blocks are coded in a basis.
IN_BASIS = "+basis"


def transfer(mode: str, folder: str, basis: str) -> dict[str, Any]:
    """What vLLM is told of a connector."""
    if mode == "plain":
        return {"kv_connector": "ExampleConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"shared_storage_path": folder}}
    bits = mode.removesuffix(IN_BASIS)
    extra = {"folder": folder, "bits": None if bits == "lossless" else float(bits), **({"basis": basis} if bits != mode else {})}
    return {"kv_connector": "TrinityConnector", "kv_role": "kv_both", "kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra}


def serve(channel: Any, asked: argparse.Namespace, mode: str, folder: str, log: str) -> None:
    """One engine in a process of its own: answers what comes through the channel until it is closed."""
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    from vllm import LLM, SamplingParams

    options = {"kv_transfer_config": transfer(mode, folder, asked.basis)} if mode != "none" else {}
    llm = LLM(
        model=asked.model, dtype=asked.dtype, enforce_eager=True, max_model_len=asked.prefix + QUESTION + asked.answer, block_size=asked.block,
        enable_prefix_caching=True, disable_hybrid_kv_cache_manager=True, max_num_seqs=asked.answer, seed=0, **options,
    )

    def generate(prompts: list[list[int]], tokens: int) -> Any:
        sampling = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)
        return llm.generate([{"prompt_token_ids": one} for one in prompts], sampling, use_tqdm=False)

    # What is compiled or allocated on the first calls is nobody's time to first token.
    generate([[5] * (asked.block // 2)], 2)
    channel.send("ready")
    while (order := channel.recv()) is not None:
        prompts, tokens, anew = order
        if anew:
            llm.reset_prefix_cache()
        began, busy = time.perf_counter(), time.process_time()
        done = generate(prompts, tokens)
        took = (time.perf_counter() - began, time.process_time() - busy)
        channel.send((took, [list(one.outputs[0].token_ids) for one in done], [one.num_cached_tokens or 0 for one in done]))
    llm.llm_engine.engine_core.shutdown()


class Engine:
    """The near end of an engine's channel."""

    def __init__(self, channel: Any, mode: str, log: Path) -> None:
        self.channel, self.mode, self.log = channel, mode, log

    def received(self) -> Any:
        try:
            return self.channel.recv()
        except EOFError:
            said = self.log.read_text(errors="replace").strip().splitlines()
            sys.exit("\n".join([*said[-30:], f"error: an engine with `{self.mode}` ended by itself; above is what it said last"]))

    def ask(self, prompts: list[list[int]], tokens: int, *, anew: bool) -> tuple[tuple[float, float], list[list[int]], list[int]]:
        """Seconds by the clock and of the processor, the tokens of each answer, and how many tokens of each prompt were not computed; `anew` empties its own cache first."""
        self.channel.send((prompts, tokens, anew))
        return self.received()


@contextmanager
def engine(asked: argparse.Namespace, mode: str, folder: str, scratch: Path) -> Iterator[Engine]:
    """An engine for as long as it is needed; it has written what it keeps when this ends."""
    own = multiprocessing.get_context("forkserver")
    # Every engine is a process of its own; what they import is imported once.
    own.set_forkserver_preload(["vllm.entrypoints.llm", "vllm.model_executor.models.llama"])
    near, far = own.Pipe()
    log = scratch / "engine.log"
    process = own.Process(target=serve, args=(far, asked, mode, folder, str(log)))
    process.start()
    far.close()
    made = Engine(near, mode, log)
    try:
        made.received()
        yield made
        near.send(None)
        process.join()
    finally:
        if process.is_alive():
            process.kill()


@dataclass
class Passage:
    """What engines are asked of a passage, and what the engine without a connector answers."""

    first: list[int]
    second: list[int]
    answer: list[int]

    def beginnings(self) -> list[list[int]]:
        """The second prompt with each beginning of its answer: what comes next is asked of each."""
        return [self.second + self.answer[:at] for at in range(len(self.answer))]


def passages(asked: argparse.Namespace) -> list[Passage]:
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(Path(asked.model) / "tokenizer.json")).encode(Path(asked.text).read_text()).ids
    step = asked.prefix + 2 * QUESTION
    if len(ids) < step * asked.prompts:
        refuse(f"{asked.text}: {len(ids)} tokens are {len(ids) // step} passages of {step}, and {asked.prompts} were asked for (--prompts, --prefix, --text)")
    made = []
    for start in range(0, step * asked.prompts, step):
        passage = ids[start : start + asked.prefix]
        questions = ids[start + asked.prefix : start + step]
        made.append(Passage(passage + questions[:QUESTION], passage + questions[QUESTION:], []))
    return made


@dataclass
class Row:
    """What one way of keeping prefixes came to."""

    kept: str
    ratios: list[tuple[float, float]]
    found: list[float]
    answers: list[list[int]]
    following: list[list[int]]
    bytes_per_token: float | None

    def text(self, known: list[Passage], plain_bytes: int) -> str:
        equal = sum(answer == one.answer for answer, one in zip(self.answers, known))
        placed = [a == b for answer, one in zip(self.answers, known) for a, b in zip(answer, one.answer)]
        following = [a == b for answer, one in zip(self.following, known) for a, b in zip(answer, one.answer)]
        clock, busy = ([one[at] for one in self.ratios] for at in (0, 1))
        low, middle, high = spread(clock)
        kept = "" if self.bytes_per_token is None else f"{self.bytes_per_token:,.0f}"
        share = "" if self.bytes_per_token is None else f"{self.bytes_per_token / plain_bytes:.1%}"
        return (
            f"| {self.kept} | {statistics.mean(self.found):.0%} | {middle:.2f} ({low:.2f} to {high:.2f}) | {statistics.median(busy):.2f} | {equal} of {len(known)} | {mean(placed):.1%}"
            f" | {mean(following):.1%} | {kept} | {share} |"
        )


def spread(ratios: list[float]) -> tuple[float, float, float]:
    """A quarter, the median, three quarters."""
    if len(ratios) < 2:
        return ratios[0], ratios[0], ratios[0]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return low, middle, high


def mean(which: list[bool]) -> float:
    return sum(which) / max(len(which), 1)


def compared(plain: Engine, other: Engine, known: list[Passage], asked: argparse.Namespace) -> tuple[list[tuple[float, float]], list[float], list[list[int]], list[list[int]]]:
    """Asks both engines each second question in turns; ratios of times, shares found, answers, next tokens.

    Where both are one engine, it answers out of its own cache after it has computed the prompt.
    """
    ratios, found, answers, following = [], [], [], []
    for one in known:
        computed, _, cached = plain.ask([one.second], 1, anew=True)
        assert cached == [0], "an engine without a connector found what it was to compute"
        took, _, cached = other.ask([one.second], 1, anew=plain is not other)
        ratios.append((took[0] / computed[0], took[1] / computed[1]))
        found.append(cached[0] / asked.prefix)
        answers += other.ask([one.second], asked.answer, anew=False)[1]
        following.append([tokens[0] for tokens in other.ask(one.beginnings(), 1, anew=False)[1]])
    return ratios, found, answers, following


def bytes_in(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def kept_by(asked: argparse.Namespace, mode: str, plain: Engine, known: list[Passage], scratch: Path) -> Row:
    """Two lives of an engine: the first one keeps, the second one finds."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        with engine(asked, mode, folder, scratch) as first:
            before = bytes_in(folder)
            for one in known:
                first.ask([one.first], 1, anew=True)
        kept = (bytes_in(folder) - before) / (len(known) * asked.prefix)
        with engine(asked, mode, folder, scratch) as second:
            return Row(name_of(mode), *compared(plain, second, known, asked), kept)


def name_of(mode: str) -> str:
    bits = mode.removesuffix(IN_BASIS)
    return {"plain": "vLLM's ExampleConnector", "lossless": "ours, every bit"}.get(mode) or f"ours, {bits} bits" + (", in a basis" if bits != mode else "")


def refuse(why: str) -> Any:
    print(f"error: {why}", file=sys.stderr)
    sys.exit(2)


def model_folder(model: str, scratch: Path) -> str:
    """The folder that vLLM reads: the one that is named, or one made of a GGUF file."""
    path = Path(model)
    if path.is_file() and path.suffix == ".gguf":
        sys.path.insert(0, str(ROOT / "python/tests"))
        import folders

        folders.llama_folder(path, scratch / "model")
        return str(scratch / "model")
    if not path.exists():
        refuse(f"{model} is not there: expected a folder of transformers or a GGUF file (`cargo xtask models smollm2-135m` brings one)")
    missing = [name for name in ("config.json", "tokenizer.json") if not (path / name).is_file()]
    if missing:
        refuse(f"{model} is no folder of a model that vLLM reads: it has no {' and no '.join(missing)}")
    return model


def plain_bytes_per_token(model: str) -> int:
    """Keys and values of a token in all layers, of 16 bits each."""
    config = json.loads((Path(model) / "config.json").read_text())
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or config["hidden_size"] // heads
    return 2 * config["num_hidden_layers"] * config.get("num_key_value_heads", heads) * head * PLAIN_BYTES


def checked(asked: argparse.Namespace) -> None:
    """Refuses what cannot be measured before anything is started."""
    for mode in asked.modes:
        if mode in ("plain", "lossless"):
            continue
        if mode.endswith(IN_BASIS) and not Path(asked.basis).is_file():
            refuse(f"--modes: `{mode}` wants --basis FILE, and `{asked.basis}` is not there: `python -m trinity.vllm basis` makes one")
        try:
            fits = 0 < float(mode.removesuffix(IN_BASIS)) <= 16
        except ValueError:
            fits = False
        if not fits:
            refuse(f"--modes: `{mode}` is none of plain, lossless and bits per value above 0, up to 16, which may end with {IN_BASIS}")
    if asked.prefix < asked.block or asked.prefix % asked.block:
        refuse(f"--prefix {asked.prefix}: only whole blocks are kept, expected a multiple of --block ({asked.block})")
    if not 0 < asked.answer < asked.block - QUESTION:
        refuse(f"--answer {asked.answer}: a question of {QUESTION} and an answer are to stay below a block ({asked.block})")
    if asked.prompts < 1:
        refuse(f"--prompts {asked.prompts}: expected 1 or more")
    if not Path(asked.text).is_file():
        refuse(f"--text {asked.text} is not there")
    if importlib.util.find_spec("vllm") is None:
        refuse("vLLM is not installed here: python/requirements-vllm.txt is what runs it, docs/integrations.md has the lines")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", help="a folder of transformers, or a GGUF file of a Llama")
    parser.add_argument("--prompts", type=int, default=16, help="passages that are asked about (16)")
    parser.add_argument("--prefix", type=int, default=768, help="tokens of a passage, whole blocks of them (768)")
    parser.add_argument("--answer", type=int, default=16, help="tokens of an answer (16)")
    parser.add_argument("--block", type=int, default=128, help="tokens of a block of vLLM's cache (128)")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"), help="what vLLM computes and caches in (bfloat16)")
    parser.add_argument("--modes", default="plain,lossless,4,3,2", type=lambda said: said.split(","), help="plain, lossless, or bits per value, with commas between; 3+basis: in a basis")
    parser.add_argument("--basis", default="", help="the basis of modes that end with +basis")
    parser.add_argument("--threads", type=int, default=1, help="threads of an engine, of its codecs too (1)")
    parser.add_argument("--text", default=str(TEXT), help="what passages are cut from (models/lm/data/eval.txt)")
    asked = parser.parse_args()
    checked(asked)
    os.environ |= {"OMP_NUM_THREADS": str(asked.threads), "RAYON_NUM_THREADS": str(asked.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    # One process each: what is timed is one engine, and its threads end with it.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        asked.model = model_folder(asked.model, scratch)
        known, plain_bytes = passages(asked), plain_bytes_per_token(asked.model)
        print(f"{len(known)} passages of {asked.prefix} tokens, {plain_bytes:,} bytes of keys and values of 16 bits a token\n", flush=True)
        print("| kept by | found of the prefix | first token, of the time to compute it | processor time | answers equal | tokens equal | next tokens equal | bytes per token | of 16 bits |")
        print("|---|---:|---|---:|---:|---:|---:|---:|---:|", flush=True)
        with engine(asked, "none", "", scratch) as plain:
            for one in known:
                one.answer = plain.ask([one.second], asked.answer, anew=True)[1][0]
            print(Row("own cache, in memory", *compared(plain, plain, known, asked), None).text(known, plain_bytes), flush=True)
            for mode in asked.modes:
                print(kept_by(asked, mode, plain, known, scratch).text(known, plain_bytes), flush=True)


if __name__ == "__main__":
    main()
