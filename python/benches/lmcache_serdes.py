"""Serdes of LMCache on one KV cache: bytes, error, error of attention, speed.

    python python/benches/lmcache_serdes.py kv.pt [--head-dim 64] [--tokens 256]

``kv.pt`` holds ``kv`` of LMCache's layout (2, layers, tokens, channels) and ``q`` (layers, query heads, tokens,
head size), both after rotary positions; ``--make MODEL TEXT`` makes it with transformers. Serdes that need a GPU
(turboquant) are left out, by name, where there is none. Attention is over all tokens, each layer with its own
queries: the error is that of its outputs, squared and over their energy. Speeds are megabytes of plain KV over processor
time, of all threads together, which is steadier on a busy machine than the clock.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

CONFIGS = [
    ("fp8", {}),
    ("turboquant", {"preset": "turboquant_k8v4"}),
    ("turboquant", {"preset": "turboquant_4bit_nc"}),
    ("turboquant", {"preset": "turboquant_k3v4_nc"}),
    ("turboquant", {"preset": "turboquant_3bit_nc"}),
    *(("trinity", {"bits": bits}) for bits in (8, 6, 5, 4, 3, 2)),
    ("trinity", {"bits": None, "pad": False}),
]


def make(model: str, text: str, tokens: int, out: Path) -> None:
    import transformers
    from tokenizers import Tokenizer
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    seen: list[torch.Tensor] = []
    plain = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def watched(module, query, *args, **keywords):
        seen.append(query[0].detach().clone())
        return plain(module, query, *args, **keywords)

    ALL_ATTENTION_FUNCTIONS.register("watched", watched)
    own = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa")
    own.config._attn_implementation = "watched"
    ids = Tokenizer.from_file(f"{model}/tokenizer.json").encode(Path(text).read_text()).ids[:tokens]
    with torch.no_grad():
        cache = own(torch.tensor([ids]), use_cache=True).past_key_values
    rows = [torch.stack([one[0].transpose(0, 1).reshape(tokens, -1) for one in (layer.keys, layer.values)]) for layer in cache.layers]
    torch.save({"kv": torch.stack(rows, 1).bfloat16(), "q": torch.stack(seen).float()}, out)


def attention(kv: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    layers, heads, tokens, size = q.shape
    keys, values = (one.float().reshape(layers, tokens, -1, size).transpose(1, 2) for one in kv)
    groups = heads // keys.shape[1]
    keys, values = (one.repeat_interleave(groups, 1) for one in (keys, values))
    return torch.nn.functional.scaled_dot_product_attention(q, keys, values, is_causal=True)


def nmse(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).square().sum() / b.double().square().sum())


def row(name: str, options: dict, data: dict, head_dim: int) -> str:
    from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
    from lmcache.v1.distributed.serde import SerdeConfig, create_serde_processor

    class Chunk:
        """What a serde sees of a `MemoryObj`."""

        def __init__(self, tensor: torch.Tensor) -> None:
            self.tensor = tensor

    if name == "turboquant":
        options = {**options, "head_dim": head_dim, "skip_first_layers": 0, "skip_last_layers": 0}
    serde = create_serde_processor(SerdeConfig(name, options))
    kv, key = data["kv"], ObjectKey(chunk_hash=b"1" * 32, model_name="m", kv_rank=0)
    layout = MemoryLayoutDesc(shapes=[kv.shape], dtypes=[kv.dtype])
    room = Chunk(torch.zeros(serde.estimate_serialized_size(layout), dtype=torch.uint8))
    back = Chunk(torch.zeros_like(kv))
    encode, decode = [], []
    used = room.tensor.numel()
    for _ in range(3):
        start = time.process_time()
        written = serde._serializer.serialize(Chunk(kv), room, key)
        middle = time.process_time()
        serde._deserializer.deserialize(room, back, key)
        encode.append(middle - start)
        decode.append(time.process_time() - middle)
        used = written if isinstance(written, int) else used
    estimate = room.tensor.numel()
    assert used <= estimate, "the estimate is no bound"
    bits = 8 * used / kv.numel()
    errors = [nmse(back.tensor[part], kv[part]) for part in (0, 1)]
    outputs = nmse(attention(back.tensor, data["q"]), attention(kv, data["q"]))
    mbs = [kv.numel() * 2 / min(times) / 1e6 for times in (encode, decode)]
    said = ", ".join(f"{own}" for own in options.values() if own not in (head_dim, 0, None, False))
    said = said or ("every bit" if name == "trinity" else "")
    return f"| {name} {said} | {used} | {estimate} | {bits:.2f} | {errors[0]:.2e} | {errors[1]:.2e} | {outputs:.2e} | {mbs[0]:.0f} | {mbs[1]:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kv", type=Path)
    parser.add_argument("--make", nargs=2, metavar=("MODEL", "TEXT"))
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256)
    args = parser.parse_args()
    if args.make:
        make(*args.make, args.tokens, args.kv)
        return
    import trinity.lmcache

    trinity.lmcache.register()
    data = torch.load(args.kv)
    print("| serde | bytes | estimate | bits/value | NMSE of K | NMSE of V | NMSE of attention | encode, MB a processor second | decode |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, options in CONFIGS:
        try:
            print(row(name, dict(options), data, args.head_dim), flush=True)
        except (RuntimeError, ImportError, AssertionError) as error:
            if name == "trinity":
                raise
            print(f"LEFT OUT: {name} {options}: {str(error).splitlines()[0]}", file=sys.stderr)


if __name__ == "__main__":
    main()
