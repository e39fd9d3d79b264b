"""Models for tests, as folders that transformers and the command read."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

import trinity

ROOT = Path(__file__).resolve().parents[2]


def flipped(data: bytes, at: int, mask: int = 1) -> bytes:
    """The same bytes but for bits of one."""
    return data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def cached_model(name: str) -> Path | None:
    """What `cargo xtask models` brought, if it did."""
    found = Path(os.environ.get("TRINITY_MODELS") or ROOT / "target/models") / name
    return found if found.exists() else None


def save_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """A file of tensors, written without the package that others do it by."""
    header, data = {}, b""
    names = {"float32": "F32", "int64": "I64", "bool": "BOOL"}
    for name, one in tensors.items():
        at = len(data)
        data += one.tobytes()
        header[name] = {"dtype": names[one.dtype.name], "shape": list(one.shape), "data_offsets": [at, len(data)]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def gguf_metadata(path: Path) -> dict[str, Any]:
    """The metadata of a GGUF file, arrays included."""
    kinds = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as file:

        def number(code: str) -> Any:
            return struct.unpack("<" + code, file.read(struct.calcsize("<" + code)))[0]

        def value(kind: int) -> Any:
            if kind == 8:
                return file.read(number("Q")).decode("utf-8", "replace")
            if kind == 9:
                inner, count = number("I"), number("Q")
                return [value(inner) for _ in range(count)]
            return number(kinds[kind])

        assert file.read(4) == b"GGUF"
        number("I")
        _, pairs = number("Q"), number("Q")
        found = {}
        for _ in range(pairs):
            key = value(8)
            found[key] = value(number("I"))
    return found


_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}


def _as_hugging_face(name: str, values: np.ndarray, heads: dict[str, int]) -> tuple[str, np.ndarray]:
    whole = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
    if name in whole:
        return whole[name], values
    _, layer, part, _ = name.split(".")
    if part in heads:
        # llama.cpp has the halves of each head interleaved.
        rows, columns = values.shape
        values = values.reshape(heads[part], rows // heads[part] // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    return f"model.layers.{layer}.{_NAMES[part]}.weight", np.ascontiguousarray(values)


def llama_folder(gguf: Path, folder: Path) -> None:
    """A Llama-like GGUF (SmolLM2) as a folder of transformers: weights in f16, configuration, tokenizer."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    said = gguf_metadata(gguf)
    own = {key.removeprefix("llama."): one for key, one in said.items() if key.startswith("llama.")}
    heads = {"attn_q": own["attention.head_count"], "attn_k": own["attention.head_count_kv"]}
    tensors = dict(_as_hugging_face(name, one, heads) for name, one in trinity.read(gguf, progress=False).items() if name != "rope_freqs.weight")
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: one.astype(np.float16) for name, one in tensors.items()}, folder / "model.safetensors")
    tokens = said["tokenizer.ggml.tokens"]
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "float16", "hidden_act": "silu",
        "hidden_size": own["embedding_length"], "intermediate_size": own["feed_forward_length"],
        "num_hidden_layers": own["block_count"], "num_attention_heads": own["attention.head_count"],
        "num_key_value_heads": own["attention.head_count_kv"], "vocab_size": len(tokens),
        "max_position_embeddings": own["context_length"], "rms_norm_eps": own["attention.layer_norm_rms_epsilon"],
        "rope_theta": own.get("rope.freq_base", 10000.0), "tie_word_embeddings": "lm_head.weight" not in tensors,
        "bos_token_id": said.get("tokenizer.ggml.bos_token_id"), "eos_token_id": said.get("tokenizer.ggml.eos_token_id"),
        "attention_bias": False, "head_dim": own["embedding_length"] // own["attention.head_count"],
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    merges = [tuple(one.split(" ", 1)) for one in said["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: at for at, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokens[config["eos_token_id"]] if config["eos_token_id"] is not None else None
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "clean_up_tokenization_spaces": False}))


#: What small models have in common.
SIZES = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}


def drawn(kind: str, seed: int = 11, **sizes: Any) -> Any:
    """A causal model of transformers by its kind (Llama, GPT2, Mixtral), of weights that a seed draws."""
    import torch
    import transformers

    torch.manual_seed(seed)
    return transformers.AutoModelForCausalLM.from_config(getattr(transformers, f"{kind}Config")(**sizes)).eval()


def llama(**changes: Any) -> Any:
    return drawn("Llama", **{**SIZES, "num_key_value_heads": 2, "max_position_embeddings": 512, "tie_word_embeddings": True, **changes})


def gpt2() -> Any:
    return drawn("GPT2", vocab_size=256, n_positions=128, n_embd=64, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=0)


def mixtral(**changes: Any) -> Any:
    experts = {"num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 128}
    return drawn("Mixtral", **{**SIZES, **experts, **changes})


def hanging_llama(folder: Path) -> None:
    """A folder of a model whose answers hang on every token before, and show a wrong block: weights drawn large, f32."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    sizes = {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "max_position_embeddings": 1024}
    llama(seed=5, **sizes, tie_word_embeddings=False, initializer_range=0.3).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({f"<{at}>": at for at in range(512)}, unk_token="<0>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))


def transfer(**extra: Any) -> dict[str, Any]:
    """What vLLM is told of the connector; a mode is ``lossless`` or bits per value."""
    if "mode" in extra:
        mode = extra.pop("mode")
        extra["bits"] = None if mode == "lossless" else float(mode)
    return {
        "kv_connector": "TrinityConnector", "kv_connector_module_path": "trinity.vllm._connector", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute", "kv_connector_extra_config": extra,
    }


def trained_gpt2(folder: Path, text: bytes, steps: int = 120) -> Any:
    """A GPT-2 over bytes that has learnt a little of a text, and its folder."""
    import torch
    import transformers
    from safetensors.torch import save_file

    torch.manual_seed(11)
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=512, n_embd=128, n_layer=4, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        starts = torch.randint(0, len(data) - 128, (8,), generator=generator)
        tokens = torch.stack([data[at : at + 128] for at in starts])
        optimizer.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
    model.eval()
    folder.mkdir(parents=True, exist_ok=True)
    own = {**config.to_dict(), "architectures": ["GPT2LMHeadModel"], "dtype": "float32", "tokenizer": "bytes"}
    (folder / "config.json").write_text(json.dumps(own, indent=2, default=str))
    save_file({key: one.clone() for key, one in model.state_dict().items() if key != "lm_head.weight"}, folder / "model.safetensors")
    return model
