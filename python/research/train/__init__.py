"""Training with coded communication: what gradients and activations lose, and what that costs a model.

``python python/research/train RUN.toml`` trains a byte-level Llama-style model with N
data-parallel replicas or S pipeline stages, simulated exactly in one process; under
``torchrun`` replicas are processes, and end with the same bits. See docs/training.md.
"""

from __future__ import annotations

from typing import Any

from ._config import Run, load, parse

__all__ = ["Run", "load", "parse", "train"]


def train(run: Run, **keywords: Any) -> dict[str, Any]:
    """Trains as a run says and returns its summary; needs PyTorch."""
    from ._loop import train as _train

    return _train(run, **keywords)
