"""Training with coded communication: a tiny model, for real, in one process and in two."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="LEFT OUT: PyTorch is not installed (cargo xtask test --all)")

from ranks import free_port  # noqa: E402
from runs import RUN, TRAIN  # noqa: E402
from trinity import InputError, RunError, _core  # noqa: E402
from train import _coders, load, train  # noqa: E402

CODED = RUN + 'method = "trinity"\nbits = 1.4\nscale = "sqrt-v"\n'
STAGES = RUN.replace("replicas = 2", "replicas = 1") + "[pipeline]\nstages = 2\nmicro_batches = 2\nactivation_bits = 3.5\n"


def _run(tmp_path: Path, text: str, name: str) -> Path:
    path = tmp_path / f"{name}.toml"
    path.write_text(text.replace('"out"', f'"{name}"'))
    return path


def _train(tmp_path: Path, text: str, name: str = "run"):
    return train(load(_run(tmp_path, text, name)), force=True)


def _goes_on_after_a_stop(tmp_path: Path, text: str, after: int) -> dict:
    """The summary of a run that ends with the same weights where it is stopped on its way."""
    whole, path = _train(tmp_path, text, "whole"), _run(tmp_path, text, "part")
    assert train(load(path), stop_after=after) == {"step": after}
    assert train(load(path), resume=True)["weights_sha256"] == whole["weights_sha256"]
    return whole


def _start(tmp_path: Path, text: str, rank: int, port: int, name: str = "two") -> subprocess.Popen[str]:
    path = _run(tmp_path, text, name)
    own = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": 1}
    environment = os.environ | {key: str(value) for key, value in own.items()}
    command = [sys.executable, str(TRAIN), str(path), "--quiet", "--force"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


TWO = {
    "replicas": CODED,
    "replicas-two-step": CODED + 'exchange = "two-step"\nfeedback = "scaled"\n',
    "stages": STAGES + 'gradient = "residual"\ngradient_bits = 3.5\n',
    "stages-basis": STAGES + 'gradient = "trinity"\ngradient_bits = 5.0\nbasis = "covariance"\ngradient_rows = true\n',
}


@pytest.mark.parametrize("name", TWO)
def test_two_processes_end_with_the_weights_of_the_simulation(tmp_path: Path, name: str):
    text, port = TWO[name], free_port()
    ranks = [_start(tmp_path, text, rank, port, name) for rank in (0, 1)]
    ended = [rank.communicate(timeout=300) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], ended
    simulated = _train(tmp_path, text, "one")
    summaries = [json.loads((tmp_path / name / file).read_text()) for file in ("summary.json", "summary-1.json")]
    assert {summary["weights_sha256"] for summary in summaries} == {simulated["weights_sha256"]}
    rows = (tmp_path / name / "steps.csv").read_text().splitlines()
    assert len(rows) == 25
    first, last = (float(row.split(",")[1]) for row in (rows[1], rows[-1]))
    assert last < first - 2, "the loss does not fall"


def test_a_rank_that_dies_is_noticed_by_the_other(tmp_path: Path):
    port = free_port()
    ranks = [_start(tmp_path, CODED.replace("steps = 24", "steps = 100000"), rank, port) for rank in (0, 1)]
    rows = tmp_path / "two" / "steps.csv"
    until = time.monotonic() + 120
    while time.monotonic() < until and not (rows.exists() and len(rows.read_text().splitlines()) > 3):
        time.sleep(0.2)
    ranks[1].send_signal(signal.SIGKILL)
    _, said = ranks[0].communicate(timeout=200)
    ranks[1].communicate()
    assert ranks[0].returncode == 1 and "rank 0: another rank stopped or does not answer" in said, said


def test_ranks_of_different_shapes_are_told_apart(tmp_path: Path):
    port = free_port()
    ranks = [_start(tmp_path, CODED, 0, port, "a"), _start(tmp_path, CODED.replace("ffn = 128", "ffn = 192"), 1, port, "b")]
    ended = [rank.communicate(timeout=200) for rank in ranks]
    assert all(rank.returncode in (1, 2) for rank in ranks)
    assert any("runs something else" in said for _, said in ended), ended


def test_a_gradient_that_is_not_finite_stops_the_run_before_it_is_sent(tmp_path: Path):
    with pytest.raises(RunError, match=r"the gradient of replica 0 is not finite at step \d+"):
        _train(tmp_path, CODED.replace("lr = 3e-3", "lr = 1e38"))


def test_a_run_that_was_stopped_goes_on_with_the_same_bits(tmp_path: Path):
    text = CODED.replace("evaluate = 12", "evaluate = 0\ncheckpoint = 10").replace("steps = 24", "steps = 20")
    text += 'feedback = "scaled"\n'
    _goes_on_after_a_stop(tmp_path, text, 10)
    path = tmp_path / "part.toml"
    rows = [(tmp_path / name / "steps.csv").read_text().splitlines() for name in ("whole", "part")]
    assert [row.split(",")[:5] for row in rows[0]] == [row.split(",")[:5] for row in rows[1]]
    with pytest.raises(InputError, match="--resume goes on"):
        train(load(path))
    _run(tmp_path, text.replace("lr = 3e-3", "lr = 2e-3"), "part")
    with pytest.raises(InputError, match="is of another run"):
        train(load(path), resume=True)


@pytest.mark.parametrize(
    ("method", "least", "most"),
    [
        ('"none"', 32, 32), ('"bf16"', 16, 16.2), ('"fp8"', 8, 8.8), ('"rtn"\nbits = 4', 4.1, 4.4),
        ('"sign"\nfeedback = "raw"', 1, 1.3), ('"powersgd"\nrank = 2', 0.5, 4),
        ('"1bit-adam"\nwarmup = 0.25', 8, 10), ('"1bit-lamb"\nwarmup = 0.25', 8, 10),
        ('"trinity"\nbits = 2.6\nscale = "tensor"', 1.5, 3.2), ('"h265"\nbits = 3.0', 1, 3.1),
        ('"h264-fast"\nbits = 3.0', 1, 3.1),
    ],
)  # fmt: skip
def test_every_method_learns_at_the_bits_it_counts(tmp_path: Path, method: str, least: float, most: float):
    steps = 2 if "h26" in method else 12
    summary = _train(tmp_path, RUN.replace("steps = 24", f"steps = {steps}") + f"method = {method}\n")
    assert least <= summary["bits_per_value"] <= most
    assert summary["train_bits_per_byte"] < 8.0


@pytest.mark.parametrize("codec", ["h265", "h264", "h265-fast"])
def test_a_video_codec_holds_its_rate_and_goes_on_where_it_was(codec: str):
    torch.manual_seed(1)
    coder = _coders.Video(codec, 1.4)
    found = []
    for step in range(12):
        x = torch.randn(256, 256) * (1 + step / 6)
        payload = coder.encode(x)
        found.append(8 * payload.numel() / x.numel())
    assert abs(sum(found[2:]) / 10 - 1.4) < 0.14, found
    assert float((coder.decode(payload, x.shape) - x).square().mean() / x.square().mean()) < 0.5
    other = _coders.Video(codec, 1.4)
    other.load(coder.state())
    assert torch.equal(other.encode(x), coder.encode(x))


@pytest.mark.parametrize(
    ("gradient", "most"), [("none", 32), ("rtn", 8.2), ("trinity", 5.3), ("residual", 12)]
)  # fmt: skip
def test_a_pipeline_learns_with_coded_boundaries(tmp_path: Path, gradient: str, most: float):
    bits = {"rtn": 8.0, "trinity": 5.0, "residual": 3.5}.get(gradient, 0.0)
    text = STAGES.replace("steps = 24", "steps = 12") + f'gradient = "{gradient}"\ngradient_bits = {bits}\n'
    summary = _train(tmp_path, text + f"channel_scale = {str(gradient == 'trinity').lower()}\n")
    assert summary["activation_bits"] < 4 and summary["gradient_bits"] <= most
    assert summary["train_bits_per_byte"] < 7.0


@pytest.mark.parametrize("codec", ["h265", "h264"])
def test_a_pipeline_learns_through_a_video_codec_and_goes_on_after_a_stop(tmp_path: Path, codec: str):
    text = STAGES.replace("evaluate = 12", "evaluate = 0\ncheckpoint = 6").replace("steps = 24", "steps = 12")
    text += f'codec = "{codec}"\ngradient = "residual"\ngradient_bits = 3.5\nswitch = 0.5\n'
    whole = _goes_on_after_a_stop(tmp_path, text, 6)
    assert 3 < whole["activation_bits"] < 4.2 and 7 < whole["gradient_bits"] < 13 and whole["train_bits_per_byte"] < 7.0


def test_a_pipeline_in_the_basis_of_its_values_goes_on_after_a_stop(tmp_path: Path):
    text = STAGES.replace("evaluate = 12", "evaluate = 0\ncheckpoint = 8").replace("steps = 24", "steps = 16")
    text += 'gradient = "trinity"\ngradient_bits = 5.0\nbasis = "covariance"\ngradient_rows = true\ngradient_whiten = 0.5\nrise = 0.3\n'
    whole = _goes_on_after_a_stop(tmp_path, text, 8)
    assert whole["train_bits_per_byte"] < 7.0 and whole["encode_values_per_s"] > 0 and whole["decode_values_per_s"] > 0


def test_rows_that_move_together_lose_less_in_their_own_basis():
    generator = torch.Generator().manual_seed(3)
    mixing = torch.randn(8, 64, generator=generator)
    lost = {}
    coders: list[tuple[str, _coders.Coder]] = [("channels", _coders.Line(2.0)), ("basis", _coders.Turned(2.0))]
    coders.append(("rows", _coders.Turned(2.0, rows=True, whiten=0.5)))
    for name, coder in coders:
        values, sent = 0, 0
        for _ in range(250):
            x = torch.randn(512, 8, generator=generator) @ mixing + 3.0 + 0.05 * torch.randn(512, 64, generator=generator)
            payload = coder.encode(x)
            decoded = coder.decode(payload, x.shape)
            lost[name] = float((decoded - x).square().mean() / x.var())
            values, sent = values + x.numel(), sent + 8 * payload.numel()
        # Everything that is sent counts, and in the long run it keeps to the rate.
        assert sent / values < 2.1, name
    assert lost["basis"] < 0.05 * lost["channels"] and lost["rows"] < 0.2 * lost["channels"], lost
    with pytest.raises(RunError, match="basis was never sent"):
        _coders.Turned(2.0).decode(torch.zeros(9, dtype=torch.uint8), torch.Size((1, 64)))


def test_the_rate_is_held_while_values_change():
    generator = torch.Generator().manual_seed(3)
    coder = _coders.Line(1.4)
    found = []
    for step in range(60):
        x = torch.randn(512, 64, generator=generator) * 1.05**step
        payload = coder.encode(x)
        decoded = coder.decode(payload, x.shape)
        assert (decoded - x).square().mean() < 0.4 * x.square().mean()
        found.append(8 * payload.numel() / x.numel())
    assert abs(sum(found[20:]) / 40 - 1.4) < 0.05


def test_scaled_streams_hold_nothing_of_the_scales():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(64, 64, generator=generator)
    scale = torch.exp(torch.randn(64, 64, generator=generator))
    stream = _core.line_encode_scaled((x * scale).reshape(-1).numpy(), scale.reshape(-1).numpy(), 64, 64, 3.0)
    assert len(stream) * 8 <= 3 * 4096
    rows, cols, memory = _core.line_decode_scaled(stream, scale.reshape(-1).numpy(), 4096)
    decoded = torch.frombuffer(memory, dtype=torch.float32).view(rows, cols)
    over = (decoded - x * scale) / scale
    assert over.square().mean() < 0.05
    # A division on the way in and a product on the way out: what the loop does on a GPU.
    plain = torch.frombuffer(_core.line_decode(stream)[2], dtype=torch.float32).view(64, 64)
    assert torch.equal(plain * scale, decoded)
    with pytest.raises(InputError, match="no positive number"):
        _core.line_encode_scaled(x.reshape(-1).numpy(), torch.zeros(64).numpy(), 64, 64, 3.0)
