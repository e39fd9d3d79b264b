"""What llama.cpp answers, for each of some GGUF files. Run by test_llama_cpp.py.

    python llama_answers.py PROMPT FILE.gguf …
"""

from __future__ import annotations

import json
import sys

import xllamacpp


def answer(path: str, prompt: str) -> str:
    asked = xllamacpp.CommonParams()
    asked.model.path = path
    asked.n_ctx, asked.n_parallel, asked.warmup, asked.cpuparams.n_threads = 256, 1, False, 2
    found = xllamacpp.Server(asked).handle_completions({"prompt": prompt, "max_tokens": 12, "temperature": 0})
    return found["choices"][0]["text"]


print(json.dumps([answer(path, sys.argv[1]) for path in sys.argv[2:]]))
