"""What first and recent tokens of a coded KV cache are worth: `python python/benches/kv_sink.py MODEL TEXT`.

A model of transformers reads the beginning of each passage of a text (`--prefix` tokens); its keys and values are coded,
but for the first `sink` tokens and the last `window` tokens, which stay as they are; and the rest of the passage is
read on top of what was decoded. Prints, for each rate and each choice of sink and window, bits per value with what
stayed counted at 16 bits, and what the model loses on the rest beside an uncoded cache: nats per token, and the
Kullback-Leibler divergence. The last column is what the whole prefix loses coded at that many bits: a choice pays
where it loses less than that.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
import transformers

import trinity

#: Bits of a value that stays.
PLAIN_BITS = 16


def coded(pair: torch.Tensor, bits: float, codec: str, spared: tuple[int, int, int]) -> tuple[torch.Tensor, float]:
    """Keys or values of one layer as a decoder would have them, and their bits per value.

    Block by block, in rows of a head's channels, as the connector of vLLM codes them;
    ``spared`` is the sink, the window, and the tokens of a block.
    """
    sink, window, block = spared
    _, heads, tokens, width = pair.shape
    last = max(tokens - window, sink)
    rows = pair[0].transpose(0, 1)
    back, total = rows.clone(), PLAIN_BITS * (tokens - (last - sink)) * heads * width
    places = [(max(at, sink), min(at + block, last)) for at in range(0, tokens, block)]
    places = [(first, end) for first, end in places if first < end]
    parts = [rows[first:end].reshape(-1, width).half().contiguous() for first, end in places]
    made = trinity.encode(parts, bits=bits, codec=codec, class_="kv-cache", measure=False)
    for (first, end), one in zip(places, made):
        back[first:end] = trinity.decode(one).to(back.dtype).reshape(end - first, heads, width)
        total += 8 * len(one.bytes)
    return back.transpose(0, 1)[None], total / pair.numel()


class Passages:
    """Passages of a text, each with what an uncoded cache answers."""

    def __init__(self, model: torch.nn.Module, ids: list[int], prefix: int, rest: int, count: int) -> None:
        self.model, self.prefix = model, prefix
        self.tokens = [torch.tensor([ids[at * (prefix + rest) : (at + 1) * (prefix + rest)]]) for at in range(count)]
        self.caches = []
        self.answers = []
        for one in self.tokens:
            cache = transformers.DynamicCache()
            model(one[:, :prefix], past_key_values=cache)
            self.caches.append([(layer.keys.clone(), layer.values.clone()) for layer in cache.layers])
            self.answers.append(self.rest(one, self.caches[-1]))

    def rest(self, one: torch.Tensor, layers: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        cache = transformers.DynamicCache()
        for at, (keys, values) in enumerate(layers):
            cache.update(keys.clone(), values.clone(), at)
        return self.model(one[:, self.prefix :], past_key_values=cache).logits[0].float().log_softmax(-1)

    def judged(self, at: int, layers: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float, float]:
        """Of a passage on top of a decoded cache: nats per token lost, the divergence, next tokens that are the same."""
        one, plain = self.tokens[at], self.answers[at]
        answer, targets = self.rest(one, layers), one[0, self.prefix + 1 :, None]
        nats = float((plain[:-1].gather(1, targets) - answer[:-1].gather(1, targets)).mean())
        divergence = float((plain.exp() * (plain - answer)).sum(-1).mean())
        return nats, divergence, float((plain.argmax(-1) == answer.argmax(-1)).float().mean())

    def lost(self, bits: float, codec: str, spared: tuple[int, int, int]) -> tuple[float, float, float]:
        """Bits per value, nats per token lost, and the divergence."""
        rates, found = [], []
        for at, layers in enumerate(self.caches):
            made = [tuple(coded(side, bits, codec, spared) for side in layer) for layer in layers]
            rates += [rate for layer in made for _, rate in layer]
            found.append(self.judged(at, [(keys, values) for (keys, _), (values, _) in made]))
        nats, divergence, _ = (sum(column) / len(found) for column in zip(*found))
        return sum(rates) / len(rates), nats, divergence


def opened(parser: argparse.ArgumentParser, prefix: int) -> tuple[argparse.Namespace, Passages]:
    """What was asked for, and the passages of the text."""
    parser.add_argument("--bits", default="2,3,4")
    parser.add_argument("--block", type=int, default=128, help="tokens that are coded together")
    parser.add_argument("--prefix", type=int, default=prefix)
    parser.add_argument("--rest", type=int, default=128)
    parser.add_argument("--passages", type=int, default=4)
    asked = parser.parse_args()
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(Path(asked.model) / "tokenizer.json")).encode(Path(asked.text).read_text()).ids
    model = transformers.AutoModelForCausalLM.from_pretrained(asked.model, dtype=torch.float32).eval()
    return asked, Passages(model, ids, asked.prefix, asked.rest, asked.passages)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--choices", default="0+0,4+0,0+128,4+128", help="sink+window, …")
    parser.add_argument("--codec", default="line-fast")
    asked, passages = opened(parser, prefix=768)
    print("| bits | sink | window | bits per value in all | nats per token lost | divergence | divergence, all coded at as many bits |\n|---|---|---|---:|---:|---:|---:|")
    for bits in map(float, asked.bits.split(",")):
        for choice in asked.choices.split(","):
            sink, window = map(int, choice.split("+"))
            rate, nats, divergence = passages.lost(bits, asked.codec, (sink, window, asked.block))
            # Eighths of a bit: what is not coded would be asked for again and again.
            same = passages.lost(math.ceil(8 * rate) / 8, asked.codec, (0, 0, asked.block))[2] if sink or window else divergence
            print(f"| {bits:g} | {sink} | {window} | {rate:.2f} | {nats:+.4f} | {divergence:.4f} | {same:.4f} |", flush=True)


if __name__ == "__main__":
    main()
