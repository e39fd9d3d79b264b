"""EXL3, the quantizer of exllamav3, on the reference model, for `cargo xtask peers weights`.

    exl3.py FOLDER MODEL TEXT exl3-BITS...

The quantizer is that of the package as it stands (`exllamav3.modules.quant.exl3_lib`), with what its converter sets: codebook
`mul1`, damping of 0.025, scales of output channels where what it measures of a feed-forward part speaks for them. Of its
extension only what quantizes is compiled, once, into FOLDER: the whole takes many times as long, and none of the rest runs
here. As in its converter a layer's second moments are taken with that layer as it was and all before it quantized; TEXT is cut
into windows of the model's length. MODEL is reference.safetensors, its configuration and tokenizer beside it. Writes what the
layers stand for as coded.safetensors under the names of the model, for `trinity eval --original MODEL`, and prints a line of
JSON for each rate: the files, and the bits of a linear weight, scales of inputs and outputs in f16 counted.

It needs PyTorch, CUDA with its compiler, a GPU, and the package `exllamav3` to be importable or its folder named in
EXLLAMAV3 (a wheel that was unpacked is enough).
"""
import hashlib
import importlib.util
import json
import os
import pathlib
import sys
import types

import torch
import torch.nn.functional as f
from safetensors.torch import load_file, save_file

from reference import network

#: What of the package's extension quantizes, and the functions of it that are called.
SOURCES = ["quant/quantize.cu", "quant/exl3_devctx.cu", "quant/comp_units/quantize_tiles_frac_inst.cu"]
SOURCES += [f"quant/comp_units/quantize_tiles_inst_k{bits}.cu" for bits in range(1, 9)]
BINDINGS = """
#include <torch/extension.h>
#include "quant/quantize.cuh"
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("quantize_tiles", &quantize_tiles);
    m.def("quantize_tiles_scratch", &quantize_tiles_scratch);
    m.def("quantize_tiles_frac", &quantize_tiles_frac);
}
"""
GROUPS = [["q_proj", "k_proj", "v_proj"], ["o_proj"], ["up_proj", "gate_proj"], ["down_proj"]]


def package():
    """The folder of exllamav3."""
    if (named := os.environ.get("EXLLAMAV3")):
        return pathlib.Path(named)
    found = importlib.util.find_spec("exllamav3")
    if found is None:
        raise SystemExit("error: exllamav3 is not installed\nhelp: unpack its wheel and name the folder in EXLLAMAV3")
    return pathlib.Path(found.submodule_search_locations[0])


def build(folder, own):
    """The extension, as far as it quantizes; what is there is taken."""
    from torch.utils.cpp_extension import load

    folder.mkdir(parents=True, exist_ok=True)
    bindings = folder / "bindings.cpp"
    if not bindings.exists():
        bindings.write_text(BINDINGS)
    sources = own / "exllamav3_ext"
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "{}.{}".format(*torch.cuda.get_device_capability()))
    load("exllamav3_ext", [str(bindings), *(str(sources / name) for name in SOURCES)], extra_include_paths=[str(sources)],
         extra_cuda_cflags=["-O3", "--use_fast_math"], extra_cflags=["-O2"], build_directory=str(folder))
    sys.path.insert(0, str(folder))


def quantizer(folder):
    """The function that quantizes a matrix, of a package whose other parts stay out."""
    own = package()
    build(folder, own)
    for name, inner in [("exllamav3", own), ("exllamav3.modules", own / "modules"), ("exllamav3.modules.quant", own / "modules/quant")]:
        module = types.ModuleType(name)
        module.__path__ = [str(inner)]
        sys.modules[name] = module
    # For progress and one error's name alone.
    for name, members in [("pydantic", ["PydanticUserError"]), ("rich", []), ("rich.progress", [
            "Progress", "BarColumn", "TextColumn", "TimeElapsedColumn", "TimeRemainingColumn"])]:
        if importlib.util.find_spec(name.split(".")[0]) is None or name in sys.modules and not hasattr(sys.modules[name], "__file__"):
            module = types.ModuleType(name)
            module.__path__ = []
            for member in members:
                setattr(module, member, type(member, (Exception,), {}))
            sys.modules[name] = module
    from exllamav3.modules.quant.exl3_lib.quantize import quantize_exl3

    return quantize_exl3


def moments(rows):
    """What the package's converter keeps of a layer's inputs."""
    rows = rows.reshape(-1, rows.shape[-1]).float()
    return {"H": rows.T @ rows, "count": rows.shape[0], "finalized": False, "num_total": rows.numel(), "first_key": "",
            "inf_nan": torch.zeros(2, dtype=torch.long, device=rows.device), "device": rows.device}


def sensitivities(layer, read):
    """How an output of the feed-forward part moves with outputs of `up` and of `gate`, as a mean square for each channel."""
    read = read.reshape(-1, read.shape[-1])
    gate, up = layer.gate_proj(read), layer.up_proj(read)
    open_share = gate.sigmoid()
    slopes = {"up_proj": f.silu(gate), "gate_proj": open_share * (1 + gate * (1 - open_share)) * up}
    energy = layer.down_proj.weight.square().sum(0)
    return {name: (one.square().mean(0) * energy).cpu() for name, one in slopes.items()}


@torch.no_grad()
def quantized(model, tokens, bits, quantize):
    """Quantizes the linear layers of a model in place; answers the bits that their scales and trellises take."""
    x = model.embed_tokens(tokens)
    spent = weights = number = 0
    for at, layer in enumerate(model.layers):
        seen = {}
        hooks = [getattr(layer, name).register_forward_pre_hook(lambda _, args, name=name: seen.__setitem__(name, args[0].cpu()))
                 for group in GROUPS for name in group[:1]]
        for window in x.split(4):
            found = dict(seen)
            seen.clear()
            layer(window, model.cos[: window.shape[1]], model.sin[: window.shape[1]])
            for name, rows in found.items():
                seen[name] = torch.cat([rows, seen[name]])
        for hook in hooks:
            hook.remove()
        # The first of a part is what all of it read.
        outputs = sensitivities(layer, seen["up_proj"].cuda())
        for group in GROUPS:
            shared = moments(seen[group[0]].cuda())
            for name in group:
                weight = getattr(layer, name).weight
                said = {"seed": number, "K": bits, "devices": ["cuda:0"], "device_ratios": None, "apply_out_scales": None, "mul1": True,
                        "no_pack": True, "debug_dir": "."}
                if name in outputs:
                    said["out_sensitivity"] = outputs[name]
                coded, error, _ = quantize(weight.T.float().contiguous(), shared, said, True)
                weight.copy_(coded.T)
                spent += bits * weight.numel() + 16 * sum(weight.shape)
                weights += weight.numel()
                number += 1
            print(f"layer {at}, {group[-1]}: error {error:.5f}", file=sys.stderr, flush=True)
        x = torch.cat([layer(window, model.cos[: window.shape[1]], model.sin[: window.shape[1]]) for window in x.split(4)])
    return spent / weights


def made(folder, original, text, word, quantize):
    bits = float(word.removeprefix("exl3-"))
    bits = int(bits) if bits.is_integer() else bits
    said = folder / word / "said.json"
    if not said.exists():
        from tokenizers import Tokenizer

        config = json.loads(original.with_suffix(".json").read_text())
        tokens = Tokenizer.from_file(str(original.with_name("tokenizer.json"))).encode(text.read_text()).ids
        length = config["max_position_embeddings"]
        tokens = torch.tensor(tokens[: len(tokens) // length * length]).reshape(-1, length).cuda()
        model = network(torch, config)
        model.load_state_dict({name: one.float() for name, one in load_file(original).items()})
        spent = quantized(model.cuda(), tokens, bits, quantize)
        (folder / word).mkdir(parents=True, exist_ok=True)
        weights = {name: one.detach().float().cpu().contiguous() for name, one in model.named_parameters()}
        save_file(weights, folder / word / "coded.safetensors")
        said.write_text(json.dumps({"quantized": str(folder / word / "coded.safetensors"), "original": str(original), "bits": spent}))
    return said.read_text()


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    if not torch.cuda.is_available():
        sys.exit("error: EXL3 quantizes on a GPU, and PyTorch sees none")
    # The extension's build talks on standard output, too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cache, original, text = (pathlib.Path(word) for word in sys.argv[1:4])
    quantize = quantizer(cache / "extension")
    folder = cache / f"{original.stem}-{hashlib.sha256(text.read_bytes()).hexdigest()[:12]}"
    for word in sys.argv[4:]:
        print(made(folder, original, text, word, quantize), file=answers, flush=True)


if __name__ == "__main__":
    main()
