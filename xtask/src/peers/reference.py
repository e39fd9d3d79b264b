"""The reference model of `cargo xtask peers weights`: a Llama of 88 million parameters whose source is bf16.

    reference.py text FOLDER
    reference.py train FOLDER [--steps N] [--seconds S] [--seed N]

`text` makes the tokens: documentation out of Debian 12's packages (pages as `cargo xtask text` reads them), a byte-level BPE
of 16,384 tokens trained on a part of it, and all of it in these tokens, as FOLDER/tokens.u16, FOLDER/tokenizer.json and
FOLDER/text.json (packages with their versions, bytes, tokens, SHA-256). Pages that share passages with the text that models
are scored and calibrated on are left out. It needs `tokenizers` and NumPy.

`train` needs PyTorch and a GPU, and nothing of the network: FOLDER/reference.safetensors (bf16), FOLDER/reference.json (its
configuration) and FOLDER/train.json (seed, steps, losses, SHA-256 of the weights). Without `--steps` it takes as many as fit
into so many seconds, and says how many. Names are those of `models/lm`. Sums of a GPU come in any order: with the
seed another run gives another file of the same loss.
"""
import argparse
import hashlib
import json
import math
import multiprocessing
import pathlib
import re
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "xtask/src"))

# Package, licence, which of its files, and how many bytes of text at most.
DOC = r"usr/share/doc/"
SOURCES = [
    ("python3.11-doc", "PSF-2.0", DOC + r"python3\.11/html/.*\.html$", 14 << 20),
    ("postgresql-doc-15", "PostgreSQL", DOC + r"postgresql-doc-15/html/.*\.html$", 8 << 20),
    ("sqlite3-doc", "public domain", DOC + r"sqlite3/.*\.html$", 10 << 20),
    ("linux-doc-6.1", "GPL-2.0", DOC + r"linux-doc-6\.1/html/.*\.html$", 40 << 20),
    ("cmake-doc", "BSD-3-Clause", DOC + r"cmake-data/html/.*\.html$", 6 << 20),
    ("git-doc", "GPL-2.0", DOC + r"git-doc/.*\.txt$", 6 << 20),
    ("python-django-doc", "BSD-3-Clause", DOC + r"python-django-doc/html/(?!_sources).*\.html$", 8 << 20),
    ("python-sqlalchemy-doc", "MIT", DOC + r"python-sqlalchemy-doc/html/.*\.html$", 10 << 20),
    ("nodejs-doc", "MIT", DOC + r"nodejs/api/.*\.html$", 6 << 20),
    ("libglib2.0-doc", "LGPL-2.1", r"usr/share/gtk-doc/html/.*\.html$", 6 << 20),
    ("libgtk-3-doc", "LGPL-2.1", r"usr/share/gtk-doc/html/.*\.html$", 8 << 20),
    ("vim-doc", "Vim", DOC + r"vim/html/.*\.html$", 8 << 20),
    ("perl-doc", "Artistic OR GPL-1.0", r"usr/share/perl/5\.36\.0/pod/.*\.pod$", 9 << 20),
]
#: Pieces of so many bytes are shuffled, and one of so many teaches the tokenizer.
PIECE, LEARNT_OF = 1 << 16, 8
VOCABULARY = 16384
#: Characters of a passage, and how many may be met elsewhere before a page counts as the same.
PASSAGE, SHARED = 32, 6

CONFIG = {
    "model_type": "llama", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4,
    "intermediate_size": 2048, "vocab_size": VOCABULARY, "max_position_embeddings": 1024, "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
}
#: Windows of a step, the largest step of the optimizer, and the share of steps in which it grows.
WINDOWS, RATE, WARM = 128, 1.5e-3, 0.05


def bare(text):
    """Text without what a page may be broken at."""
    return re.sub(r"\s+", "", text)


def held_out():
    """Every passage of the text that models are scored and calibrated on."""
    shared, own = ROOT.parent / "shared/lm/eval.txt", ROOT / "models/lm/data/eval.txt"
    text = bare((shared if shared.exists() else own).read_text("utf-8", "replace"))
    return {text[at : at + PASSAGE] for at in range(len(text) - PASSAGE)}


def source_text(source):
    """A package's text, its name with its version, and how many pages were left out."""
    from text import kind_text, unpacked

    package, _, pattern, most = source
    passages, left_out = held_out(), []

    def unwanted(page):
        page = bare(page)
        shared = sum(page[at : at + PASSAGE] in passages for at in range(0, len(page) - PASSAGE, PASSAGE // 2))
        left_out.extend([shared] * (shared > SHARED))
        return shared > SHARED

    with unpacked(package) as (name, folder):
        return kind_text(folder, pattern, most, unwanted), name, len(left_out)


def make_text(folder):
    import numpy
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder.mkdir(parents=True, exist_ok=True)
    with multiprocessing.Pool() as pool:
        found = pool.map(source_text, SOURCES, chunksize=1)
    packages = []
    for (package, licence, _, _), (body, name, left_out) in zip(SOURCES, found):
        if not body:
            sys.exit(f"error: {package} has no pages where they were expected: is it of another release of Debian?")
        packages.append({"package": name, "licence": licence, "bytes": len(body), "pages_left_out": left_out})
        print(f"{name}: {len(body):,} bytes, {left_out} pages left out ({licence})", flush=True)
    # Pieces of all packages in one order that has nothing to do with where they come from.
    pieces = [body[at : at + PIECE].decode("utf-8", "ignore") for body, _, _ in found for at in range(0, len(body), PIECE)]
    pieces.sort(key=lambda piece: hashlib.sha256(piece.encode()).digest())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False)
    tokenizer.train_from_iterator(pieces[::LEARNT_OF], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    # A few at a time: what a tokenizer says of a text is many times as large.
    tokens = numpy.concatenate([
        numpy.array(one.ids, numpy.uint16)
        for at in range(0, len(pieces), 64)
        for one in tokenizer.encode_batch_fast(pieces[at : at + 64])
    ])
    tokens.tofile(folder / "tokens.u16")
    said = {"tokens": len(tokens), "bytes": sum(one["bytes"] for one in packages), "sha256": hashlib.sha256(tokens.tobytes()).hexdigest(),
            "packages": packages}
    (folder / "text.json").write_text(json.dumps(said, indent=1))
    print(f"{len(tokens):,} tokens of {said['bytes']:,} bytes, SHA-256 {said['sha256']}")


def network(torch, config):
    """A model of such a configuration, as `models/lm` runs it."""
    import torch.nn.functional as f
    from torch import nn

    hidden, heads, groups = (config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    head, inner = hidden // heads, config["intermediate_size"]

    def linear(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=False)

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj, self.o_proj = linear(hidden, hidden), linear(hidden, hidden)
            self.k_proj, self.v_proj = linear(hidden, groups * head), linear(hidden, groups * head)
            self.gate_proj, self.up_proj, self.down_proj = linear(hidden, inner), linear(hidden, inner), linear(inner, hidden)
            self.input_layernorm = nn.RMSNorm(hidden, config["rms_norm_eps"])
            self.post_attention_layernorm = nn.RMSNorm(hidden, config["rms_norm_eps"])

        def attended(self, x, cos, sin):
            def heads_of(y):
                return y.unflatten(-1, (-1, head)).transpose(1, 2)

            def turned(y):
                a, b = y.chunk(2, -1)
                return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(y.dtype)

            q, k, v = turned(heads_of(self.q_proj(x))), turned(heads_of(self.k_proj(x))), heads_of(self.v_proj(x))
            k, v = (y.repeat_interleave(heads // groups, 1) for y in (k, v))
            return self.o_proj(f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

        def forward(self, x, cos, sin):
            x = x + self.attended(self.input_layernorm(x), cos, sin)
            y = self.post_attention_layernorm(x)
            return x + self.down_proj(f.silu(self.gate_proj(y)) * self.up_proj(y))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed_tokens = nn.Embedding(config["vocab_size"], hidden)
            self.layers = nn.ModuleList([Layer() for _ in range(config["num_hidden_layers"])])
            self.norm = nn.RMSNorm(hidden, config["rms_norm_eps"])
            turns = config["rope_theta"] ** (-torch.arange(0, head, 2) / head)
            angles = torch.outer(torch.arange(config["max_position_embeddings"]), turns)
            self.register_buffer("cos", angles.cos(), persistent=False)
            self.register_buffer("sin", angles.sin(), persistent=False)
            for name, one in self.named_parameters():
                if one.ndim == 2:
                    into_stream = name.endswith(("o_proj.weight", "down_proj.weight"))
                    nn.init.normal_(one, std=0.02 / (math.sqrt(2 * len(self.layers)) if into_stream else 1.0))

        def forward(self, tokens):
            x = self.embed_tokens(tokens)
            count = tokens.shape[1]
            for layer in self.layers:
                x = layer(x, self.cos[:count], self.sin[:count])
            return f.linear(self.norm(x), self.embed_tokens.weight)

    return Model()


class Windows:
    """Windows of tokens in an order that the seed gives, each once before any is seen again."""

    def __init__(self, torch, tokens, length, seed):
        self.torch, self.length = torch, length
        self.windows = tokens[: (len(tokens) - 1) // length * length + 1]
        self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.empty(0, dtype=torch.long)

    def draw(self, count, device):
        while len(self.order) < count:
            whole = (len(self.windows) - 1) // self.length
            self.order = self.torch.cat([self.order, self.torch.randperm(whole, generator=self.generator)])
        starts, self.order = self.order[:count, None] * self.length, self.order[count:]
        found = self.windows[starts + self.torch.arange(self.length + 1)].to(device)
        return found[:, :-1], found[:, 1:]


def train(folder, steps, seconds, seed):
    import numpy
    import torch
    import torch.nn.functional as f
    from safetensors.torch import save_file

    if not (folder / "tokens.u16").exists():
        sys.exit(f"error: {folder} has no tokens.u16\nhelp: `reference.py text {folder}` makes it")
    if not torch.cuda.is_available():
        sys.exit("error: no GPU that PyTorch can use, and on a processor this takes days")
    began = time.monotonic()
    torch.manual_seed(seed)
    torch.set_float32_matmul_precision("high")
    device = "cuda"
    tokens = torch.from_numpy(numpy.fromfile(folder / "tokens.u16", numpy.uint16).astype(numpy.int64))
    length = CONFIG["max_position_embeddings"]
    # The last windows are not trained on.
    batches, unseen = Windows(torch, tokens[: -64 * length], length, seed), Windows(torch, tokens[-64 * length - 1 :], length, seed)
    model = network(torch, CONFIG).to(device)
    print(f"{sum(one.numel() for one in model.parameters()):,} parameters, {len(tokens):,} tokens", flush=True)
    matrices = [one for one in model.parameters() if one.ndim == 2]
    vectors = [one for one in model.parameters() if one.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=RATE,
                                  betas=(0.9, 0.95), fused=True)

    def loss_of(inputs, targets):
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(inputs)
        return f.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())

    compiled = torch.compile(loss_of)

    def step(rate):
        loss = compiled(*batches.draw(WINDOWS, device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    # What compiles, and how long a step takes; steps of no length change no weight.
    for _ in range(3):
        step(0.0)
    torch.cuda.synchronize()
    timed = time.monotonic()
    for _ in range(10):
        step(0.0)
    torch.cuda.synchronize()
    now = time.monotonic()
    each = (now - timed) / 10
    if steps is None:
        steps = max(int((seconds - (now - began)) / each) - 10, 100)
    print(f"ready after {now - began:.0f} s; {each * 1000:.0f} ms a step, {WINDOWS * length / each:,.0f} tokens/s; {steps} steps", flush=True)
    losses = []
    for at in range(steps):
        warm = min((at + 1) / (WARM * steps), 1.0)
        loss = step(RATE * warm * max(0.5 * (1 + math.cos(math.pi * at / steps)), 0.02))
        if at % 100 == 0 or at == steps - 1:
            losses.append([at, round(float(loss), 4)])
            print(f"step {at}: {losses[-1][1]} nats, {time.monotonic() - began:.0f} s", flush=True)
    with torch.no_grad():
        unseen_loss = float(sum(loss_of(*unseen.draw(32, device)) for _ in range(2)) / 2)
    weights = {name: one.detach().to(torch.bfloat16).cpu().contiguous() for name, one in model.named_parameters()}
    save_file(weights, folder / "reference.safetensors")
    (folder / "reference.json").write_text(json.dumps(CONFIG, indent=1))
    digest = hashlib.sha256((folder / "reference.safetensors").read_bytes()).hexdigest()
    text = json.loads((folder / "text.json").read_text()) if (folder / "text.json").exists() else {}
    said = {"seed": seed, "steps": steps, "windows_a_step": WINDOWS, "rate": RATE, "seconds": round(time.monotonic() - began), "losses": losses,
            "unseen_nats": round(unseen_loss, 4), "sha256": digest, "tokens_sha256": text.get("sha256"), "torch": torch.__version__,
            "gpu": torch.cuda.get_device_name()}
    (folder / "train.json").write_text(json.dumps(said, indent=1))
    print(f"{steps} steps in {said['seconds']} s; {unseen_loss:.4f} nats on windows not seen; SHA-256 {digest}")


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("what", choices=["text", "train"])
    asked.add_argument("folder", type=pathlib.Path)
    asked.add_argument("--steps", type=int)
    asked.add_argument("--seconds", type=float, default=270.0)
    asked.add_argument("--seed", type=int, default=44)
    asked = asked.parse_args()
    if asked.what == "text":
        make_text(asked.folder)
    else:
        train(asked.folder, asked.steps, asked.seconds, asked.seed)


if __name__ == "__main__":
    main()
