"""What a basis of a model's keys and values is worth to what the model answers: `python python/benches/kv_basis.py MODEL TEXT FILE`.

FILE is what ``python -m trinity.vllm basis MODEL OTHER -o FILE`` makes of another text. A model of transformers reads the
beginning of each passage of TEXT (``--prefix`` tokens), whose keys and values are coded block by block as the connector
of vLLM codes them, four first tokens kept; the rest of the passage is read on top of what was decoded. Prints what the
model loses on the rest beside an uncoded cache, for each rate without the basis and with it: nats per token, the
Kullback-Leibler divergence, and next tokens that are the same.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
import transformers
from kv_sink import Passages

from trinity.vllm import BlockStore
from trinity.vllm._basis import Basis
from trinity.vllm._form import Form
from trinity.vllm._frame import Rope

SINK = 4


def decoded(cache: torch.Tensor, form: Form, bits: float) -> tuple[torch.Tensor, int]:
    """A cache ``(layers, keys and values, tokens, heads, channels)`` as it is read back, and its bytes."""
    back, size = [], 0
    with tempfile.TemporaryDirectory() as folder:
        store = BlockStore(folder, "model", bits=bits)
        for index, block in enumerate(cache.split(form.tokens, 2)):
            size += store.put(str(index), form.pack(block, index), exact=form.exact) or 0
            back.append(form.unpack(store.get(str(index), form.expected(index)), index))
    return torch.cat(back, 2).float(), size


def row(name: str, passages: Passages, form: Form, bits: float) -> str:
    nats, divergence, same, size, tokens = 0.0, 0.0, 0.0, 0, 0
    for one, layers, plain in zip(passages.tokens, passages.caches, passages.answers):
        cache = torch.stack([torch.stack([side[0].transpose(0, 1) for side in layer]) for layer in layers])
        found, own = decoded(cache.to(form.dtype), form, bits)
        size, tokens = size + own, tokens + cache.shape[2]
        answer = passages.rest(one, [(keys.transpose(0, 1)[None], values.transpose(0, 1)[None]) for keys, values in found])
        targets = one[0, passages.prefix + 1 :, None]
        nats += float((plain[:-1].gather(1, targets) - answer[:-1].gather(1, targets)).mean())
        divergence += float((plain.exp() * (plain - answer)).sum(-1).mean())
        same += float((plain.argmax(-1) == answer.argmax(-1)).float().mean())
    count = len(passages.tokens)
    return f"| {bits:g} bits{name} | {size / tokens:,.0f} | {nats / count:+.3f} | {divergence / count:.4f} | {same / count:.1%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("basis")
    parser.add_argument("--bits", default="2,3,4")
    parser.add_argument("--block", type=int, default=128, help="tokens that are coded together")
    parser.add_argument("--prefix", type=int, default=512)
    parser.add_argument("--rest", type=int, default=128)
    parser.add_argument("--passages", type=int, default=4)
    asked = parser.parse_args()
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(Path(asked.model) / "tokenizer.json")).encode(Path(asked.text).read_text()).ids
    basis = Basis.open(asked.basis)
    with torch.no_grad():
        model = transformers.AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32).eval()
        passages = Passages(model, ids, asked.prefix, asked.rest, asked.passages)
        own = model.config
        angles = torch.arange(asked.prefix)[:, None] / own.rope_parameters["rope_theta"] ** (torch.arange(0, own.head_dim, 2) / own.head_dim)
        rope = Rope(torch.cat([angles.cos(), angles.sin()], -1), interleaved=False)
        form = Form(own.num_hidden_layers, torch.bfloat16, asked.block, own.num_key_value_heads, own.head_dim, SINK, rope)
        basis.held_against_shape(asked.basis, form.shape)
        print("| kept | bytes per token | nats per token lost | divergence | next tokens equal |\n|---|---:|---:|---:|---:|", flush=True)
        for bits in map(float, asked.bits.split(",")):
            for name, used in ("", None), (", in the basis", basis):
                print(row(name, passages, replace(form, basis=used), bits), flush=True)


if __name__ == "__main__":
    main()
