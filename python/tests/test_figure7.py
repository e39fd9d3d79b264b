"""What `python/research/figure7` does with matrices, models left out."""

import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "research/figure7"


@pytest.fixture
def coding(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    yield __import__("coding")
    sys.modules.pop("coding", None)


@pytest.fixture
def layer():
    """A matrix, and second moments of inputs a few of which are large."""
    draw = np.random.default_rng(7)
    matrix = draw.standard_normal((192, 256)).astype(np.float32)
    inputs = draw.standard_normal((1024, 256)).astype(np.float32)
    inputs[:, ::32] *= 30
    return {"a": matrix}, {"a": inputs.T @ inputs / len(inputs)}


@pytest.mark.parametrize("bits", [2.5, 4])
def test_every_method_keeps_to_its_bits_with_scales_counted(coding, layer, bits):
    matrices, moments = layer
    for method in coding.METHODS:
        decoded, size = coding.code(method, bits, matrices, moments)
        assert 8 * size <= bits * matrices["a"].size, method
        assert decoded["a"].shape == matrices["a"].shape
        assert np.mean((decoded["a"] - matrices["a"]) ** 2) < 0.6, method


def test_scaling_spares_what_large_inputs_meet(coding, layer):
    matrices, moments = layer
    error = {}
    for method in coding.METHODS:
        decoded, _ = coding.code(method, 3, matrices, moments)
        error[method] = coding.output_error(decoded["a"] - matrices["a"], moments["a"])
    assert error["awq+rtn-128g"] < error["rtn-128g"] / 2, error
    assert error["awq+trinity"] < error["trinity"] / 2, error


def test_without_moments_nothing_is_scaled(coding, layer):
    matrices, _ = layer
    plain, scaled = (coding.code(method, 3, matrices, {}) for method in ("rtn-128g", "awq+rtn-128g"))
    assert plain[1] == scaled[1] and (plain[0]["a"] == scaled[0]["a"]).all()
