"""One life of a vLLM engine with the connector, for test_vllm.py: answers prompts, and writes what it answered.

    vllm_engine.py MODEL FOLDER MODE OUT [--damage] [--die-after N] [--rounds N] [--orders] [--basis FILE]

Runs in an environment with vLLM; MODE is none, lossless or bits per value.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

import folders

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
# One process: what a test kills is the engine.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"


def option(name: str) -> int:
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else 0


def damage(folder: str) -> int:
    """Spoils every other block, each in its own way."""
    files = sorted(Path(folder).glob("*/*.kv"))
    for at, path in enumerate(files):
        whole = path.read_bytes()
        if at % 4 == 0:
            path.write_bytes(folders.flipped(whole, len(whole) // 2, 4))
        elif at % 4 == 2:
            path.write_bytes(whole[: len(whole) // 2])
    return len(files)


def orders() -> list[str]:
    """Number formats and sizes of which the order of a block in attention's memory is not what is believed.

    Asked here, since importing vLLM takes longer than anything that is asked of it.
    """
    import torch
    from trinity.vllm._layout import order
    from vllm import _custom_ops as ops
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    wrong = []
    for dtype, block, width in ((torch.bfloat16, 128, 64), (torch.float16, 128, 64), (torch.float32, 32, 32), (torch.bfloat16, 16, 80)):
        keys, values = (torch.randn(block, 3, width).to(dtype) for _ in range(2))
        memory = torch.zeros(1, 3, 2 * block, width, dtype=dtype)
        ops.cpu_attn_reshape_and_cache(keys, values, *memory.chunk(2, dim=2), torch.arange(block), _get_attn_isa(dtype, block, width))
        found = memory.reshape(3, -1)[:, order(dtype, block, width).argsort()].view(3, 2, block, width)
        if not (torch.equal(found[:, 0], keys.transpose(0, 1)) and torch.equal(found[:, 1], values.transpose(0, 1))):
            wrong.append(f"{dtype}, {block} tokens, {width} channels")
    return wrong


def main() -> None:
    model, folder, mode, out = sys.argv[1:5]
    from vllm import LLM, SamplingParams

    options = {}
    if mode != "none":
        basis = {"basis": sys.argv[sys.argv.index("--basis") + 1]} if "--basis" in sys.argv else {}
        options["kv_transfer_config"] = folders.transfer(folder=folder, mode=mode, memory_bytes=0, **basis)
    llm = LLM(
        model=model, dtype="float32", enforce_eager=True, max_model_len=512, block_size=32, max_num_seqs=8, seed=0,
        disable_hybrid_kv_cache_manager=True, **options,
    )
    wrong = orders() if "--orders" in sys.argv else None
    if "--damage" in sys.argv:
        assert damage(folder) > 0
    source = random.Random(1)
    shared = [source.randrange(512) for _ in range(128)]
    prompts = [shared[: 32 * (at % 5)] + [source.randrange(512) for _ in range(150 + 17 * at)] for at in range(8)]
    asked = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True, detokenize=False)
    answers, cached, answered = {}, 0, 0
    order = random.Random(int(os.environ.get("TRINITY_SEED", "7")))
    for _ in range(option("--rounds") or 1):
        # Several at once, in any order: blocks are shared, kept and brought back while others compute.
        chosen = order.sample(range(len(prompts)), len(prompts))
        done = llm.generate([{"prompt_token_ids": prompts[at]} for at in chosen], asked, use_tqdm=False)
        for at, one in zip(chosen, done):
            tokens = list(one.outputs[0].token_ids)
            assert answers.setdefault(at, tokens) == tokens or mode not in ("none", "lossless"), (at, tokens, answers[at])
            cached += one.num_cached_tokens or 0
            answered += 1
        if option("--rounds"):
            # The engine's own cache would answer all of the next round.
            llm.reset_prefix_cache()
        if 0 < option("--die-after") <= answered:
            os.kill(os.getpid(), signal.SIGKILL)
    with open(out, "w") as file:
        own = [answers[at] for at in range(len(prompts))]
        json.dump({"prompts": prompts, "answers": own, "cached": cached, "answered": answered, "wrong_orders": wrong}, file)


if __name__ == "__main__":
    main()
