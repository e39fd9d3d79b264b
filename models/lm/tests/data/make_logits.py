"""Makes one tiny random model of each architecture, and its logits as Hugging Face's transformers computes them.

    python3 -m venv v && v/bin/pip install torch transformers safetensors && v/bin/python make_logits.py

Each folder holds config.json and model.safetensors as save_pretrained writes them (bf16), and expected.safetensors:
`tokens` (i32) and `logits` (f32, computed in f32 from the bf16 weights).
"""
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

here = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
here = here if here.is_dir() else here.parent
shape = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
models = {
    "llama3": transformers.LlamaConfig(
        **shape, head_dim=16, rope_theta=500.0, rms_norm_eps=1e-5,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=16, rope_theta=500.0)),
    "smollm2": transformers.LlamaConfig(**shape, tie_word_embeddings=True),
    "qwen2": transformers.Qwen2Config(**shape, tie_word_embeddings=True),
    "qwen3": transformers.Qwen3Config(**shape, head_dim=16),
    "gemma3": transformers.Gemma3TextConfig(
        **(shape | dict(num_hidden_layers=4)), head_dim=16, query_pre_attn_scalar=24, sliding_window=8,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]),
}
for name, config in models.items():
    torch.manual_seed(24)
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for key, value in model.named_parameters():
            # Norms and biases that do nothing would hide their absence.
            spread = 0.2 if "norm" in key or "bias" in key else 2.0 / value.shape[-1] ** 0.5
            around = 1.0 if "norm" in key and name != "gemma3" else 0.0
            value.copy_((around + spread * torch.randn_like(value)).bfloat16().float())
    tokens = torch.randint(0, 64, (1, 32))
    with torch.no_grad():
        logits = model(tokens).logits[0].float()
    folder = here / name
    model.to(torch.bfloat16).save_pretrained(folder)
    for extra in ["generation_config.json"]:
        (folder / extra).unlink(missing_ok=True)
    save_file({"tokens": tokens[0].int(), "logits": logits[[0, 1, 7, 15, 16, 31]].contiguous()}, folder / "expected.safetensors")
    print(name, logits.std().item())
