"""SmolLM2 and a GPT-2 through every door: the same bytes, and transformers' perplexity of the file is `eval`'s.

`cargo xtask models` brings SmolLM2.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")
transformers = pytest.importorskip("transformers", reason="LEFT OUT: transformers is not installed (cargo xtask test --all)")

import folders  # noqa: E402

import trinity  # noqa: E402
import trinity.torch as tt  # noqa: E402

TEXT = Path(__file__).resolve().parents[2] / "models/lm/data/eval.txt"


def _smollm2(folder: Path):
    gguf = folders.cached_model("smollm2-135m.gguf")
    if gguf is None:
        pytest.skip("LEFT OUT: SmolLM2 is not there (cargo xtask models)")
    folders.llama_folder(gguf, folder)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder), dtype=torch.float32)
    model.load_state_dict(tt.load_state_dict(folder / "model.safetensors", model))
    return model.eval()


MODELS = {
    "smollm2": (_smollm2, 3.0, "line-fast"),
    "gpt2": (lambda folder: folders.trained_gpt2(folder, TEXT.read_bytes()[:-480]), 3.0, "trinity"),
}


def _tokens(folder: Path, text: bytes):
    if not (folder / "tokenizer.json").exists():
        return torch.tensor([list(text)])
    from tokenizers import Tokenizer

    return torch.tensor([Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text.decode()).ids])


def _perplexity(model, tokens) -> float:
    with torch.no_grad():
        return math.exp(float(model(tokens, labels=tokens).loss))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_through_every_door(name, tmp_path, trinity_command, in_shards):
    make, bits, codec = MODELS[name]
    folder = tmp_path / "model"
    model = make(folder)
    (tmp_path / "text.txt").write_bytes(text := TEXT.read_bytes()[-480:])
    source = str(folder / "model.safetensors")
    asked = ["--bits", str(bits), "--codec", codec]

    trinity_command("encode", source, *asked, "-o", "command.tri")
    command = (tmp_path / "command.tri").read_bytes()
    trinity.encode_file(source, tmp_path / "file.tri", bits=bits, codec=codec, progress=False)
    assert (tmp_path / "file.tri").read_bytes() == command, "encode_file"
    state = trinity.read(source, into="torch", progress=False)
    trinity.save(tmp_path / "save.tri", state, bits=bits, codec=codec, progress=False)
    assert (tmp_path / "save.tri").read_bytes() == command, "save"
    coded = trinity.encode(state, bits=bits, codec=codec, progress=False)
    trinity.save(tmp_path / "dict.tri", coded)
    assert (tmp_path / "dict.tri").read_bytes() == command, "encode(dict)"
    assert in_shards(2, "encode", source, *asked) == command, "shards"

    # The file, judged by the command and by transformers.
    row = json.loads(trinity_command("eval", "command.tri", "--original", str(folder), "--text", "text.txt", "--json"))
    tokens = _tokens(folder, text)
    before = _perplexity(model, tokens)
    model.load_state_dict(tt.load_state_dict(tmp_path / "command.tri", model))
    after = _perplexity(model, tokens)
    assert row["perplexity"] == pytest.approx(after, rel=1e-4)
    assert row["weight_mib"] == pytest.approx(len(command) / 2**20, rel=1e-6)
    assert after != before
    # In memory: what `eval --weights` judges is the file's, too.
    weighed = json.loads(trinity_command("eval", str(folder), "--weights", f"{codec}@{bits}", "--text", "text.txt", "--json"))
    row = weighed["rows"][-1] if "rows" in weighed else weighed
    assert row["perplexity"] == pytest.approx(after, rel=1e-4)
    print(f"\n{name}: perplexity {before:.4f}, coded {after:.4f} (command {row['perplexity']:.4f}), {len(command)} bytes")
    # What `compress_` leaves is what the file of its state dictionary, which also names the tie, holds.
    model.load_state_dict({**model.state_dict(), **state})
    model.tie_weights()
    model.to(next(iter(state.values())).dtype)
    tt.save_state_dict(tmp_path / "state.tri", model, bits=bits, codec=codec)
    summary = tt.compress_(model, bits=bits, codec=codec)
    assert summary["bytes"] == (tmp_path / "state.tri").stat().st_size
    decoded = tt.load_state_dict(tmp_path / "state.tri")
    for key, one in model.state_dict().items():
        assert torch.equal(one, decoded[key]), key
