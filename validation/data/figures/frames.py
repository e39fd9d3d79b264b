"""KV caches of consecutive layers, gradients of consecutive steps and of whole layers, from the 13 M byte-level model."""
import json, os, sys, torch, torch.nn.functional as F
from safetensors.torch import load_file, save_file
torch.manual_seed(1)
dev = "cuda" if torch.cuda.is_available() else "cpu"
cfg = json.load(open("small.json"))
W = {}
for part in ("small-1-of-2.safetensors", "small-2-of-2.safetensors"):
    W.update(load_file(part))
W = {k: v.float().to(dev) for k, v in W.items()}
L = 1 + max(int(k.split(".")[1]) for k in W if k.startswith("layers."))
hidden = W["embed_tokens.weight"].shape[1]
heads = cfg.get("num_attention_heads", 6); kvh = cfg.get("num_key_value_heads", 3)
hd = hidden // heads
print(L, hidden, heads, kvh, hd, len(W), flush=True)
text = torch.tensor(list(open("eval.txt", "rb").read()), device=dev)

def norm(x, w): return w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
def rot(x):
    t = x.shape[-2]; half = hd // 2
    f = 10000.0 ** (-torch.arange(half, device=dev).float() / half)
    a = torch.arange(t, device=dev).float()[:, None] * f[None]
    c, s = a.cos(), a.sin(); u, v = x[..., :half], x[..., half:]
    return torch.cat([u * c - v * s, v * c + u * s], -1)
def forward(P, tokens, caches=None):
    x = P["embed_tokens.weight"][tokens]; b, t, _ = x.shape
    for l in range(L):
        p = f"layers.{l}."
        h = norm(x, P[p + "input_layernorm.weight"])
        q = (h @ P[p + "q_proj.weight"].T).view(b, t, heads, hd).transpose(1, 2)
        k = (h @ P[p + "k_proj.weight"].T).view(b, t, kvh, hd).transpose(1, 2)
        v = (h @ P[p + "v_proj.weight"].T).view(b, t, kvh, hd).transpose(1, 2)
        q, k = rot(q), rot(k)
        if caches is not None:
            caches[f"layers.{l}.k_cache"] = k.transpose(1, 2).reshape(b * t, kvh * hd)
            caches[f"layers.{l}.v_cache"] = v.transpose(1, 2).reshape(b * t, kvh * hd)
        o = F.scaled_dot_product_attention(q, k.repeat_interleave(heads // kvh, 1), v.repeat_interleave(heads // kvh, 1), is_causal=True)
        x = x + o.transpose(1, 2).reshape(b, t, hidden) @ P[p + "o_proj.weight"].T
        h = norm(x, P[p + "post_attention_layernorm.weight"])
        x = x + (F.silu(h @ P[p + "gate_proj.weight"].T) * (h @ P[p + "up_proj.weight"].T)) @ P[p + "down_proj.weight"].T
    return norm(x, P["norm.weight"]) @ P["embed_tokens.weight"].T
def loss(P, tokens):
    y = forward(P, tokens[:, :-1])
    return F.cross_entropy(y.reshape(-1, y.shape[-1]), tokens[:, 1:].reshape(-1))
out = os.environ["OUT"]
with torch.no_grad():
    bits = [float(loss(W, text[None, k * 1024:(k + 1) * 1024])) / 0.6931471805599453 for k in range(32)]
    print("bits/byte", sum(bits) / len(bits), flush=True)
    kept = {}
    for window in range(4):
        caches = {}
        forward(W, text[None, 16384 * window:16384 * window + 512], caches)
        kept.update({f"window{window}.{k}": v.to(torch.bfloat16).contiguous().cpu() for k, v in caches.items()})
    save_file(kept, f"{out}/kv_layers.safetensors")
grads, layers = {}, {}
def train(P, lr, steps, keep, tag):
    P = {k: v.clone().requires_grad_() for k, v in P.items()}
    opt = torch.optim.AdamW(P.values(), lr=lr, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(steps):
        at = torch.randint(0, len(text) - 513, (8,), device=dev)
        batch = torch.stack([text[a:a + 513] for a in at])
        opt.zero_grad(); value = loss(P, batch); value.backward()
        if step >= steps - keep:
            for name in ("layers.4.k_proj.weight", "layers.4.v_proj.weight"):
                short = name.replace("layers.4.", "").replace(".weight", "")
                grads[f"{tag}.{short}.weight.grad.step{step}"] = P[name].grad.to(torch.bfloat16).contiguous().cpu()
        if step == steps - 1:
            for name in P:
                if name.split(".")[-2] in ("q_proj", "k_proj", "v_proj", "o_proj") and name.split(".")[1] in ("1", "5"):
                    layers[f"{tag}.{name}.grad.step{step}"] = P[name].grad.to(torch.bfloat16).contiguous().cpu()
        opt.step()
    print(tag, steps, float(value) / 0.693147, flush=True)
train(W, 1e-4, 24, 16, "late")
fresh = {k: (torch.ones_like(v) if "norm" in k else torch.randn_like(v) * 0.02) for k, v in W.items()}
train(fresh, 1e-3, 316, 16, "early")
save_file(grads, f"{out}/gradients_steps.safetensors")
save_file(layers, f"{out}/gradients_layers.safetensors")
