"""Who is there, and how payloads get from one rank to the others.

All ranks in one process, or one rank in each of several (gloo): the loop sees
the same lists in the same order either way, so both end with the same bits.
Ranks are replicas, or the stages of one pipeline.
"""

from __future__ import annotations

import datetime
import hashlib
import os
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist

from trinity import InputError, RunError

#: Seconds until a rank that says nothing counts as gone.
PATIENCE_S = 120


def as_bytes(x: torch.Tensor) -> torch.Tensor:
    """A tensor's values as they lie in memory."""
    return x.contiguous().reshape(-1).view(torch.uint8)


class Wire(Protocol):
    """`local` are the ranks of this process, in order; lists of payloads are in the order of ranks."""

    ranks: int
    local: list[int]

    def gather(self, payloads: list[torch.Tensor]) -> list[torch.Tensor]: ...
    def shuffle(self, parts: list[list[torch.Tensor]]) -> dict[int, list[torch.Tensor]]: ...
    def agree(self, what: str) -> None: ...


class Simulated:
    """Every rank in this process."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.local = ranks, list(range(ranks))

    def gather(self, payloads: list[torch.Tensor]) -> list[torch.Tensor]:
        """What every rank sends to all."""
        return payloads

    def shuffle(self, parts: list[list[torch.Tensor]]) -> dict[int, list[torch.Tensor]]:
        """What every rank has for each of the others: by owner, what all sent to it."""
        return {owner: [sent[owner] for sent in parts] for owner in self.local}

    def agree(self, what: str) -> None:
        """Nobody else could disagree."""


class Processes:
    """This process is one rank; the others are reached by gloo, as torchrun started them."""

    def __init__(self) -> None:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=PATIENCE_S))
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.local = [self.rank]

    def _told(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except RuntimeError as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            said = f"rank {self.rank}: another rank stopped or does not answer ({reason})"
            raise RunError.advised(said, "see what the other rank said last; the run goes on from its last checkpoint with --resume") from None

    def _lengths(self, own: list[int]) -> list[list[int]]:
        return [one.tolist() for one in self._all(torch.tensor(own, dtype=torch.int64))]

    def _all(self, mine: torch.Tensor) -> list[torch.Tensor]:
        """What every rank has in the place of this."""
        found = [torch.empty_like(mine) for _ in range(self.ranks)]
        self._told(lambda: dist.all_gather(found, mine))
        return found

    def gather(self, payloads: list[torch.Tensor]) -> list[torch.Tensor]:
        (own,) = payloads
        lengths = [one[0] for one in self._lengths([own.numel()])]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[: own.numel()] = own.cpu()
        return [one[:length].to(own.device) for one, length in zip(self._all(padded), lengths)]

    def shuffle(self, parts: list[list[torch.Tensor]]) -> dict[int, list[torch.Tensor]]:
        (own,) = parts
        lengths = self._lengths([part.numel() for part in own])
        room = max(max(row) for row in lengths)
        out = torch.zeros(self.ranks, room, dtype=torch.uint8)
        for row, part in zip(out, own):
            row[: part.numel()] = part.cpu()
        found = torch.empty_like(out)
        self._told(lambda: dist.all_to_all_single(found, out))
        mine = [row[: lengths[source][self.rank]].to(own[0].device) for source, row in enumerate(found)]
        return {self.rank: mine}

    def send(self, payloads: list[torch.Tensor], to: int) -> None:
        """Payloads to one rank, which asks for as many."""
        for payload in payloads:
            own = payload.cpu()
            self._told(lambda: dist.send(torch.tensor([own.numel()]), to))
            self._told(lambda: dist.send(own, to))

    def receive(self, count: int, source: int, device: torch.device) -> list[torch.Tensor]:
        found = []
        for _ in range(count):
            length = torch.empty(1, dtype=torch.int64)
            self._told(lambda: dist.recv(length, source))
            payload = torch.empty(int(length), dtype=torch.uint8)
            self._told(lambda: dist.recv(payload, source))
            found.append(payload.to(device))
        return found

    def sums(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over ranks, in their order, on each of them."""
        total = torch.zeros_like(values)
        for payload in self.gather([as_bytes(values)]):
            total = total + payload.view(values.dtype).view(values.shape)
        return total

    def agree(self, what: str) -> None:
        """Raises where ranks run different files or models: shapes would not fit later."""
        digest = torch.frombuffer(bytearray(hashlib.sha256(what.encode()).digest()), dtype=torch.uint8)
        for rank, other in enumerate(self.gather([digest])):
            if not torch.equal(other, digest):
                said = f"rank {rank} runs something else than rank {self.rank}: another shape, text or setting"
                raise InputError.advised(said, "start all ranks with the same file")


def connect(replicas: int, stages: int) -> tuple[Wire, Processes | None]:
    """Who replicas are, and between whom stages of a pipeline send: all in this process, or as torchrun says."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Simulated(replicas), None
    ranks, what = (stages, "stages") if stages > 1 else (replicas, "replicas")
    if world != ranks:
        raise InputError(f"torchrun started {world} processes, and the run has {ranks} {what}")
    processes = Processes()
    return (Simulated(1), processes) if stages > 1 else (processes, None)
