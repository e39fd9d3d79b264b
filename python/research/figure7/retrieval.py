"""MiniLM (all-MiniLM-L6-v2): do sentences still find each other?

Sentences are of Python's own documentation (`pydoc_data.topics`).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel

#: Sentences that are compared, and such that only calibrate.
COMPARED, CALIBRATING = 300, 60


def sentences() -> list[str]:
    """Whole sentences of eight to forty words, in an order that no topic decides."""
    from pydoc_data.topics import topics

    found = set()
    for text in topics.values():
        for paragraph in re.split(r"\n\s*\n", text):
            plain = re.sub(r"\s+", " ", paragraph.strip())
            for sentence in re.findall(r"(?<![^ ])[A-Z][^.!?:|>=]*[a-z]\.(?= |$)", plain):
                if 8 <= len(sentence.split()) <= 40:
                    found.add(sentence)
    ordered = sorted(found, key=lambda sentence: hashlib.sha256(sentence.encode()).digest())
    return ordered[: COMPARED + CALIBRATING]


def ranks(values: np.ndarray) -> np.ndarray:
    order = np.empty(len(values))
    order[np.argsort(values, kind="stable")] = np.arange(len(values))
    return order


class Subject:
    name = "minilm-l6-v2"
    #: Bytes of a parameter as the package has it.
    width = 4
    #: What `agreement` and `second` are.
    measures = ("rank correlation of similarities", "nearest sentence the same")

    def __init__(self, cache: Path) -> None:
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        folder = cache / self.name
        self.model = BertModel(BertConfig.from_json_file(str(folder / "config.json")), add_pooling_layer=False)
        state = {k: v for k, v in load_file(folder / "model.safetensors").items() if not k.startswith("pooler.")}
        state.pop("embeddings.position_ids", None)
        self.model.load_state_dict(state)
        self.model.eval()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(128)
        self.tokenizer.enable_padding()
        every = sentences()
        assert len(every) == COMPARED + CALIBRATING, f"only {len(every)} sentences"
        self.compared, self.calibrating = every[:COMPARED], every[COMPARED:]

    def inputs(self) -> str:
        """A hash of what is compared."""
        return hashlib.sha256("\n".join(self.compared).encode()).hexdigest()

    def _embed(self, texts: list[str]) -> torch.Tensor:
        parts = []
        for start in range(0, len(texts), 50):
            encoded = self.tokenizer.encode_batch(texts[start : start + 50])
            ids = torch.tensor([one.ids for one in encoded])
            mask = torch.tensor([one.attention_mask for one in encoded])
            with torch.no_grad():
                hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            weight = mask[:, :, None].float()
            parts.append((hidden * weight).sum(1) / weight.sum(1))
        return torch.nn.functional.normalize(torch.cat(parts), dim=1)

    def calibrate(self) -> None:
        self._embed(self.calibrating)

    def run(self) -> np.ndarray:
        embedded = self._embed(self.compared)
        return (embedded @ embedded.T).numpy().astype(np.float64)

    def compare(self, uncoded: np.ndarray, own: np.ndarray) -> tuple[float, float]:
        pairs = np.triu_indices(len(own), 1)
        correlation = np.corrcoef(ranks(uncoded[pairs]), ranks(own[pairs]))[0, 1]
        nearest = [(m - 9 * np.eye(len(m))).argmax(1) for m in (uncoded, own)]
        return float(correlation), float((nearest[0] == nearest[1]).mean())
