"""What the tests share: arrays like those of a model, and the command."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def weights() -> np.ndarray:
    """A matrix with rows of different scales and a few outliers."""
    random = np.random.default_rng(7)
    scale = np.exp(random.normal(size=(192, 1)))
    values = random.standard_t(6, size=(192, 256)) * scale * 0.02
    return values.astype(np.float32)


@pytest.fixture(scope="session")
def command() -> str:
    """The command `trinity`, as `cargo xtask test` built it."""
    found = os.environ.get("TRINITY_COMMAND") or shutil.which("trinity")
    built = (ROOT / "target" / profile / "trinity" for profile in ("once", "debug"))
    if found is None:
        found = next((str(path) for path in built if path.exists()), None)
    if found is None:
        pytest.skip("no `trinity` command (cargo build -p trinity)")
    return found


@pytest.fixture
def trinity_command(command: str, tmp_path: Path):
    """Runs the command in a folder of its own and gives back what it printed."""

    def run(*args: str) -> str:
        done = subprocess.run([command, *args], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def in_shards(trinity_command, tmp_path: Path):
    """The file that the command makes in so many parts."""

    def run(count: int, *encode: str) -> bytes:
        for index in range(count):
            trinity_command(*encode, "-o", "merged.tri", "--shard", f"{index}/{count}")
        trinity_command(*encode, "-o", "merged.tri", "--merge")
        return (tmp_path / "merged.tri").read_bytes()

    return run
