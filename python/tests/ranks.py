"""Ranks of a distributed job as processes of their own, for tests and benches."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _rank(rank: int, work: Callable[..., Any], ranks: int, port: int, backend: str, folder: str, arguments: tuple[Any, ...]) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(0)
    dist.init_process_group(backend, rank=rank, world_size=ranks)
    torch.save(work(rank, *arguments), Path(folder) / str(rank))
    dist.barrier()
    dist.destroy_process_group()


def answers(work: Callable[..., Any], ranks: int, *arguments: Any, backend: str = "gloo") -> list[Any]:
    """What ``work(rank, …)`` gives back on each rank; where one raises, so does this."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, args=(work, ranks, free_port(), backend, folder, arguments), nprocs=ranks)
        return [torch.load(Path(folder) / str(rank), weights_only=False) for rank in range(ranks)]
