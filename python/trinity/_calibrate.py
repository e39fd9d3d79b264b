"""Calibration of any model that PyTorch runs: what its linear layers read, and what errors cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sized
from typing import Any

from . import _coded
from ._coded import Progress, StrPath
from ._errors import InputError
from ._progress import Bar

#: Rows of an input that are multiplied at once: bounds memory, changes nothing else.
_ROWS = 8192


class _Inputs:
    """Sums of x xᵀ of what linear layers read; layers that read one tensor share a sum."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.sums: dict[str, Any] = {}
        self.rows: dict[str, int] = {}
        #: Whose sum a layer's is.
        self.leader: dict[str, str] = {}
        self._last: Any = None
        self._last_name = ""

    def hook(self, name: str) -> Any:
        def see(module: Any, args: Any) -> None:
            x = args[0] if args else None
            if x is None or not self.torch.is_tensor(x):
                return
            shared = x is self._last and self._last_name in self.sums
            leader = self.leader.setdefault(name, self._last_name if shared else name)
            self._last, self._last_name = x, leader
            if leader != name:
                return
            flat = x.detach().reshape(-1, x.shape[-1])
            for part in flat.split(_ROWS):
                part = part.float()
                product = part.T @ part
                known = self.sums.get(name)
                self.sums[name] = product if known is None else known.add_(product)
            self.rows[name] = self.rows.get(name, 0) + flat.shape[0]

        return see

    def end_of_pass(self) -> None:
        self._last = None

    def moments(self) -> dict[str, Any]:
        return {
            name: (self.sums[leader] / max(self.rows[leader], 1)).cpu()
            for name, leader in self.leader.items()
            if leader in self.sums
        }


def _answer(model: Any, batch: Any, device: Any, torch: Any) -> Any:
    def moved(x: Any) -> Any:
        return x.to(device) if torch.is_tensor(x) else x

    if hasattr(batch, "items"):
        return model(**{key: moved(value) for key, value in batch.items()})
    if isinstance(batch, (list, tuple)):
        return model(*[moved(one) for one in batch])
    return model(moved(batch))


def _surprise(answer: Any, torch: Any, generator: Any) -> tuple[Any, int] | None:
    """A scalar whose gradient's square is the Fisher information of what the model answers.

    Of logits, the surprise at tokens that are drawn from them; of other numbers,
    their product with noise.
    """
    logits = getattr(answer, "logits", None)
    if logits is None and isinstance(answer, dict):
        logits = answer.get("logits")
    if logits is not None and torch.is_tensor(logits):
        flat = logits.float().reshape(-1, logits.shape[-1])
        chances = flat.detach().softmax(-1).cpu()
        drawn = torch.multinomial(chances, 1, generator=generator).to(flat.device)
        return -flat.log_softmax(-1).gather(1, drawn).sum(), flat.shape[0]
    if isinstance(answer, (list, tuple)) and answer:
        answer = answer[0]
    if torch.is_tensor(answer) and answer.is_floating_point():
        noise = torch.randn(answer.shape, generator=generator).to(answer.device)
        return (answer.float() * noise).sum(), max(answer.numel() // max(answer.shape[-1], 1), 1)
    return None


def _linears(model: Any, torch: Any) -> dict[str, Any]:
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            "the model is compiled to TorchScript, whose layers cannot be hooked\nhelp: calibrate the model it was made from",
            "the model is compiled to TorchScript, whose layers cannot be hooked",
            "calibrate the model it was made from",
        )
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first.setdefault(id(parameter), name)
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) or _is_by_rows(module):
            weight, own = module._parameters.get("weight"), _weight_of(name)
            # An output layer that is the embedding: tables are read as well, and a file may leave the tie out.
            if weight is None or first.get(id(weight), own) == own:
                found[name] = module
    if not found:
        raise InputError("the model has no linear layer (torch.nn.Linear, Conv1D of transformers) that could be hooked")
    return found


def _weight_of(layer: str) -> str:
    return f"{layer}.weight" if layer else "weight"


def _is_by_rows(module: Any) -> bool:
    """Whether it is a linear layer whose weight is inputs × outputs: ``Conv1D`` of transformers."""
    kinds = ((one.__module__, one.__name__) for one in type(module).__mro__)
    return ("transformers.pytorch_utils", "Conv1D") in kinds


def _unseen(model: Any, moments: dict[str, Any]) -> list[str]:
    """Parameters that multiply and of whose inputs no layer told: experts that share one, convolutions."""
    embeddings = {id(one.weight) for one in model.modules() if type(one).__name__ == "Embedding"}
    parameters = model.named_parameters()
    return [name for name, one in parameters if one.ndim > 1 and name not in moments and id(one) not in embeddings]


class _Gradients:
    """The sum over passes of each weight's squared gradient; the model's own gradients are put back."""

    def __init__(self, model: Any) -> None:
        self.parameters = {name: one for name, one in model.named_parameters() if one.is_floating_point()}
        self.before = {name: (one.requires_grad, one.grad) for name, one in self.parameters.items()}
        self.squares: dict[str, float] = dict.fromkeys(self.parameters, 0.0)
        self.tokens = 0

    def begin(self) -> None:
        for one in self.parameters.values():
            one.requires_grad_(True)
            one.grad = None

    def add(self, tokens: int) -> None:
        self.tokens += tokens
        for name, one in self.parameters.items():
            if one.grad is not None:
                self.squares[name] += float(one.grad.float().pow(2).sum())
                one.grad = None

    def end(self) -> None:
        for name, one in self.parameters.items():
            wanted, grad = self.before[name]
            one.requires_grad_(wanted)
            one.grad = grad

    def costs(self) -> dict[str, float]:
        """Nats per token that a relative squared error of one would cost, to second order."""
        per = max(self.tokens, 1)
        found = {}
        for name, one in self.parameters.items():
            cost = 0.5 * float(one.detach().float().pow(2).mean()) * self.squares[name] / per
            if cost > 0:
                found[name] = cost
        return found


def calibrate(
    model: Any,
    dataloader: Iterable[Any],
    path: StrPath,
    *,
    costs: bool = True,
    seed: int = 0,
    force: bool = False,
    progress: Progress = None,
) -> dict[str, Any]:
    """Runs a PyTorch model over some batches and writes what it learnt of its weights to ``path``.

    For every linear layer the second moments of what it reads, so that errors go
    where outputs feel them least; and, unless ``costs=False``, what an error in each
    weight costs (from gradients of the surprise at answers drawn from the model's
    own), so that bits go where they save most. Runs where the model is, on a GPU if
    it is there. A batch is a tensor, a tuple or a dictionary, as the model takes it.

    The file is for ``calibrate=`` of `trinity.encode`, `trinity.save`,
    `trinity.encode_file` and ``trinity.torch.compress_``, and for ``trinity encode
    --calibrate``, whole or in shards: a model of any architecture, where a text
    calibrates those that ``trinity eval`` runs. Returns how many ``batches`` and
    ``rows`` were seen, the ``layers`` that were, those that were ``never_called``,
    the parameters ``without_moments`` (experts that share one parameter, convolutions:
    their bits follow costs alone), and whether there are ``costs``.

    >>> import trinity                                                        # doctest: +SKIP
    >>> trinity.calibrate(model, dataloader, "model.calibration")             # doctest: +SKIP
    >>> trinity.encode_file("model.safetensors", "model.tri", bits=3, calibrate="model.calibration")  # doctest: +SKIP
    """
    try:
        import torch
    except ImportError:
        raise InputError("trinity.calibrate needs PyTorch\nhelp: pip install torch", "trinity.calibrate needs PyTorch", "pip install torch") from None

    target = _coded._may_write(path, force)
    linears = _linears(model, torch)
    first = next(iter(model.parameters()))
    inputs, gradients = _Inputs(torch), _Gradients(model)
    generator = torch.Generator().manual_seed(seed)
    hooks = [module.register_forward_pre_hook(inputs.hook(_weight_of(name))) for name, module in linears.items()]
    trained, batches, no_costs = model.training, 0, not costs
    total = len(dataloader) if isinstance(dataloader, Sized) else None
    model.eval()
    try:
        if costs:
            gradients.begin()
        with Bar(progress) as bar:
            for batch in dataloader:
                with torch.set_grad_enabled(not no_costs):
                    answer = _answer(model, batch, first.device, torch)
                    surprise = None if no_costs else _surprise(answer, torch, generator)
                    if surprise is None:
                        no_costs = True
                    else:
                        surprise[0].backward()
                        gradients.add(surprise[1])
                inputs.end_of_pass()
                batches += 1
                if bar.report is not None:
                    bar.report("calibrating", batches, total)
    finally:
        for hook in hooks:
            hook.remove()
        if costs:
            gradients.end()
        model.train(trained)
    moments = inputs.moments()
    if not batches:
        raise InputError("the dataloader has no batch")
    if not moments:
        raise InputError(f"none of the model's {len(linears)} linear layers was called through its own forward pass, so none can be hooked")
    found = {} if no_costs else gradients.costs()
    by_rows = [_weight_of(name) for name, module in linears.items() if _is_by_rows(module)]
    texts = {"trinity.calibration": "1", "costs": json.dumps(found), "by_rows": json.dumps(by_rows)}
    _coded.save(target, {name: one.contiguous() for name, one in moments.items()}, lossless=True, metadata=texts, force=True, progress=False)
    never = [name for name in linears if _weight_of(name) not in moments]
    rows = max(inputs.rows.values())
    summary = {"output": str(target), "batches": batches, "rows": rows, "layers": len(moments), "never_called": never}
    return {**summary, "without_moments": _unseen(model, moments), "costs": bool(found)}
