"""Whisper base: which words change?

Speech is of Debian's prompts for a telephone exchange, one speaker.
"""

from __future__ import annotations

import hashlib
import struct
import wave
from pathlib import Path

import numpy as np
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

#: start of transcript, English, transcribe, no timestamps; end of text
PROMPT, END = [50258, 50259, 50359, 50363], 50257
#: Tokens of a window at most: nobody says more in half a minute.
MOST = 120
#: Seconds that one window holds.
WINDOW_S = 28.0
WINDOWS, CALIBRATING = 5, 2
_KINDS = {0: "<f4", 1: "i1", 2: "<i2", 3: "<i4", 4: "<f2"}


def ctranslate2(path: Path) -> dict[str, np.ndarray]:
    """The variables of a CTranslate2 file: version, name, revision, then each with its name, shape and values."""
    data, at = path.read_bytes(), 0

    def take(kind: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from("<" + kind, data, at)
        at += struct.calcsize("<" + kind)
        return int(value)

    def text() -> str:
        nonlocal at
        length = take("H")
        at += length
        return data[at - length : at - 1].decode()

    take("I"), text(), take("I")
    variables = {}
    for _ in range(take("I")):
        name = text()
        shape = [take("I") for _ in range(take("B"))]
        kind, size = np.dtype(_KINDS[take("B")]), take("I")
        variables[name] = np.frombuffer(data, kind, size // kind.itemsize, at).reshape(shape)
        at += size
    return variables


def _attention(into: dict[str, np.ndarray], found: dict[str, np.ndarray], own: str, theirs: str) -> None:
    """Names of one attention: what CTranslate2 fused is three or two projections."""
    parts = [found[f"{theirs}/linear_{i}/weight"] for i in range(3) if f"{theirs}/linear_{i}/weight" in found]
    biases = [found[f"{theirs}/linear_{i}/bias"] for i in range(len(parts))]
    weight, bias = np.concatenate(parts), np.concatenate(biases)
    size = weight.shape[1]
    for i, projection in enumerate(["q_proj", "k_proj", "v_proj", "out_proj"]):
        into[f"{own}.{projection}.weight"] = weight[i * size : (i + 1) * size]
        if projection != "k_proj":
            into[f"{own}.{projection}.bias"] = bias[i * size : (i + 1) * size]


def _norm(into: dict[str, np.ndarray], found: dict[str, np.ndarray], own: str, theirs: str) -> None:
    into[f"{own}.weight"], into[f"{own}.bias"] = found[f"{theirs}/gamma"], found[f"{theirs}/beta"]


def _layer(into: dict[str, np.ndarray], found: dict[str, np.ndarray], side: str, index: int) -> None:
    own, theirs = f"model.{side}.layers.{index}", f"{side}/layer_{index}"
    attentions = [("self_attn", "self_attention")] + [("encoder_attn", "attention")] * (side == "decoder")
    for ours, other in attentions:
        _attention(into, found, f"{own}.{ours}", f"{theirs}/{other}")
        _norm(into, found, f"{own}.{ours}_layer_norm", f"{theirs}/{other}/layer_norm")
    _norm(into, found, f"{own}.final_layer_norm", f"{theirs}/ffn/layer_norm")
    for i in range(2):
        for kind in ("weight", "bias"):
            into[f"{own}.fc{i + 1}.{kind}"] = found[f"{theirs}/ffn/linear_{i}/{kind}"]


def state(found: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The variables under the names that transformers has."""
    into: dict[str, np.ndarray] = {}
    for side in ("encoder", "decoder"):
        for index in range(6):
            _layer(into, found, side, index)
        _norm(into, found, f"model.{side}.layer_norm", f"{side}/layer_norm")
        into[f"model.{side}.embed_positions.weight"] = found[f"{side}/position_encodings/encodings"]
    for conv in ("conv1", "conv2"):
        for kind in ("weight", "bias"):
            into[f"model.encoder.{conv}.{kind}"] = found[f"encoder/{conv}/{kind}"]
    into["model.decoder.embed_tokens.weight"] = into["proj_out.weight"] = found["decoder/embeddings/weight"]
    return {name: torch.from_numpy(values.astype(np.float32)) for name, values in into.items()}


def words(text: str) -> list[str]:
    """Words as they are heard: neither case nor punctuation."""
    plain = "".join(c if c.isalnum() or c == "'" else " " for c in text.lower())
    return plain.split()


def changed(reference: list[str], own: list[str]) -> int:
    """Words that are replaced, missing or too many."""
    row = list(range(len(own) + 1))
    for i, expected in enumerate(reference, 1):
        before, row[0] = row[0], i
        for j, word in enumerate(own, 1):
            before, row[j] = row[j], min(before + (word != expected), row[j] + 1, row[j - 1] + 1)
    return row[-1]


class Subject:
    name = "whisper-base"
    width = 2
    measures = ("words kept", "next token the same")

    def __init__(self, cache: Path) -> None:
        from tokenizers import Tokenizer

        config = WhisperConfig(
            vocab_size=51865, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
            decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048,
        )  # fmt: skip
        self.model = WhisperForConditionalGeneration(config)
        self.model.load_state_dict(state(ctranslate2(cache / self.name / "model.bin")))
        self.model.tie_weights()
        self.model.eval()
        self.tokenizer = Tokenizer.from_file(str(cache / self.name / "tokenizer.json"))
        windows = self._windows(cache / "asterisk-en")
        self.compared, self.calibrating = windows[:WINDOWS], windows[WINDOWS : WINDOWS + CALIBRATING]
        self.said: list[list[int]] | None = None

    def _windows(self, folder: Path) -> list[np.ndarray]:
        """The longest prompts that fit a window, at 16 kHz."""
        found = []
        for path in sorted(folder.glob("*.wav")):
            with wave.open(str(path)) as file:
                seconds = file.getnframes() / file.getframerate()
                # The one without words.
                if seconds <= WINDOW_S and path.stem != "tt-monkeys":
                    found.append((seconds, path.stem, np.frombuffer(file.readframes(1 << 30), "<i2"), file.getframerate()))
        found.sort(key=lambda one: (-one[0], one[1]))
        windows = []
        for seconds, _, samples, rate in found[: WINDOWS + CALIBRATING]:
            at = np.arange(int(seconds * 16000)) * (rate / 16000)
            windows.append(np.interp(at, np.arange(len(samples)), samples / 32768).astype(np.float32))
        return windows

    def inputs(self) -> str:
        return hashlib.sha256(b"".join(window.tobytes() for window in self.compared)).hexdigest()

    def _heard(self, windows: list[np.ndarray]) -> torch.Tensor:
        features = WhisperFeatureExtractor()(windows, sampling_rate=16000, return_tensors="pt").input_features
        with torch.no_grad():
            return self.model.model.encoder(features).last_hidden_state

    def _transcribe(self, heard: torch.Tensor) -> list[list[int]]:
        """Tokens of each window, the likeliest one at a time."""
        tokens = torch.tensor([PROMPT] * len(heard))
        cache, fed, ended = None, tokens, torch.zeros(len(heard), dtype=torch.bool)
        with torch.no_grad():
            for _ in range(MOST):
                out = self.model.model.decoder(
                    input_ids=fed, encoder_hidden_states=heard, past_key_values=cache, use_cache=True
                )
                cache = out.past_key_values
                scores = self.model.proj_out(out.last_hidden_state[:, -1])
                scores[:, END + 1 :] = -torch.inf
                fed = scores.argmax(1, keepdim=True)
                fed[ended] = END
                ended |= fed[:, 0] == END
                tokens = torch.cat([tokens, fed], 1)
                if ended.all():
                    break
        said = tokens[:, len(PROMPT) :].tolist()
        return [line[: line.index(END) + 1] if END in line else line for line in said]

    def _followed(self, heard: torch.Tensor, said: list[list[int]]) -> np.ndarray:
        """The likeliest next token after each that the uncoded model said."""
        found = []
        for one, line in zip(heard, said):
            ids = torch.tensor([PROMPT + line[:-1]])
            with torch.no_grad():
                hidden = self.model.model.decoder(input_ids=ids, encoder_hidden_states=one[None]).last_hidden_state
                scores = self.model.proj_out(hidden[0, len(PROMPT) - 1 :])
            scores[:, END + 1 :] = -torch.inf
            found.append(scores.argmax(1).numpy())
        return np.concatenate(found)

    def calibrate(self) -> None:
        self._transcribe(self._heard(self.calibrating))

    def run(self) -> tuple[list[str], np.ndarray]:
        heard = self._heard(self.compared)
        said = self._transcribe(heard)
        if self.said is None:
            self.said = said
        followed = self._followed(heard, self.said)
        return [self.tokenizer.decode([t for t in line if t < END]) for line in said], followed

    def compare(self, uncoded: tuple[list[str], np.ndarray], own: tuple[list[str], np.ndarray]) -> tuple[float, float]:
        pairs = [(words(a), words(b)) for a, b in zip(uncoded[0], own[0])]
        wrong = sum(changed(a, b) for a, b in pairs)
        kept = max(0.0, 1 - wrong / sum(len(a) for a, _ in pairs))
        return kept, float((uncoded[1] == own[1]).mean())
