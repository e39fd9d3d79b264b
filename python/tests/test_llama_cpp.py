"""Decoded GGUF files in llama.cpp itself: SmolLM2 through a container, in every number format that is written.

llama.cpp comes as the wheel of python/requirements-llama-cpp.txt, in the environment of vLLM (docs/integrations.md);
`cargo xtask models` brings SmolLM2.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import folders
import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("TRINITY_VLLM_PYTHON") or str(ROOT / ".venv-vllm/bin/python")
PROMPT = "The capital of France is"


def _has_llama_cpp() -> bool:
    if not Path(PYTHON).exists():
        return False
    return subprocess.run([PYTHON, "-c", "import xllamacpp"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _has_llama_cpp(), reason="LEFT OUT: llama.cpp is not installed (docs/integrations.md)")
def test_llama_cpp_answers_from_what_was_decoded(tmp_path, trinity_command):
    model = folders.cached_model("smollm2-135m.gguf")
    if model is None:
        pytest.skip("LEFT OUT: SmolLM2 is not there (cargo xtask models)")
    trinity_command("encode", str(model), "--bits", "8", "--codec", "line-fast", "-o", "m.tri", "-q")
    formats = ["f16", "bf16", "q8_0", "q4_k"]
    for name in formats:
        trinity_command("decode", "m.tri", "--to", "gguf", "--dtype", name, "-o", f"{name}.gguf")
    paths = [str(model), *(str(tmp_path / f"{name}.gguf") for name in formats)]
    done = subprocess.run(
        [PYTHON, str(Path(__file__).with_name("llama_answers.py")), PROMPT, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    original, *answers = json.loads(done.stdout.splitlines()[-1])
    sizes = [Path(path).stat().st_size for path in paths[1:]]
    print(f"\nllama.cpp: {original!r}", *zip(formats, sizes, answers), sep="\n")
    # Kernels of formats round activations each in its own way: after some tokens answers may part.
    assert original.startswith(" Paris.") and all(one.startswith(" Paris.") for one in answers)
    assert sizes[3] < sizes[2] < 0.6 * sizes[0]
