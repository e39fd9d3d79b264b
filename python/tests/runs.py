"""A run of a tiny model that several tests change."""

from __future__ import annotations

import sys
from pathlib import Path

#: What trains is no part of the package.
RESEARCH = Path(__file__).parents[1] / "research"
TRAIN = RESEARCH / "train"
sys.path.insert(0, str(RESEARCH))

TEXT = Path(__file__).parent / "data" / "docs.txt"
RUN = f"""
out = "out"
steps = 24
threads = 1
evaluate = 12
[model]
shape = "tiny"
layers = 2
hidden = 64
heads = 2
kv_heads = 1
ffn = 128
[text]
file = "{TEXT}"
context = 64
windows = 4
choices = 4
[optimizer]
lr = 3e-3
warmup = 4
[data_parallel]
replicas = 2
batch = 4
"""
