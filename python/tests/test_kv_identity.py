"""What decides about a KV cache's values: the model's files, what an engine makes of them, adapters by their bytes."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from trinity.vllm._identity import Adapters, fingerprint, served


def _adapter(folder, weights: bytes, name: str = "a", number: int = 1) -> SimpleNamespace:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text('{"r": 8}')
    (folder / "adapter_model.safetensors").write_bytes(weights)
    (folder / "README.md").write_text(f"about {name}")
    return _asked(folder, name, number)


def _asked(path, name: str = "a", number: int = 1) -> SimpleNamespace:
    """What a request says of an adapter."""
    return SimpleNamespace(lora_name=name, lora_path=str(path), lora_int_id=number)


def test_an_adapter_is_its_bytes_and_not_its_name(tmp_path):
    said: list[str] = []
    weights = bytes(300_000)
    first = Adapters(said.append).identity(_adapter(tmp_path / "a", weights))
    assert first == Adapters(said.append).identity(_adapter(tmp_path / "b", weights, "other", 2))
    # One value in the middle of as many bytes, in place: another adapter, whatever its name and time say.
    changed = weights[:150_000] + b"x" + weights[150_001:]
    again = _adapter(tmp_path / "a", changed)
    os.utime(tmp_path / "a/adapter_model.safetensors", (1, 1))
    assert Adapters(said.append).identity(again) != first
    (tmp_path / "b/adapter_config.json").write_text('{"r": 8, "lora_alpha": 32}')
    assert Adapters(said.append).identity(_asked(tmp_path / "b", "b", 2)) != first
    assert not said


def test_an_adapter_that_changes_under_an_engine_is_neither_kept_nor_served(tmp_path):
    said: list[str] = []
    engine = Adapters(said.append)
    asked = _adapter(tmp_path / "a", b"before")
    first = engine.identity(asked)
    assert first is not None and engine.identity(asked) == first and not said
    _adapter(tmp_path / "a", b"after!")
    os.utime(tmp_path / "a/adapter_model.safetensors", (1, 1))
    assert engine.identity(asked) is None and engine.identity(asked) is None
    assert len(said) == 1 and "changed while this engine runs" in said[0]
    # Also where it is as it was again: what the engine read is not known.
    _adapter(tmp_path / "a", b"before")
    assert engine.identity(asked) is None
    # Under a number of its own, or in an engine that starts now, it is what it is now.
    assert engine.identity(_asked(tmp_path / "a", "a", 2)) == first
    assert Adapters(said.append).identity(asked) == first


def test_an_adapter_that_is_not_found_is_left_out_with_a_reason(tmp_path):
    said: list[str] = []
    engine = Adapters(said.append)
    for folder in (tmp_path / "none"), tmp_path:
        asked = _asked(folder, "far")
        assert engine.identity(asked) is None and engine.identity(asked) is None
    assert len(said) == 2 and "no folder with an adapter" in said[0]
    # Once it is there it is one.
    assert engine.identity(_adapter(tmp_path / "none", b"x", "far")) is not None


def test_an_adapter_of_a_hub_is_what_this_machine_has_of_it(tmp_path, monkeypatch):
    def snapshot_download(name: str, local_files_only: bool) -> str:
        assert local_files_only
        if not (tmp_path / "snapshot").is_dir():
            raise FileNotFoundError(name)
        return str(tmp_path / "snapshot")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    engine, asked = Adapters(print), _asked("some/adapter", "far")
    assert engine.identity(asked) is None
    own = _adapter(tmp_path / "snapshot", b"x")
    assert engine.identity(asked) == Adapters(print).identity(own) is not None


def test_a_model_is_its_configuration_its_weights_and_what_options_make_of_it(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    first = fingerprint(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(bytes(999) + b"x")
    assert fingerprint(str(tmp_path)) != first != fingerprint("name/of-a-hub")
    (tmp_path / "one.gguf").write_bytes(bytes(1000))
    first = fingerprint(str(tmp_path / "one.gguf"))
    (tmp_path / "one.gguf").write_bytes(bytes(999) + b"x")
    assert fingerprint(str(tmp_path / "one.gguf")) != first

    def engine(commit: str | None = None, **model) -> dict[str, str]:
        own = SimpleNamespace(to_dict=lambda: {"rope_theta": 1e4, "_name_or_path": "x", "transformers_version": "5"}, _commit_hash=commit)
        return served(SimpleNamespace(model_config=SimpleNamespace(model="name/of-a-hub", dtype="bf16", hf_config=own, **model)))

    assert engine() == engine()
    assert engine(commit="0123") != engine() != engine(quantization="fp8")
