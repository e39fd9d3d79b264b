"""Snippets of the documents: Python is run, in the order of its page; commands are understood.

A page's snippets share a folder with small files of the names that they use, and a
namespace with what they take for granted. One that needs what is not installed here
(PyTorch, Ray, Dask) says so; `cargo xtask test --all` has all of it.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from processes import ROOT, environment, python

PAGES = sorted([*ROOT.glob("*.md"), ROOT / "python/README.md", *(ROOT / "docs").glob("*.md")])


def _blocks(page: Path) -> list[tuple[int, str, str]]:
    """Line, language and text of every block of a page."""
    found, language, start, lines = [], None, 0, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if not line.startswith("```"):
            lines.append(line)
        elif language is None:
            language, start, lines = line[3:].strip(), number + 1, []
        else:
            found.append((start, language, "\n".join(lines)))
            language = None
    return found


def _python(page: Path) -> list[tuple[int, str]]:
    return [(start, text) for start, language, text in _blocks(page) if language == "python"]


def _needs(text: str) -> list[str]:
    wanted = set(re.findall(r"^(?:import|from) (ray|distributed|torch|transformers|vllm)\b", text, re.MULTILINE))
    wanted |= {"transformers"} if re.search(r"\btransformers\.", text) else set()
    if "trinity.torch" in text or "trinity.calibrate" in text or "state_dict" in text:
        wanted.add("torch")
    return sorted(name for name in wanted if importlib.util.find_spec(name) is None)


_FURNISH = """
import json, pathlib
import numpy as np
import folders
rng = np.random.default_rng(1)
weights = rng.normal(size=(96, 128)).astype(np.float32)
np.save("kv.npy", weights)
model = {"model.embed_tokens.weight": weights, "model.layers.0.q_proj.weight": weights[:64] * 2}
folders.save_safetensors(pathlib.Path("model.safetensors"), model)
state_dict = model
try:
    import torch
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    batches = [torch.randn(64, 32) for _ in range(4)]
    folders.drawn("Llama", **folders.SIZES).save_pretrained("MODEL")
except ImportError:
    pass
"""


@pytest.mark.parametrize("page", [page for page in PAGES if _python(page)], ids=lambda page: page.name)
def test_python_of_a_page_runs(page, tmp_path):
    # A process pool of a page must find its main program: the snippets are a script.
    script = [_FURNISH, "import trinity", "if __name__ == '__main__':"]
    for start, text in _python(page):
        missing = _needs(text)
        if missing:
            print(f"LEFT OUT: {page.name}:{start} needs {', '.join(missing)}", file=sys.stderr)
            continue
        if "Client(" in text and "scheduler" in text:
            text = text.replace('Client("scheduler:8786")', "Client(processes=False)")
        script.append("    " + text.replace("\n", "\n    "))
    script.append("    pass")
    # Pages speak from the root of a clone.
    (tmp_path / "models").symlink_to(ROOT / "models")
    path = tmp_path / "page.py"
    path.write_text("\n".join(script))
    both = os.pathsep.join([environment()["PYTHONPATH"], str(Path(__file__).parent)])
    done = python(path, cwd=tmp_path, env={"PYTHONPATH": both})
    assert done.returncode == 0, f"{page}:\n{done.stderr[-3000:]}"


def _commands() -> list[tuple[str, list[str]]]:
    found = []
    for page in PAGES:
        for start, _, text in _blocks(page):
            for at, line in enumerate(text.replace("\\\n", " ").splitlines()):
                # A remark stands two spaces or a `#` behind a command.
                line = re.split(r"\s{2,}|\s#", line.strip())[0]
                # A page that is served would open a browser.
                if line.startswith("trinity ") and not line.startswith("trinity web") and "…" not in line:
                    found.append((f"{page.name}:{start + at}", shlex.split(line)[1:]))
    return found


@pytest.mark.parametrize(("place", "words"), [pytest.param(*one, id=one[0]) for one in _commands()])
def test_a_command_of_a_page_is_understood(place, words, command, tmp_path):
    # What it reads is not there, so that it ends in a sentence; what needs nothing is stopped.
    array = {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_COUNT": "1", "SLURM_ARRAY_TASK_MIN": "0"}
    try:
        done = subprocess.run(
            [command, *words], cwd=tmp_path, env={**os.environ, **array}, capture_output=True, text=True, timeout=2, check=False
        )
    except subprocess.TimeoutExpired:
        return
    refused = ("unexpected argument", "unrecognized subcommand", "invalid value", "required argument", "cannot be used with")
    assert not any(said in done.stderr for said in refused), f"{place}: {done.stderr}"


def test_every_kind_of_page_is_seen():
    assert len(_commands()) > 8 and sum(len(_python(page)) for page in PAGES) >= 4
