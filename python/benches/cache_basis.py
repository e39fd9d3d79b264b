"""What `trinity.torch.CodedCache` loses with a basis of the model and without one: keys, values, and what follows.

    python python/benches/cache_basis.py MODEL TEXT BASIS [--tokens 600] [--read 80] [--bits 3,2]

`MODEL` is a folder of transformers, `BASIS` a file of `python -m trinity.vllm basis`. The model computes keys and values of
the text's first tokens; all but the last `--read` of them go into a coded cache, in pages of 128 tokens, and the model
reads the last ones on top of it. Errors are means over layers; the divergence is of the next token's probabilities, in nats, from those of the
uncoded cache.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import transformers
import trinity.torch

PAGE, WINDOW = 128, 64


def nmse(coded: trinity.torch.CodedCache, plain: transformers.DynamicCache, which: int) -> float:
    """Of what lies in pages, the mean over layers."""
    found = []
    for one, other in zip(coded.layers, plain.layers):
        meant = (other.keys, other.values)[which][..., one.sink : one.sink + len(one.pages) * one.page, :]
        found.append(float((torch.cat(one._decoded(which), -2) - meant).square().sum() / meant.square().sum()))
    return sum(found) / len(found)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("basis", metavar="BASIS")
    parser.add_argument("--tokens", type=int, default=600, help="tokens of the text (600)")
    parser.add_argument("--read", type=int, default=80, help="how many of them are read on top of the coded cache (80)")
    parser.add_argument("--bits", type=lambda said: [float(one) for one in said.split(",")], default=[3.0, 2.0], help="bits per value, with commas between")
    asked = parser.parse_args()
    model = transformers.AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(asked.model)(Path(asked.text).read_text(), return_tensors="pt").input_ids[:, : asked.tokens]
    plain, before = transformers.DynamicCache(config=model.config), asked.tokens - asked.read
    meant = model(tokens, past_key_values=plain).logits[:, before:].log_softmax(-1)
    print("| kept | bits per value of pages | NMSE of K | NMSE of V | divergence |\n|---|---:|---:|---:|---:|")
    for bits in asked.bits:
        for basis in (None, asked.basis):
            cache = trinity.torch.CodedCache(bits=bits, page=PAGE, window=WINDOW, config=model.config, basis=basis)
            for one, other in zip(cache.layers, plain.layers):
                one.update(other.keys[..., :before, :], other.values[..., :before, :])
            errors = [nmse(cache, plain, which) for which in (0, 1)]
            rate = 8 * cache.coded_bytes() / (cache.plain_bytes() / 4)
            found = model(tokens[:, before:], past_key_values=cache).logits.log_softmax(-1)
            divergence = float((meant.exp() * (meant - found)).sum(-1).mean())
            name = f"{bits:g} bits" + ("" if basis is None else ", in the basis")
            print(f"| {name} | {rate:.2f} | {errors[0]:.1e} | {errors[1]:.1e} | {divergence:.4f} |", flush=True)


if __name__ == "__main__":
    main()
