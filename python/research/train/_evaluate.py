"""What a model knows: bits per byte of held-out text by kind, and choices between continuations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ._model import Llama
from ._text import CONTEXT, Bytes, Corpus

#: Bytes that are looked at together.
TOGETHER = 1 << 15


def _losses(model: Llama, sequences: Bytes, device: torch.device, precision: str) -> torch.Tensor:
    """Bits of every byte but the first, sequence by sequence."""
    found = []
    each = max(1, TOGETHER // sequences.shape[1])
    for at in range(0, len(sequences), each):
        tokens = torch.from_numpy(sequences[at : at + each].astype(np.int64)).to(device)
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        found.append(loss.view(len(tokens), -1) / math.log(2))
    return torch.cat(found)


def evaluate(model: Llama, corpus: Corpus, windows: int, context: int, precision: str) -> dict[str, Any]:
    """Bits per byte over all kinds with the half-width of a 95 % interval over windows, and of each kind."""
    device = model.embed_tokens.device
    kinds, means = {}, []
    for kind in corpus.held_out:
        each = _losses(model, corpus.windows(kind, windows, context), device, precision).mean(1)
        kinds[kind] = float(each.mean())
        means.append(each)
    spread = math.sqrt(sum(float(each.var()) / len(each) if len(each) > 1 else 0.0 for each in means)) / len(means)
    return {
        "bits_per_byte": sum(kinds.values()) / len(kinds),
        "windows_interval": 1.96 * spread,
        "kinds": kinds,
    }


def choose(model: Llama, corpus: Corpus, count: int, precision: str) -> dict[str, float]:
    """The share of choices, by kind, in which the true continuation is the likeliest of four."""
    device = model.embed_tokens.device
    found = {}
    for kind in corpus.held_out:
        items, truth = corpus.choices(kind, count)
        if not len(items):
            continue
        losses = _losses(model, items.reshape(-1, items.shape[-1]), device, precision)
        of_continuation = losses[:, CONTEXT - 1 :].sum(1).view(len(items), -1)
        found[kind] = float((of_continuation.argmin(1).cpu().numpy() == truth).mean())
    return found
