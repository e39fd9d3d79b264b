"""Programs that tests run beside themselves, with this package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import trinity

ROOT = Path(__file__).resolve().parents[2]
#: An environment with vLLM, and LMCache and llama.cpp beside it where they are installed (docs/integrations.md).
VLLM = os.environ.get("TRINITY_VLLM_PYTHON") or str(ROOT / ".venv-vllm/bin/python")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(trinity.__file__).parents[1]), **more}


def python(*words: object, interpreter: str = sys.executable, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    own = environment(**(env or {}))
    return subprocess.run([interpreter, *map(str, words)], capture_output=True, text=True, check=False, env=own, **options)


def has(modules: str) -> bool:
    return Path(VLLM).exists() and python("-c", f"import {modules}", interpreter=VLLM).returncode == 0


def without_speeds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a comparison but for what a machine measures anew each time."""
    return [{key: value for key, value in row.items() if key not in {"encode_mb_s", "decode_mb_s"}} for row in rows]
