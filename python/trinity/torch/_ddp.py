"""Data-parallel gradients, coded on the wire.

A packed gradient cannot be summed on the way, so an all-reduce becomes two
steps: every rank gets its shard of everybody's gradient (all-to-all), sums it in
single precision in the order of ranks, and gives the sum to everybody
(all-gather). Both steps carry coded bytes. All ranks decode the same bytes in
the end, so all of them hold the same bits.
"""

# Annotations are not postponed here: DDP compares those of a hook with its classes.
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from ._shards import HostShards, Shards, carrier

#: A root of a second moment counts as at least this share of the bucket's mean: values that
#: never had a gradient would else take all bits.
_LEAST_SCALE = 1e-3


class DdpHook:
    """What `ddp_hook` makes; ``sent_bytes`` counts what this rank put on the wire, and
    ``plain_bytes`` what the same gradients would have taken as they are; ``plans`` how often a
    plan was chosen.
    """

    def __init__(
        self,
        bits: float,
        error_feedback: bool,
        codec: str,
        optimizer: torch.optim.Optimizer | None,
        process_group: dist.ProcessGroup | None,
        alone: bool,
    ) -> None:
        if not bits > 0:
            raise ValueError(f"bits={bits}: expected a number above zero")
        # DDP names hooks in its logs, as it would a function.
        self.__name__ = self.__qualname__ = "trinity.torch.ddp_hook"
        self.bits = bits
        self.error_feedback = error_feedback
        self.codec = codec
        self.optimizer = optimizer
        self.group = process_group
        self.alone = alone
        self.sent_bytes = 0
        self.plain_bytes = 0
        self._worker: ThreadPoolExecutor | None = None
        # What carries a bucket, by its index; on GPUs the stream it is coded on.
        self._shards: dict[int, Shards | HostShards] = {}
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    @property
    def plans(self) -> int:
        return sum(one.plans for one in self._shards.values())

    def __call__(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
        buffer, index = bucket.buffer(), bucket.index()
        devices = [buffer.device] if buffer.is_cuda else []
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)  # type: ignore[arg-type]
        if dist.get_world_size(self.group) == 1 and not self.alone:
            future.set_result(buffer.detach().clone())
            return future
        if buffer.is_cuda:
            # Beside backward: who waits for the future waits for this stream.
            if buffer.device not in self._streams:
                self._streams[buffer.device] = torch.cuda.Stream(buffer.device)
            stream = self._streams[buffer.device]
            stream.wait_stream(torch.cuda.current_stream(buffer.device))
            with torch.cuda.stream(stream):
                buffer.record_stream(stream)
                future.set_result(self._exchange(index, buffer, self._scales(bucket)))
            return future
        scales = self._scales(bucket)
        if self._worker is None:
            # One thread: buckets are exchanged in the order in which every rank has them.
            self._worker = ThreadPoolExecutor(1, "trinity-ddp")

        def work() -> None:
            try:
                future.set_result(self._exchange(index, buffer, scales))
            except BaseException as error:  # noqa: BLE001  the future carries it to who waits
                future.set_exception(error)  # type: ignore[arg-type]

        # Backward goes on meanwhile.
        self._worker.submit(work)
        return future

    def _scales(self, bucket: dist.GradBucket) -> torch.Tensor | None:  # type: ignore[name-defined]
        """Roots of the optimizer's second moments, one for each value of the bucket, where it is; every rank has the same."""
        if self.optimizer is None:
            return None
        moments = [self.optimizer.state.get(one, {}).get("exp_avg_sq") for one in bucket.parameters()]
        if any(one is None for one in moments):
            return None
        device = bucket.buffer().device
        parts = [one.detach().to(device=device, dtype=torch.float32).reshape(-1) for one in moments]
        roots = torch.cat(parts)
        if roots.numel() != bucket.buffer().numel():
            return None
        mean = roots.sqrt_().mean()
        # Nothing is waited for: where no value ever had a gradient, all count alike.
        least = torch.where(mean > 0, _LEAST_SCALE * mean, 1.0)
        return torch.clamp_(roots, min=least)

    def _exchange(self, index: int, buffer: torch.Tensor, scales: torch.Tensor | None) -> torch.Tensor:
        """The mean over ranks; on the buffer's device, where it has kernels: queued then, and not waited for."""
        ranks = dist.get_world_size(self.group)
        length = -(-buffer.numel() // ranks)
        options = {"error_feedback": self.error_feedback, "group": self.group}
        self._shards[index] = shards = carrier(self._shards.get(index), length, self.bits, self.codec, buffer.device, **options)
        values = buffer.detach().to(device=shards.where, dtype=torch.float32).reshape(-1)
        if scales is not None:
            scales = scales.to(shards.where)
            values = values / scales
        short = ranks * length - values.numel()
        rows = (torch.nn.functional.pad(values, (0, short)) if short else values).reshape(ranks, length)
        total = shards.scattered(rows)
        whole = shards.gathered(total.div_(ranks) if ranks > 1 else total)[: values.numel()]
        self.sent_bytes += 2 * (ranks - 1) * shards.bytes
        self.plain_bytes += 2 * (ranks - 1) * length * buffer.element_size()
        if scales is not None:
            # What was decoded is nobody else's.
            whole = whole.mul_(scales)
        return whole.to(device=buffer.device, dtype=buffer.dtype).reshape(buffer.shape)


def ddp_hook(
    bits: float = 2.6,
    error_feedback: bool = False,
    *,
    codec: str = "line-fast",
    optimizer: torch.optim.Optimizer | None = None,
    process_group: dist.ProcessGroup | None = None,
    alone: bool = False,
) -> DdpHook:
    """A communication hook for ``DistributedDataParallel``: gradients at ``bits`` per value.

    With the ``optimizer`` (Adam or AdamW), gradients are coded over the root of its
    second moments, which every rank holds: below 2 bits that is what makes training
    work (docs/training.md). ``error_feedback`` adds what coding loses in a step to
    the next one's gradient: it helps SGD at low rates and hurts AdamW. A plan of
    the codec is kept from step to step and chosen anew where it no longer fits;
    buckets are coded while backward goes on. Every rank ends with the same bits.
    Buckets on a GPU are coded there, on a stream of their own, with ``line-fast``,
    ``line`` and ``trinity-lite`` (other codecs are the CPU's): ``nccl`` carries them
    from device to device, and a step waits for nothing but that rank 0 chooses a
    plan now and then. ``alone`` codes where there is one rank, too, to see what a
    rate does to a training. A gradient that is not finite arrives as NaN on all
    ranks, as a sum would be. ``python/benches/hooks.py`` holds it against the hooks
    of PyTorch.

    ::

        model = DistributedDataParallel(model)
        optimizer = torch.optim.AdamW(model.parameters())
        model.register_comm_hook(None, trinity.torch.ddp_hook(bits=2.6, optimizer=optimizer))
    """
    return DdpHook(bits, error_feedback, codec, optimizer, process_group, alone)
