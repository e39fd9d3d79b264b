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

import torch
from kv_sink import Passages, opened

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
    judged, size, tokens = [], 0, 0
    for at, layers in enumerate(passages.caches):
        cache = torch.stack([torch.stack([side[0].transpose(0, 1) for side in layer]) for layer in layers])
        found, own = decoded(cache.to(form.dtype), form, bits)
        size, tokens = size + own, tokens + cache.shape[2]
        judged.append(passages.judged(at, [(keys.transpose(0, 1)[None], values.transpose(0, 1)[None]) for keys, values in found]))
    nats, divergence, same = (sum(column) / len(judged) for column in zip(*judged))
    return f"| {bits:g} bits{name} | {size / tokens:,.0f} | {nats:+.3f} | {divergence:.4f} | {same:.1%} |"


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("basis")
    asked, passages = opened(parser, prefix=512)
    basis, own = Basis.open(asked.basis), passages.model.config
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
