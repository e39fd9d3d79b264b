"""Decoded GGUF files in llama.cpp itself: SmolLM2 through a container, in every number format that is written.

llama.cpp comes as the wheel of python/requirements-llama-cpp.txt, in the environment of vLLM (docs/integrations.md);
`cargo xtask models` brings SmolLM2.
"""

from __future__ import annotations

import json
from pathlib import Path

import folders
import pytest
from processes import VLLM, has, python

PROMPT = "The capital of France is"


@pytest.mark.skipif(not has("xllamacpp"), reason="LEFT OUT: llama.cpp is not installed (docs/integrations.md)")
def test_llama_cpp_answers_from_what_was_decoded(tmp_path, trinity_command):
    model = folders.cached_model("smollm2-135m.gguf")
    if model is None:
        pytest.skip("LEFT OUT: SmolLM2 is not there (cargo xtask models)")
    trinity_command("encode", str(model), "--bits", "8", "--codec", "line-fast", "-o", "m.tri", "-q")
    formats = ["f16", "bf16", "q8_0", "q4_k"]
    for name in formats:
        trinity_command("decode", "m.tri", "--to", "gguf", "--dtype", name, "-o", f"{name}.gguf")
    paths = [str(model), *(str(tmp_path / f"{name}.gguf") for name in formats)]
    done = python(Path(__file__).with_name("llama_answers.py"), PROMPT, *paths, interpreter=VLLM)
    assert done.returncode == 0, done.stderr[-3000:]
    original, *answers = json.loads(done.stdout.splitlines()[-1])
    sizes = [Path(path).stat().st_size for path in paths[1:]]
    print(f"\nllama.cpp: {original!r}", *zip(formats, sizes, answers), sep="\n")
    # Kernels of formats round activations each in its own way: after some tokens answers may part.
    assert original.startswith(" Paris.") and all(one.startswith(" Paris.") for one in answers)
    assert sizes[3] < sizes[2] < 0.6 * sizes[0]
