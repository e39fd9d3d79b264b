"""The forward pass of a Llama-style byte model in NumPy, timed beside `trinity eval`.

Usage: lm.py TRINITY MODEL.json TEXT. NumPy's time is its arithmetic alone; trinity's is the
whole command, start and loading included. Exit 1 where trinity takes 4 times as long or more,
or where both disagree about bits per byte.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

WINDOW = 1024
ROUNDS = 2
BOUND = 4.0


def load(config_path):
    weights = {}
    stem = config_path.stem
    for path in sorted(config_path.parent.glob(f"{stem}*.safetensors")):
        raw = path.read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + size])
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            assert entry["dtype"] == "BF16", entry
            start, end = entry["data_offsets"]
            words = np.frombuffer(raw, np.uint16, (end - start) // 2, 8 + size + start)
            weights[name] = (words.astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])
    return weights


def norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def rotate(x, cos, sin):
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def forward(config, w, tokens):
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    hidden, epsilon = config["hidden_size"], config["rms_norm_eps"]
    dim = hidden // heads
    count = len(tokens)
    angles = np.outer(np.arange(count), config["rope_theta"] ** (-np.arange(0, dim, 2) / dim))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    mask = np.triu(np.full((count, count), -np.inf, np.float32), 1)
    x = w["embed_tokens.weight"][tokens]
    for n in range(config["num_hidden_layers"]):
        part = lambda name: w[f"layers.{n}.{name}.weight"]
        h = norm(x, part("input_layernorm"), epsilon)
        split = lambda y, count_heads: y.reshape(count, count_heads, dim).transpose(1, 0, 2)
        q = rotate(split(h @ part("q_proj").T, heads), cos, sin)
        k = rotate(split(h @ part("k_proj").T, kv_heads), cos, sin)
        v = split(h @ part("v_proj").T, kv_heads)
        k, v = (np.repeat(y, heads // kv_heads, axis=0) for y in (k, v))
        scores = q @ k.transpose(0, 2, 1) / np.float32(np.sqrt(dim)) + mask
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        mixed = (scores @ v).transpose(1, 0, 2).reshape(count, hidden)
        x = x + mixed @ part("o_proj").T
        h = norm(x, part("post_attention_layernorm"), epsilon)
        gate = h @ part("gate_proj").T
        gate = gate / (1 + np.exp(-gate)) * (h @ part("up_proj").T)
        x = x + gate @ part("down_proj").T
    return norm(x, w["norm.weight"], epsilon) @ w["embed_tokens.weight"].T


def score(config, weights, text):
    bits, predicted = 0.0, 0
    for start in range(0, len(text) - 1, WINDOW):
        if start % (16 * WINDOW) == 0:
            say(f"NumPy: {start} of {len(text)} bytes", end="\r")
        tokens = np.frombuffer(text[start : start + WINDOW], np.uint8).astype(np.int64)
        logits = forward(config, weights, tokens)[:-1].astype(np.float64)
        top = logits.max(axis=-1)
        log_sum = top + np.log(np.exp(logits - top[:, None]).sum(axis=-1))
        bits += ((log_sum - logits[np.arange(len(logits)), tokens[1:]]) / np.log(2)).sum()
        predicted += len(logits)
    return bits / predicted


def say(what, end="\n"):
    """Progress, apart from the results."""
    print(f"{what:60}", end=end, file=sys.stderr, flush=True)


def cpu_s(who):
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def main():
    trinity, config_path, text_path = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    config = json.loads(config_path.read_text())
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    weights, text = load(config_path), text_path.read_bytes()
    seconds = {"NumPy": [], "trinity": []}
    for turn in range(1, ROUNDS + 1):
        wall, cpu = time.perf_counter(), cpu_s(resource.RUSAGE_SELF)
        theirs = score(config, weights, text)
        seconds["NumPy"].append((time.perf_counter() - wall, cpu_s(resource.RUSAGE_SELF) - cpu))
        wall, cpu = time.perf_counter(), cpu_s(resource.RUSAGE_CHILDREN)
        say(f"round {turn} of {ROUNDS}: NumPy {seconds['NumPy'][-1][0]:.1f} s wall; now trinity", end="\r")
        command = [trinity, "eval", str(config_path), "--text", str(text_path), "--json"]
        ours = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["bits_per_byte"]
        seconds["trinity"].append((time.perf_counter() - wall, cpu_s(resource.RUSAGE_CHILDREN) - cpu))
        both = " and ".join(f"{name} {runs[-1][0]:.1f} s" for name, runs in seconds.items())
        say(f"round {turn} of {ROUNDS}: {both} wall")
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    print(f"{config_path.stem}, {len(text)} bytes, {os.cpu_count()} cores, NumPy {np.__version__} with {blas}")
    best = {}
    for name, runs in seconds.items():
        best[name] = [min(run[i] for run in runs) for i in range(2)]
        print(f"{name:8} {best[name][0]:7.2f} s wall, {best[name][1]:7.2f} s CPU (least of {ROUNDS})")
    print(f"bits per byte: NumPy {theirs:.5f}, trinity {ours:.5f}")
    wall, cpu = (best["trinity"][i] / best["NumPy"][i] for i in range(2))
    print(f"trinity takes {wall:.2f} times NumPy's wall clock and {cpu:.2f} times its CPU time; the bound is {BOUND:g}")
    if abs(theirs - ours) > 1e-4 or wall >= BOUND:
        sys.exit(1)


main()
