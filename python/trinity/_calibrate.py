"""Calibration of any model that PyTorch runs: what its linear layers read, what errors cost, and what of the gain stays."""

from __future__ import annotations

import bisect
import contextlib
import copy
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import asdict, dataclass
from typing import Any

from . import _coded
from ._coded import Progress, StrPath
from ._errors import Error, InputError
from ._progress import Bar, Report

#: Rows of an input that are multiplied at once: bounds memory, changes nothing else.
_ROWS = 8192
#: Batches that are held out at most, and of how many batches one is: as the command has windows of a text.
_HELD_OUT, _OF = 8, 8
#: Values up to which a model is coded twice, unasked, to tell what of the gain stays.
_SMALL = 1 << 28


class _Inputs:
    """Sums of x xᵀ of what linear layers read; layers that read one tensor share a sum, unless rows are weighed."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.sums: dict[str, Any] = {}
        self.rows: dict[str, int] = {}
        #: What the rows of a sum weigh together, where they are weighed.
        self.weighed: dict[str, float] = {}
        #: Whose sum a layer's is.
        self.leader: dict[str, str] = {}
        #: Weights whose rows are the inputs.
        self.by_rows: set[str] = set()
        #: Such of which both sides are.
        self.both: set[str] = set()
        self._last: Any = None
        self._last_name = ""

    def hook(self, name: str) -> Any:
        def see(module: Any, args: Any) -> None:
            if not args or not self.torch.is_tensor(args[0]):
                return
            x = args[0]
            shared = x is self._last and self._last_name in self.sums
            leader = self.leader.setdefault(name, self._last_name if shared else name)
            self._last, self._last_name = x, leader
            if leader == name:
                self.add(name, x)

        return see

    def guided_hook(self, name: str) -> Any:
        """Weighs each row by the mean squared gradient at what the layer makes of it, which is what an error there costs."""

        def see(module: Any, args: Any, output: Any) -> None:
            if not args or not all(self.torch.is_tensor(one) for one in (args[0], output)) or not output.requires_grad:
                return
            read = args[0].detach()
            # Layers that read the same feel errors of their own.
            self.leader.setdefault(name, name)
            output.register_hook(lambda gradient: self.add(name, read, gradient.detach().float().pow(2).mean(-1).reshape(-1)))

        return see

    def add(self, name: str, x: Any, weights: Any = None) -> None:
        flat = x.detach().reshape(-1, x.shape[-1])
        for at in range(0, flat.shape[0], _ROWS):
            part = flat[at : at + _ROWS].float()
            if weights is not None:
                part = part * weights[at : at + _ROWS, None].sqrt()
            product = part.T @ part
            known = self.sums.get(name)
            self.sums[name] = product if known is None else known.add_(product)
        self.rows[name] = self.rows.get(name, 0) + flat.shape[0]
        if weights is not None:
            self.weighed[name] = self.weighed.get(name, 0.0) + float(weights.sum())

    def see_product(self, name: str, parameter: Any, x: Any, weight: Any, outputs_first: bool) -> None:
        """Of a product with a parameter that no layer owns, or with one of the matrices that are fused in it."""
        if x.ndim == 0 or weight.ndim != 2 or x.shape[-1] != weight.shape[-1 if outputs_first else 0]:
            return
        # As the parameter lies in memory, its last side are the inputs, or, of a plain matrix, its first.
        by_rows = (weight.stride(-1) == 1) != outputs_first
        if by_rows and parameter.ndim != 2 or x.shape[-1] != parameter.shape[0 if by_rows else -1]:
            return
        if name in self.leader and by_rows != (name in self.by_rows):
            # Read from both sides: the moments are neither's.
            self.both.add(name)
        self.leader.setdefault(name, name)
        if by_rows:
            self.by_rows.add(name)
        if name not in self.both:
            self.add(name, x)

    def end_of_pass(self) -> None:
        self._last = None

    def moments(self) -> dict[str, Any]:
        def of(leader: str) -> float:
            return self.weighed.get(leader, float(self.rows.get(leader, 0)))

        # What the answer does not depend on weighs nothing.
        return {
            name: (self.sums[leader] / of(leader)).cpu()
            for name, leader in self.leader.items()
            if of(leader) > 0 and name not in self.both
        }


def _watching(parameters: dict[str, Any], inputs: _Inputs, torch: Any) -> Any:
    """A context in which products with these parameters are seen: fused experts and routers, which no layer owns."""
    from torch.overrides import TorchFunctionMode

    # By where they lie: one matrix of a parameter is a view of it, and parameters of one file may share their memory.
    starts = sorted((one.data_ptr(), one.numel() * one.element_size(), name) for name, one in parameters.items())

    def owner(weight: Any) -> str | None:
        at = bisect.bisect_right(starts, weight.data_ptr(), key=lambda start: start[0]) - 1
        return starts[at][2] if at >= 0 and weight.data_ptr() < starts[at][0] + starts[at][1] else None

    # Whether a product's second operand is outputs × inputs.
    products = {torch.nn.functional.linear: True, torch.matmul: False, torch.mm: False, torch.Tensor.matmul: False, torch.Tensor.mm: False}

    def watch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in products and len(args) >= 2 and torch.is_tensor(args[0]) and torch.is_tensor(args[1]):
            own = owner(args[1])
            if own is not None:
                inputs.see_product(own, parameters[own], args[0], args[1], products[func])
        return func(*args, **(kwargs or {}))

    # Made of its parts: where PyTorch is not, a type checker knows no base class.
    watching: Any = type("Watching", (TorchFunctionMode,), {"__torch_function__": watch})

    return watching() if starts else contextlib.nullcontext()


@contextlib.contextmanager
def _experts_in_turn(model: Any) -> Iterator[None]:
    """Transformers' experts multiplied one after the other: other ways copy or sort their weights first."""
    choose = getattr(model, "set_experts_implementation", None)
    before = getattr(getattr(model, "config", None), "_experts_implementation", None)
    if choose is None or before is None:
        yield
        return
    choose("eager")
    try:
        yield
    finally:
        choose(before)


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
    found = numbers(answer, torch)
    if found is None:
        return None
    rows, are_logits = found
    if are_logits:
        drawn = torch.multinomial(rows.detach().softmax(-1).cpu(), 1, generator=generator).to(rows.device)
        return -rows.log_softmax(-1).gather(1, drawn).sum(), rows.shape[0]
    noise = torch.randn(rows.shape, generator=generator).to(rows.device)
    return (rows * noise).sum(), max(rows.shape[0], 1)


def _linears(model: Any, torch: Any) -> dict[str, Any]:
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError.advised("the model is compiled to TorchScript, whose layers cannot be hooked", "calibrate the model it was made from")
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
    """Parameters that multiply and of whose inputs nothing told: convolutions, experts × inputs × outputs."""
    return [name for name in _unowned(model, {}) if name not in moments]


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
        costs = {name: 0.5 * float(one.detach().float().pow(2).mean()) * self.squares[name] / per for name, one in self.parameters.items()}
        return {name: cost for name, cost in costs.items() if cost > 0}


def _unowned(model: Any, linears: dict[str, Any]) -> dict[str, Any]:
    """Parameters of more than one side that no linear layer or table owns."""
    owned = {id(one._parameters.get("weight")) for one in linears.values()}
    owned |= {id(one.weight) for one in model.modules() if type(one).__name__ == "Embedding"}
    return {name: one for name, one in model.named_parameters() if one.ndim > 1 and id(one) not in owned}


def _spared(dataloader: Iterable[Any], spare: bool, held_out: list[Any]) -> Iterator[Any]:
    """The batches but for the last few, which are put into ``held_out``."""
    waiting: deque[Any] = deque()
    total = 0
    for batch in dataloader:
        total += 1
        waiting.append(batch)
        if not spare or len(waiting) > _HELD_OUT:
            yield waiting.popleft()
    kept = min(_HELD_OUT, total // _OF) if spare else 0
    while len(waiting) > kept:
        yield waiting.popleft()
    held_out.extend(waiting)


class _Passes:
    """A model run over batches, watched; it is left as it was."""

    def __init__(self, model: Any, linears: dict[str, Any], costs: bool, guided: bool, seed: int, torch: Any) -> None:
        self.model, self.torch, self.guided = model, torch, guided
        self.inputs, self.gradients = _Inputs(torch), _Gradients(model)
        self.generator = torch.Generator().manual_seed(seed)
        self.linears, self.costs, self.batches = linears, costs, 0
        self.inputs.by_rows.update(_weight_of(name) for name, one in linears.items() if _is_by_rows(one))
        self.device = next(iter(model.parameters())).device

    def run(self, batches: Iterable[Any], bar: Bar, total: int | None) -> None:
        asked, trained = self.costs, self.model.training
        hooks = [self.hooked(_weight_of(name), one) for name, one in self.linears.items()]
        self.model.eval()
        try:
            if asked:
                self.gradients.begin()
            with _experts_in_turn(self.model), _watching(_unowned(self.model, self.linears), self.inputs, self.torch):
                for batch in batches:
                    self.one(batch)
                    if bar.report is not None:
                        bar.report("calibrating", self.batches, total)
        finally:
            for hook in hooks:
                hook.remove()
            if asked:
                self.gradients.end()
            self.model.train(trained)

    def hooked(self, name: str, layer: Any) -> Any:
        if self.guided:
            return layer.register_forward_hook(self.inputs.guided_hook(name))
        return layer.register_forward_pre_hook(self.inputs.hook(name))

    def one(self, batch: Any) -> None:
        with self.torch.set_grad_enabled(self.costs):
            answer = _answer(self.model, batch, self.device, self.torch)
            surprise = _surprise(answer, self.torch, self.generator) if self.costs else None
            if surprise is None:
                if self.guided:
                    raise InputError("the model answers no numbers, whose gradients could weigh what its layers read (guided=True)")
                self.costs = False
            else:
                surprise[0].backward()
                self.gradients.add(surprise[1])
        self.inputs.end_of_pass()
        self.batches += 1


def numbers(answer: Any, torch: Any) -> tuple[Any, bool] | None:
    """What a model answers as rows of numbers, and whether they are logits; ``None`` where it answers no numbers."""
    logits: Any = getattr(answer, "logits", None)
    if logits is None and isinstance(answer, dict):
        logits = answer.get("logits")
    are_logits = logits is not None and torch.is_tensor(logits)
    if not are_logits:
        # Outputs of transformers are dictionaries whose first value is the answer.
        values = tuple(answer.values()) if isinstance(answer, dict) else answer
        logits = values[0] if isinstance(values, (list, tuple)) and values else values
    if not torch.is_tensor(logits) or not logits.is_floating_point() or logits.ndim == 0:
        return None
    return logits.float().reshape(-1, logits.shape[-1]), are_logits


@dataclass(frozen=True)
class Gain:
    """What a model loses coded at one rate, without a calibration and with it."""

    batches: int
    bits: float
    #: ``nats per answer`` (Kullback–Leibler divergence from what the model answers) or ``relative squared error``.
    measure: str
    lost_plain: float
    lost_calibrated: float

    def __str__(self) -> str:
        what = f"on {self.batches} batches that were held out, at {self.bits:g} bits per value: {self.measure} lost"
        return f"{what} {self.lost_plain:.4g} coded, {self.lost_calibrated:.4g} calibrated"

    @classmethod
    def measured(
        cls, model: Any, batches: Sequence[Any], path: StrPath, bits: float, answer: Callable[[Any, Any], Any], report: Report | None
    ) -> Gain:
        """Codes a copy of the model with the calibration at ``path`` and without, and holds its answers against the model's.

        ``answer`` runs a model over a batch and gives its `numbers`.
        """
        state = {name: one.detach().cpu() for name, one in model.state_dict().items()}
        twin = copy.deepcopy(model)
        lost: dict[bool, float] = {}
        are_logits = False
        for calibrated in (False, True):
            calibrate = path if calibrated else None
            quiet = False if report is None else report
            coded = _coded.encode(state, bits=bits, calibrate=calibrate, measure=False, progress=quiet)
            twin.load_state_dict(_coded.decode(coded, into="torch", progress=False))
            total, of = 0.0, 0.0
            for batch in batches:
                first, second = answer(model, batch), answer(twin, batch)
                if first is None or second is None:
                    raise InputError("the model answers no numbers")
                are_logits = first[1]
                error, size = _distance(first[0], second[0], are_logits)
                total, of = total + error, of + size
            lost[calibrated] = total / max(of, 1e-30)
        measure = "nats per answer" if are_logits else "relative squared error"
        return cls(len(batches), bits, measure, lost[False], lost[True])


def _distance(first: Any, second: Any, are_logits: bool) -> tuple[float, float]:
    """How far answers are from those of the model itself, and what that is a share of."""
    if are_logits:
        p, q = first.log_softmax(-1), second.log_softmax(-1)
        return float((p.exp() * (p - q)).sum()), float(p.shape[0])
    return float((first - second).pow(2).sum()), float(first.pow(2).sum())


def _gain(model: Any, batches: list[Any], path: StrPath, bits: float, bar: Bar, torch: Any) -> Gain | None:
    """What of the gain stays on batches that no calibration saw, and says so."""
    device = next(iter(model.parameters())).device

    def answer(one: Any, batch: Any) -> Any:
        with torch.no_grad():
            return numbers(_answer(one, batch, device, torch), torch)

    trained = model.training
    model.eval()
    try:
        gain = Gain.measured(model, batches, path, bits, answer, bar.report)
        said = str(gain)
    except Error as error:
        gain, said = None, f"what of the gain stays cannot be told: {str(error).splitlines()[0]}"
    finally:
        model.train(trained)
    if bar.report is not None:
        bar.report(said, None, None)
    return gain


def calibrate(
    model: Any,
    dataloader: Iterable[Any],
    path: StrPath,
    *,
    costs: bool = True,
    guided: bool = False,
    seed: int = 0,
    held_out: bool | None = None,
    bits: float = 3.0,
    force: bool = False,
    progress: Progress = None,
) -> dict[str, Any]:
    """Runs a PyTorch model over some batches and writes what it learnt of its weights to ``path``.

    For every linear layer the second moments of what it reads, so that errors go
    where outputs feel them least; and, unless ``costs=False``, what an error in each
    weight costs (from gradients of the surprise at answers drawn from the model's
    own), so that bits go where they save most. Runs where the model is, on a GPU if
    it is there. A batch is a tensor, a tuple or a dictionary, as the model takes it.

    With ``guided=True`` each row that a linear layer reads counts by the mean squared
    gradient at what the layer makes of it (GuidedQuant), so that errors go where the
    answer feels them least, and not only that layer's output. A layer whose output the
    answer does not depend on then has no moments; experts in one parameter keep plain ones.

    The last batches, one of eight and eight at most, are held out: the model is coded
    at ``bits`` with the calibration and without it, and what either loses on them is
    printed on stderr (not with ``progress=False``) and returned. That takes two
    encodings and a copy of the model, so that above 268 million values it is only done
    where ``held_out=True``; with ``held_out=False``, and with fewer than eight batches,
    all of them calibrate.

    The file is for ``calibrate=`` of `trinity.encode`, `trinity.save`,
    `trinity.encode_file` and ``trinity.torch.compress_``, and for ``trinity encode
    --calibrate``, whole or in shards: a model of any architecture, where a text
    calibrates those that ``trinity eval`` runs. Returns how many ``batches`` and
    ``rows`` were seen, the ``layers`` that were, those that were ``never_called``,
    the parameters ``without_moments`` (convolutions, and experts in one parameter that
    is experts × inputs × outputs: their bits follow costs alone; experts × outputs ×
    inputs share the moments of what all of them read), whether there are ``costs``,
    and the gain on what was ``held_out``, or ``None``.

    >>> import trinity                                                        # doctest: +SKIP
    >>> trinity.calibrate(model, dataloader, "model.calibration")             # doctest: +SKIP
    >>> trinity.encode_file("model.safetensors", "model.tri", bits=3, calibrate="model.calibration")  # doctest: +SKIP
    """
    try:
        import torch
    except ImportError:
        raise InputError.advised("trinity.calibrate needs PyTorch", "pip install torch") from None

    if guided and not costs:
        raise InputError("guided=True weighs what layers read by gradients, and costs=False has none taken")
    target = _coded._may_write(path, force)
    linears = _linears(model, torch)
    values = sum(one.numel() for one in model.parameters())
    spare = values <= _SMALL if held_out is None else held_out
    total = len(dataloader) if isinstance(dataloader, Sized) else None
    if total is not None and spare:
        total -= min(_HELD_OUT, total // _OF)
    passes, kept = _Passes(model, linears, costs, guided, seed, torch), list[Any]()
    with Bar(progress) as bar:
        passes.run(_spared(dataloader, spare, kept), bar, total)
    moments = passes.inputs.moments()
    if not passes.batches:
        raise InputError("the dataloader has no batch")
    if not moments:
        raise InputError(f"none of the model's {len(linears)} linear layers was called through its own forward pass, so none can be hooked")
    found = passes.gradients.costs() if passes.costs else {}
    texts = {"trinity.calibration": "1", "costs": json.dumps(found), "by_rows": json.dumps(sorted(passes.inputs.by_rows & set(moments)))}
    _coded.save(target, {name: one.contiguous() for name, one in moments.items()}, lossless=True, metadata=texts, force=True, progress=False)
    with Bar(progress) as bar:
        gain = _gain(model, kept, target, bits, bar, torch) if kept else None
    never = [name for name in linears if _weight_of(name) not in moments]
    rows = max(passes.inputs.rows.values())
    summary = {"output": str(target), "batches": passes.batches, "rows": rows, "layers": len(moments), "never_called": never}
    told = {"costs": bool(found), "held_out": None if gain is None else asdict(gain)}
    return {**summary, "without_moments": _unseen(model, moments), **told}
