"""Coded KV blocks in the real vLLM: prefix hits across restarts, damage, a killed engine.

vLLM is gigabytes and wants a PyTorch of its own: an environment of python/requirements-vllm.txt, at `.venv-vllm` or where
`TRINITY_VLLM_PYTHON` says; docs/integrations.md has the lines that make it.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")
transformers = pytest.importorskip("transformers", reason="LEFT OUT: transformers is not installed (cargo xtask test --all)")

import folders  # noqa: E402
from processes import VLLM, python  # noqa: E402

#: An engine that has not ended by then will not: two minutes of a busy machine go into importing vLLM.
_LONGEST_S = 1800
pytestmark = pytest.mark.skipif(not Path(VLLM).exists(), reason="LEFT OUT: vLLM is not installed (docs/integrations.md)")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    folders.hanging_llama(folder)
    return folder


@pytest.fixture(scope="module")
def plain(model, tmp_path_factory):
    """What an engine without a connector answers, started once for all tests: it takes most of a test to import vLLM."""
    folder = tmp_path_factory.mktemp("plain")
    return _answers(model, folder / "kv", "none", folder / "out.json", "--orders")


def _python(*words: object, **options) -> subprocess.CompletedProcess[str]:
    own = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    return python(*words, interpreter=VLLM, timeout=_LONGEST_S, env=own, **options)


def _engine(model: Path, kept: Path, mode: str, out: Path, *options: str) -> tuple[int, str]:
    done = _python(Path(__file__).with_name("vllm_engine.py"), model, kept, mode, out, *options)
    return done.returncode, done.stdout + done.stderr


def _answers(model: Path, kept: Path, mode: str, out: Path, *options: str) -> dict:
    code, said = _engine(model, kept, mode, out, *options)
    assert code == 0, said[-4000:]
    return {**json.loads(out.read_text()), "said": said}


def test_blocks_outlive_the_engine_and_nothing_wrong_is_served(model, plain, tmp_path):
    kept, out = tmp_path / "kv", tmp_path / "out.json"
    assert len({tuple(one) for one in plain["answers"]}) == len(plain["answers"]), "answers must hang on prompts"
    first = _answers(model, kept, "lossless", out)
    assert first["answers"] == plain["answers"]
    again = _answers(model, kept, "lossless", out)
    assert again["answers"] == plain["answers"] and again["cached"] > first["cached"] + 500
    # Half of the blocks are damaged: they are computed anew, and the log says why.
    hurt = _answers(model, kept, "lossless", out, "--damage")
    assert hurt["answers"] == plain["answers"]
    assert "its checksum does not hold" in hurt["said"]
    # What was computed anew is kept again, and is right.
    healed = _answers(model, kept, "lossless", out)
    assert healed["answers"] == plain["answers"] and "checksum" not in healed["said"]
    assert healed["cached"] == again["cached"]
    # Killed in mid-run, twice, and started again on what it left.
    fresh = tmp_path / "killed"
    for after in "8", "16":
        code, _ = _engine(model, fresh, "lossless", out, "--rounds", "50", "--die-after", after)
        assert code == -signal.SIGKILL
    rested = _answers(model, fresh, "lossless", out, "--rounds", "3")
    assert rested["answers"] == plain["answers"] and rested["cached"] > 0


def test_coded_blocks_answer_nearly_as_before_and_are_smaller(model, plain, tmp_path):
    sizes = {}
    for mode in "lossless", "8":
        kept = tmp_path / mode
        _answers(model, kept, mode, tmp_path / "out.json")
        coded = _answers(model, kept, mode, tmp_path / "out.json")
        first = [(a[0], b[0]) for a, b in zip(plain["answers"], coded["answers"])]
        assert sum(a == b for a, b in first) >= len(first) - 1, first
        sizes[mode] = sum(path.stat().st_size for path in kept.rglob("*.kv"))
    assert sizes["8"] < 0.4 * sizes["lossless"], sizes


def test_a_basis_is_learned_by_the_engine_and_turns_the_cache_of_its_model_alone(model, plain, tmp_path):
    text, made, out = tmp_path / "text", tmp_path / "model.basis", tmp_path / "out.json"
    source = random.Random(3)
    text.write_text(" ".join(f"<{source.randrange(512)}>" for _ in range(4096)))
    words = ["-m", "trinity.vllm", "basis", model, text, "-o", made, "--engine", '{"dtype": "float32", "block_size": 32, "max_model_len": 513}']
    done = _python(*words)
    assert done.returncode == 0 and "3 layers of 2 heads of 32 channels, keys before rotary positions" in done.stdout, done.stderr[-3000:]
    # A file that is there is not replaced unasked; found before an engine is started.
    again = _python(*words)
    assert again.returncode == 2 and "exists" in again.stderr and "Traceback" not in again.stderr, again.stderr[-2000:]
    kept = tmp_path / "kv"
    _answers(model, kept, "8", out, "--basis", str(made))
    turned = _answers(model, kept, "8", out, "--basis", str(made))
    assert turned["cached"] > 500 and sum(a[0] == b[0] for a, b in zip(turned["answers"], plain["answers"])) >= len(plain["answers"]) - 1
    # Without the basis, or with every bit kept, nothing of it is served.
    assert len(list(kept.iterdir())) == 1
    _answers(model, kept, "8", out)
    assert len(list(kept.iterdir())) == 2
    # Another model's, of the same shape: one weight is other.
    other = tmp_path / "other"
    shutil.copytree(model, other)
    weights = (other / "model.safetensors").read_bytes()
    (other / "model.safetensors").write_bytes(folders.flipped(weights, len(weights) - 5))
    code, said = _engine(other, kept, "8", out, "--basis", str(made))
    assert code != 0 and f"is of the model {model.name}, and other is served" in said, said[-3000:]


def test_what_the_command_decodes_is_a_folder_that_vllm_serves(model, plain, tmp_path, trinity_command):
    trinity_command("encode", str(model), "--lossless", "--files", "-o", "model.tri")
    trinity_command("decode", "model.tri", "--to", "safetensors", "--dtype", "f32", "-o", "decoded")
    assert _answers(tmp_path / "decoded", tmp_path / "none", "none", tmp_path / "out.json")["answers"] == plain["answers"]
    # With a loss it is another model, which vLLM answers from as transformers does.
    trinity_command("encode", str(model), "--bits", "6", "--files", "-o", "coarse.tri")
    trinity_command("decode", "coarse.tri", "--to", "safetensors", "--dtype", "f32", "-o", "coarse")
    served = _answers(tmp_path / "coarse", tmp_path / "none", "none", tmp_path / "out.json")
    assert served["answers"] != plain["answers"]
    own = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "coarse", dtype=torch.float32).eval()
    for tokens, answer in zip(served["prompts"], served["answers"]):
        with torch.no_grad():
            logits = own(torch.tensor([tokens + answer[:-1]])).logits[0, len(tokens) - 1 :]
        assert logits.argmax(-1).tolist() == answer


def test_what_cannot_work_is_refused_with_a_sentence(model, tmp_path):
    code = (
        "from vllm import LLM\n"
        f"LLM(model={str(model)!r}, enforce_eager=True, max_model_len=256, disable_hybrid_kv_cache_manager=True, "
        f"kv_transfer_config={folders.transfer(folder='kv', bist=3)})"
    )
    done = _python("-c", code, cwd=tmp_path)
    assert done.returncode != 0 and "TrinityConnector has no option `bist`" in done.stderr, done.stderr[-2000:]


def test_blocks_are_coded_token_by_token_whatever_order_attention_wants(plain):
    assert plain["wrong_orders"] == []
