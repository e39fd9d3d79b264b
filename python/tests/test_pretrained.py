"""Coded models in `from_pretrained` of transformers."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")
transformers = pytest.importorskip("transformers", reason="LEFT OUT: transformers is not installed (cargo xtask test --all)")

import folders  # noqa: E402
import trinity  # noqa: E402
import trinity.torch as tt  # noqa: E402
from processes import python  # noqa: E402
from trinity.torch import _pretrained  # noqa: E402


def _bert():
    torch.manual_seed(11)
    return transformers.BertModel(transformers.BertConfig(**folders.SIZES)).eval()


MODELS = {"llama": folders.llama, "bert": _bert, "mixtral": folders.mixtral, "gpt2": folders.gpt2}


def _auto(model):
    return transformers.AutoModelForCausalLM if hasattr(model, "lm_head") else transformers.AutoModel


@pytest.fixture
def saved(tmp_path):
    model = folders.llama()
    tt.save_pretrained(model, tmp_path / "coded", bits=4)
    return model, tmp_path / "coded"


@pytest.mark.parametrize("name", MODELS)
def test_what_the_command_decodes_is_a_folder_that_loads(name, tmp_path, trinity_command):
    model = MODELS[name]()
    model.save_pretrained(tmp_path / "model", max_shard_size="100KB")
    (tmp_path / "model/tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    trinity_command("encode", "model", "--bits", "5", "--files", "-o", "model.tri")
    trinity_command("decode", "model.tri", "--to", "safetensors", "--dtype", "bf16", "-o", "decoded")
    assert (tmp_path / "decoded/tokenizer_config.json").read_bytes() == (tmp_path / "model/tokenizer_config.json").read_bytes()
    shards = {path.name for path in (tmp_path / "model").glob("*.safetensors")}
    assert len(shards) > 1 and {path.name for path in (tmp_path / "decoded").glob("*.safetensors")} == shards
    loaded = _auto(model).from_pretrained(tmp_path / "decoded", dtype=torch.bfloat16)
    coded = tt.load_state_dict(tmp_path / "model.tri")
    state = loaded.state_dict()
    # Files of Mixtral have a matrix for each expert, the model one parameter for all: by their own names.
    decoded = trinity.read(tmp_path / "decoded", into="torch", progress=False)
    assert all(torch.equal(decoded[key], one.bfloat16()) for key, one in coded.items())
    assert all(torch.equal(state[key], one) for key, one in decoded.items() if name != "mixtral")
    tied = [(a, b) for a, b in [("lm_head.weight", "model.embed_tokens.weight")] if model.config.tie_word_embeddings and a in state and b in state]
    assert all(loaded.get_parameter(a) is loaded.get_parameter(b) for a, b in tied)
    tokens = torch.arange(24)[None]
    with torch.no_grad():
        answer, before = loaded(tokens)[0].float(), model(tokens)[0]
    assert float((answer - before).pow(2).mean() / before.pow(2).mean()) < 0.05


@pytest.mark.parametrize("name", MODELS)
def test_a_folder_comes_back_as_the_file_is(name, tmp_path):
    model, folder = MODELS[name](), tmp_path / "coded"
    summary = tt.save_pretrained(model, folder, bits=4)
    assert summary["bits_per_value"] <= 4
    model.load_state_dict(tt.load_state_dict(folder / "model.tri", model))
    tokens = torch.randint(0, 256, (2, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(tokens)[0]
        loaded, said = _auto(model).from_pretrained(folder, output_loading_info=True)
        assert not any(said.values()), said
        assert torch.equal(loaded(tokens)[0], expected)
        used = _auto(model).from_pretrained(folder, quantization_config=tt.TrinityConfig(decode="use"))
        assert torch.equal(used(tokens)[0], expected)
    assert len(list(used.parameters())) < len(list(loaded.parameters()))
    # What was decoded is a plain model, and what is coded says that it cannot be saved so.
    loaded.save_pretrained(tmp_path / "plain")
    assert "quantization_config" not in json.loads((tmp_path / "plain/config.json").read_text())
    with torch.no_grad():
        assert torch.equal(_auto(model).from_pretrained(tmp_path / "plain")(tokens)[0], expected)
    with pytest.raises(ValueError, match="not serializable"):
        used.save_pretrained(tmp_path / "never")


def test_half_precision_is_asked_for_as_ever(saved):
    loaded = transformers.AutoModelForCausalLM.from_pretrained(saved[1], dtype=torch.bfloat16)
    assert {one.dtype for one in loaded.parameters()} == {torch.bfloat16}
    assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


def test_nothing_wrong_is_loaded(saved, tmp_path):
    _, folder = saved
    weights = folder / "model.tri"
    whole = weights.read_bytes()
    load = transformers.AutoModelForCausalLM.from_pretrained
    for damaged in folders.flipped(whole, len(whole) // 2), whole[: len(whole) // 3]:
        weights.write_bytes(damaged)
        with pytest.raises(trinity.InputError):
            load(folder)
    trinity.save(weights, {"model.embed_tokens.weight": torch.randn(256, 64)}, bits=4, force=True)
    with pytest.raises(trinity.InputError, match="has no `model.layers.0"):
        load(folder)
    weights.unlink()
    with pytest.raises(trinity.InputError, match="has no model.tri"):
        load(folder)
    own = json.loads((folder / "config.json").read_text())
    own["quantization_config"]["version"] = 2
    (folder / "config.json").write_text(json.dumps(own))
    with pytest.raises(trinity.InputError, match="of version 2"):
        load(folder)
    with pytest.raises(trinity.InputError, match="no model of transformers"):
        tt.save_pretrained(torch.nn.Linear(4, 4), tmp_path / "x")


def test_weights_of_another_model_or_kind_are_refused_where_transformers_compares_nothing(saved, tmp_path):
    _, folder = saved
    load = transformers.AutoModelForCausalLM.from_pretrained
    good = (folder / "model.tri").read_bytes()
    for change, why in (
        ({"intermediate_size": 64}, r"gate_proj.weight` is \(64, 64\), and that of LlamaForCausalLM is \(128, 64\)"),
        ({"num_key_value_heads": 4}, r"k_proj.weight` is \(64, 64\), and that"),
        ({"num_hidden_layers": 3}, r"has `model.layers.2.* which LlamaForCausalLM has not"),
        ({"num_hidden_layers": 1}, "has no `model.layers.1"),
        # Of the same shapes: only what the folder was saved with tells.
        ({}, "not the file that this folder was saved with"),
    ):
        made = tmp_path / "made"
        tt.save_pretrained(folders.llama(seed=5, **change), made, bits=4, force=True)
        (folder / "model.tri").write_bytes((made / "model.tri").read_bytes())
        for decode in "load", "use":
            with pytest.raises(trinity.InputError, match=why):
                load(folder, quantization_config=tt.TrinityConfig(decode=decode))
    (folder / "model.tri").write_bytes(good)
    assert load(folder).config.num_hidden_layers == 2
    state = tt.load_state_dict(folder / "model.tri")
    trinity.save(folder / "model.tri", {name: (64 * one).to(torch.int8) for name, one in state.items()}, lossless=True, force=True)
    with pytest.raises(trinity.InputError, match="is torch.int8, and that of"):
        load(folder)
    model = folders.llama()
    model.model.layers[0].mlp.up_proj.weight.data *= 1e7
    tt.save_pretrained(model, tmp_path / "large", bits=6)
    assert load(tmp_path / "large", dtype=torch.bfloat16).dtype == torch.bfloat16
    with pytest.raises(trinity.InputError, match="up_proj.weight` has values that torch.float16 does not hold"):
        load(tmp_path / "large", dtype=torch.float16)


@pytest.mark.parametrize("decode", ["load", "use"])
def test_a_model_without_a_head_is_read_out_of_one_with_it(saved, decode):
    model, folder = saved
    base = transformers.AutoModel.from_pretrained(folder, quantization_config=tt.TrinityConfig(decode=decode))
    whole = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokens = torch.arange(24)[None]
    with torch.no_grad():
        assert torch.equal(base(tokens)[0], whole.model(tokens)[0])
    assert (len(list(base.parameters())) < len(list(whole.parameters()))) == (decode == "use")
    with pytest.raises(trinity.InputError, match="has no `score.weight`"):
        transformers.AutoModelForSequenceClassification.from_pretrained(folder)


def test_a_folder_of_before_does_not_say_its_weights(saved):
    _, folder = saved
    names = folder / "model.safetensors"
    digest = _pretrained._saved_with(names)
    assert digest == _pretrained._digest(folder / "model.tri")
    _pretrained._write_names(names, ["model.embed_tokens.weight"], digest)
    text = names.read_bytes().replace(b"trinity.digest", b"another.thing!")
    names.write_bytes(text)
    assert _pretrained._saved_with(names) is None and transformers.AutoModelForCausalLM.from_pretrained(folder)


def test_what_a_description_says_wrongly_is_a_sentence(saved):
    _, folder = saved
    own = json.loads((folder / "config.json").read_text())
    for said, why in (({"file": 7}, "no name of one"), ({"file": ""}, "no name of one"), ({"file": "../model.tri"}, "no name of one"), ({"version": "1"}, "of version '1'")):
        (folder / "config.json").write_text(json.dumps({**own, "quantization_config": {**own["quantization_config"], **said}}))
        with pytest.raises(trinity.InputError, match=why):
            transformers.AutoModelForCausalLM.from_pretrained(folder)


def test_a_full_disk_is_a_sentence(saved, tmp_path, monkeypatch):
    resource = pytest.importorskip("resource", reason="LEFT OUT: this system has no limits of files")
    model, folder = saved
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The decoded weights are several times as long as the coded ones.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * (folder / "model.tri").stat().st_size, hard))
    try:
        with pytest.raises(trinity.RunError, match="no room for the decoded weights.*") as said:
            transformers.AutoModelForCausalLM.from_pretrained(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "TMPDIR" in str(said.value)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(trinity.RunError, match="cannot be written: No space left on device"):
        tt.save_pretrained(model, tmp_path / "no-room", bits=4)


def test_transformers_without_the_method_refuses_the_folder(saved):
    done = python("-c", f"import transformers; transformers.AutoModelForCausalLM.from_pretrained({str(saved[1])!r})")
    assert done.returncode != 0 and "Unknown quantization type, got trinity" in done.stderr, done.stderr[-2000:]
