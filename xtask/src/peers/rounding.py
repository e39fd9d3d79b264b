"""AutoRound and GPTQModel on a byte-level model, as their users run them, for the table of `docs/language_models.md`.

    rounding.py FOLDER MODEL TEXT PEER-BITS...

PEER is one of `autoround`, `autoround-light` (its recipe of 50 steps), `autoround-ext` (its variants for few bits) and
`gptqmodel`. Writes the model (a safetensors file or one of its shards, its configuration beside it) as a folder of
transformers, has the peer quantize its linear layers to BITS in groups of 128 with TEXT in windows of the model's length, reads
the file that came of it, and writes what it stands for as coded.safetensors under the names of the model, for `trinity eval
--original MODEL`. Prints a line of JSON for each: the files, and the bits of a linear weight, counted from the tensors of the
peer's file: integers, scales, zero points, indices. All but linear layers has to be what it was.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import sys

NAMES = ("autoround", "autoround-light", "autoround-ext", "gptqmodel")
USAGE = f"usage: rounding.py FOLDER MODEL TEXT PEER-BITS..., where PEER is one of {', '.join(NAMES)}"


def asked(words):
    """The folder, the model, the text, and peers with their bits; an exit with a sentence where they are none."""

    def refuse(why):
        print(f"error: {why}", USAGE, sep="\n", file=sys.stderr)
        raise SystemExit(2)

    if len(words) < 4:
        refuse(f"{len(words)} arguments, expected four or more")
    cache, model, text = (pathlib.Path(word) for word in words[:3])
    config = model.with_name(re.sub(r"-\d+-of-\d+$", "", model.stem) + ".json")
    for path in (model, config, text):
        if not path.is_file():
            refuse(f"{path} is not there")
    peers = []
    for word in words[3:]:
        peer, _, bits = word.rpartition("-")
        if peer not in NAMES or not bits.isdigit() or not 2 <= int(bits) <= 8:
            refuse(f"`{word}` is no peer with its bits, such as gptqmodel-4")
        peers.append((word, peer, int(bits)))
    return cache, model, config, text, peers


# Before what takes seconds to import.
ASKED = asked(sys.argv[1:])

# What is compiled is faster on models that are larger than these.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import numpy
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

GROUP = 128
LINEAR = re.compile(r"layers\.(\d+)\.((?:[qkvo]|gate|up|down)_proj)\.weight")
# What is stored of a layer beside its integers is of no weight by itself.
PARTS = {"qweight": "integers", "scales": "scales", "qzeros": "zero points", "g_idx": "indices", "bias": "biases"}


def theirs(name):
    """The name of a tensor in transformers."""
    if (linear := LINEAR.fullmatch(name)):
        layer, part = linear.groups()
        return f"model.layers.{layer}.{'self_attn' if part[0] in 'qkvo' and part[1] == '_' else 'mlp'}.{part}.weight"
    return f"model.{name}"


def tensors(config):
    """All tensors of the model whose configuration this is."""
    found = {}
    for path in sorted(config.parent.glob(f"{config.stem}*.safetensors")):
        found.update(load_file(path))
    return found


def letters():
    """The character that stands for each byte in vocabularies of bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + at) for at, byte in enumerate(hidden)}}


def write_source(config, weights, folder):
    """The model as a folder of transformers, its tokens bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir(parents=True, exist_ok=True)
    own = json.loads(config.read_text())
    own.pop("tokenizer")
    own = {**own, "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_act": "silu",
           "head_dim": own["hidden_size"] // own["num_attention_heads"], "attention_bias": False,
           "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    (folder / "config.json").write_text(json.dumps(own, indent=1))
    (folder / "generation_config.json").write_text("{}")
    save_file({theirs(name): one.contiguous() for name, one in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    tokenizer = Tokenizer(models.BPE({letter: byte for byte, letter in letters().items()}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    # GPTQModel wants a byte to pad with; no text has this one, and nothing is padded.
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": letters()[0]}))


def autoround(source, windows, bits, out, **more):
    """AutoRound with its defaults: 200 steps of sign descent for each block."""
    from auto_round import AutoRound

    length = windows.shape[1]
    rounding = AutoRound(str(source), scheme=f"W{bits}A16", dataset=[{"input_ids": one[None]} for one in windows],
                         seqlen=length, nsamples=len(windows), device_map="cpu", enable_torch_compile=False, **more)
    rounding.quantize_and_save(str(out), format="auto_round")


def gptqmodel(source, windows, bits, out):
    """GPTQModel with its defaults."""
    # It asks for one worker on two cores, and then has too few for what it starts.
    os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "2")
    from gptqmodel import GPTQConfig, GPTQModel

    model = GPTQModel.load(str(source), GPTQConfig(bits=bits, group_size=GROUP), device="cpu")
    model.quantize([{"input_ids": one.tolist(), "attention_mask": [1] * len(one)} for one in windows], batch_size=1)
    model.save(str(out))


PEERS = {
    "autoround": autoround,
    "autoround-light": lambda *said: autoround(*said, iters=50, lr=5e-3),
    "autoround-ext": lambda *said: autoround(*said, enable_alg_ext=True),
    "gptqmodel": gptqmodel,
}


def unpacked(words, bits):
    """Integers of so many bits from each column of 32-bit words, which are one stream of bits from the least on."""
    words = words.numpy().view(numpy.uint32)
    stream = (words[:, None, :] >> numpy.arange(32, dtype=numpy.uint32)[None, :, None]) & 1
    stream = stream.reshape(-1, bits, words.shape[1])
    return torch.from_numpy((stream << numpy.arange(bits, dtype=numpy.uint32)[None, :, None]).sum(1).astype(numpy.float32))


def dequantized(parts, bits, offset):
    """A layer's weight, outputs × inputs; `offset` is what the file left out of each zero point."""
    integers, scales = unpacked(parts["qweight"], bits), parts["scales"].float()
    zeros = unpacked(parts["qzeros"].T.contiguous(), bits).T + offset
    inputs = len(integers)
    group = parts["g_idx"].long() if "g_idx" in parts else torch.arange(inputs) // GROUP
    return ((integers - zeros[group]) * scales[group]).T.contiguous()


def read(folder, weights, bits):
    """The weights that a quantized folder stands for, and the bits that each part of it spends on a linear weight."""
    stored = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            stored.update({name: file.get_tensor(name) for name in file.keys()})
    said = json.loads((folder / "config.json").read_text())["quantization_config"]
    if said["bits"] != bits or said["group_size"] != GROUP:
        raise SystemExit(f"error: {folder} says {said}")
    offset = 0 if "v2" in str(said.get("checkpoint_format", "")) else 1
    coded, spent, count = {}, {}, 0
    for name, one in weights.items():
        if not LINEAR.fullmatch(name):
            kept = stored.pop(theirs(name))
            if kept.dtype.itemsize != 2 or not torch.equal(kept.float(), one.float()):
                raise SystemExit(f"error: {name} is not as it was")
            coded[name] = one.float()
            continue
        layer = theirs(name).removesuffix("weight")
        parts = {part: stored.pop(layer + part) for part in PARTS if layer + part in stored}
        for part, tensor in parts.items():
            spent[PARTS[part]] = spent.get(PARTS[part], 0) + 8 * tensor.numel() * tensor.element_size()
        coded[name] = dequantized(parts, bits, offset)
        count += one.numel()
    # A tied output layer may be written again; it costs nothing that is asked here.
    if (rest := set(stored) - {"lm_head.weight"}):
        raise SystemExit(f"error: {folder} holds {sorted(rest)} besides")
    return coded, {part: all_bits / count for part, all_bits in spent.items()}


def check_layers(folder, coded):
    """Refuses weights that are not those of the layers which GPTQModel loads from its file."""
    from gptqmodel import BACKEND, GPTQModel

    model = GPTQModel.load(str(folder), device="cpu", backend=BACKEND.GPTQ_TORCH).model
    kind = model.get_input_embeddings().weight.dtype
    for name in (name for name in coded if LINEAR.fullmatch(name)):
        weight = coded[name]
        with torch.no_grad():
            answer = model.get_submodule(theirs(name).removesuffix(".weight"))(torch.eye(weight.shape[1], dtype=kind)).float().T
        if (answer - weight).abs().max() > 0.01 * weight.abs().max():
            raise SystemExit(f"error: {name} is not what GPTQModel loads")


def check_errors(weights, coded, bits):
    """Refuses weights further from the model's than twice what plain rounding in the same groups leaves: a zero point that is off
    by one leaves more. AutoRound's own loader has no layer for its integers on CPUs."""
    for name in (name for name in coded if LINEAR.fullmatch(name)):
        weight = weights[name].float()
        plain = torch.cat([nearest(group, bits) for group in weight.split(GROUP, dim=1)], dim=1)
        if (coded[name] - weight).square().sum() > 2 * (plain - weight).square().sum():
            raise SystemExit(f"error: {name} is far from what it was")


def nearest(group, bits):
    """Symmetric integers of a group of inputs, rounded to the nearest."""
    step = group.abs().amax(1, keepdim=True) / (1 << bits - 1)
    return (group / step).round().clamp(-(1 << bits - 1), (1 << bits - 1) - 1) * step


def made(folder, model, config, weights, windows, peer, bits):
    """What the peer makes of the model, as one line; made once, whole or not at all."""
    said = folder / "said.json"
    if not said.exists():
        half = folder.with_name("half-" + folder.name)
        shutil.rmtree(half, ignore_errors=True)
        write_source(config, weights, half / "source")
        PEERS[peer](half / "source", windows, bits, half / "quantized")
        # Some peers put their files into a folder of that folder.
        found = next((half / "quantized").rglob("config.json")).parent
        coded, spent = read(found, weights, bits)
        if peer == "gptqmodel":
            check_layers(found, coded)
        else:
            check_errors(weights, coded, bits)
        save_file(coded, half / "coded.safetensors")
        line = {"quantized": str(folder / "coded.safetensors"), "original": str(model), "bits": sum(spent.values()), "parts": spent}
        (half / "said.json").write_text(json.dumps(line))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(half, folder)
    return said.read_text()


def main():
    # Peers talk on standard output, too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    cache, model, config, text, peers = ASKED
    weights = tensors(config)
    tokens = torch.frombuffer(bytearray(text.read_bytes()), dtype=torch.uint8).long()
    length = json.loads(config.read_text())["max_position_embeddings"]
    windows = tokens[: len(tokens) // length * length].reshape(-1, length)
    digest = hashlib.sha256(text.read_bytes()).hexdigest()[:12]
    for word, peer, bits in peers:
        print(made(cache / config.stem / f"{word}-{digest}", model, config, weights, windows, peer, bits), file=answers, flush=True)


main()
