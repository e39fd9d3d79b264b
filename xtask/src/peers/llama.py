"""llama.cpp's own quantizers on a model, for `cargo xtask peers weights`.

    llama.py CACHE MODEL TEXT TYPE

Builds `llama-imatrix` and `llama-quantize` once from the source that the package `llama-cpp-python` carries, writes the
model, a GGUF, as f16 with widths that are multiples of 256 (its quantizers fall back to coarser ones elsewhere), or, where it
is reference.safetensors (`reference.py`), as a GGUF of bf16 as it stands, has an importance
matrix made of TEXT, quantizes to TYPE with embeddings kept at f16, and prints JSON: the files, and the bits of a linear
weight. Only the share of a tensor's bytes that belongs to weights of the model is counted.
"""
import hashlib
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

import gguf
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from models import download  # noqa: E402

SOURCE = ("llama-cpp-python", "0.3.36", "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e")
TOOLS = ["llama-imatrix", "llama-quantize"]
BLOCK = 256
LINEAR = re.compile(r"blk\.\d+\.(attn_(q|k|v|output)|ffn_(gate|up|down))\.weight")


def tools(cache):
    """The programs, built where they are not."""
    folder = cache / "bin"
    if all((folder / name).exists() for name in TOOLS):
        return folder
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        scratch = pathlib.Path(scratch)
        with tarfile.open(download(scratch, "source", *SOURCE)) as archive:
            archive.extractall(scratch, filter="data")
        source = next(scratch.glob("*/vendor/llama.cpp"))
        options = ["CMAKE_BUILD_TYPE=Release", "LLAMA_CURL=OFF", "LLAMA_OPENSSL=OFF", "LLAMA_BUILD_TESTS=OFF",
                   "LLAMA_BUILD_EXAMPLES=OFF", "LLAMA_BUILD_SERVER=OFF", "BUILD_SHARED_LIBS=OFF"]
        run("cmake", "-S", source, "-B", scratch / "build", *[f"-D{option}" for option in options])
        run("cmake", "--build", scratch / "build", "-j", str(os.cpu_count()), "--target", *TOOLS)
        folder.mkdir(parents=True, exist_ok=True)
        for name in TOOLS:
            os.replace(scratch / "build/bin" / name, folder / name)
    return folder


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdout=sys.stderr)


def up(size):
    return -(-size // BLOCK) * BLOCK


def padded(source, target):
    """Writes a Llama of widths that are multiples of 256; channels and heads that were not there are zero."""
    reader = gguf.GGUFReader(source)
    field = lambda name: reader.fields[name].contents()
    if (arch := field("general.architecture")) != "llama":
        raise SystemExit(f"error: {arch} is not widened; only llama is")
    hidden, heads = field("llama.embedding_length"), field("llama.attention.head_count")
    groups = field("llama.attention.head_count_kv")
    head = hidden // heads
    wide = up(hidden)
    if wide % head or wide // head * groups % heads or field("llama.feed_forward_length") % BLOCK:
        raise SystemExit("error: heads do not fit a width that is a multiple of 256")
    kept = hidden / wide
    changed = {
        "llama.embedding_length": wide,
        "llama.attention.head_count": wide // head,
        "llama.attention.head_count_kv": wide // head * groups // heads,
        # The mean is over more channels.
        "llama.attention.layer_norm_rms_epsilon": field("llama.attention.layer_norm_rms_epsilon") * kept,
    }
    sizes = {hidden: wide, heads * head: wide, groups * head: wide // head * groups // heads * head}
    writer = gguf.GGUFWriter(target, arch)
    for name, own in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        kind, value = own.types[0], changed.get(name, own.contents())
        writer.add_key_value(name, value, kind, own.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        vocabulary = tensor.name in ("token_embd.weight", "output.weight")
        shape = [size if vocabulary and at == 0 else sizes.get(size, size) for at, size in enumerate(values.shape)]
        out = numpy.zeros(shape, numpy.float32)
        out[tuple(slice(size) for size in values.shape)] = values
        if values.ndim == 1:
            writer.add_tensor(tensor.name, out * math.sqrt(kept))
        else:
            writer.add_tensor(tensor.name, out.astype(numpy.float16))
    written(writer)


def written(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def converted(source, target):
    """Writes the reference model, its configuration and tokenizer beside it, as llama.cpp's converter has a Llama."""
    config = json.loads(source.with_suffix(".json").read_text())
    said = json.loads(source.with_name("tokenizer.json").read_text())["model"]
    writer = gguf.GGUFWriter(target, "llama")
    head = config["hidden_size"] // config["num_attention_heads"]
    for add, key in (
        (writer.add_context_length, "max_position_embeddings"), (writer.add_embedding_length, "hidden_size"),
        (writer.add_block_count, "num_hidden_layers"), (writer.add_feed_forward_length, "intermediate_size"),
        (writer.add_head_count, "num_attention_heads"), (writer.add_head_count_kv, "num_key_value_heads"),
        (writer.add_rope_freq_base, "rope_theta"), (writer.add_layer_norm_rms_eps, "rms_norm_eps"), (writer.add_vocab_size, "vocab_size"),
    ):
        add(config[key])
    writer.add_rope_dimension_count(head)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    tokens = sorted(said["vocab"], key=said["vocab"].get)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens))
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in said["merges"]])
    writer.add_add_bos_token(False)
    raw = source.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    for name, entry in json.loads(raw[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        start, end = entry["data_offsets"]
        words = numpy.frombuffer(raw, numpy.uint16, (end - start) // 2, 8 + size + start)
        values = (words.astype(numpy.uint32) << 16).view(numpy.float32).reshape(entry["shape"])
        if name.endswith((".q_proj.weight", ".k_proj.weight")):
            # The two channels of a rotary pair side by side.
            values = values.reshape(-1, 2, head // 2, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
        if values.ndim == 1:
            writer.add_tensor(converted_name(name), values)
        else:
            words = (values.view(numpy.uint32) >> 16).astype(numpy.uint16)
            writer.add_tensor(converted_name(name), words.view(numpy.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    written(writer)


def converted_name(name):
    """The name of a tensor in a GGUF."""
    parts = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
             "up_proj": "ffn_up", "down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    whole = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
    if name in whole:
        return whole[name]
    _, layer, part, _ = name.split(".")
    return f"blk.{layer}.{parts[part]}.weight"


def bits(source, quantized):
    """Bits of a linear weight, by the share of each tensor that belongs to the model."""
    real = {tensor.name: int(tensor.n_elements) for tensor in gguf.GGUFReader(source).tensors}
    spent = weights = 0
    for tensor in gguf.GGUFReader(quantized).tensors:
        if LINEAR.fullmatch(tensor.name):
            spent += 8 * int(tensor.n_bytes) * real[tensor.name] / int(tensor.n_elements)
            weights += real[tensor.name]
    return spent / weights


def made(path, make):
    """A file that is there, or is made now; whole or not at all."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name("half-" + path.name)
        make(half)
        os.replace(half, path)
    return path


def main():
    cache, model, text, kind = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]
    cache.mkdir(parents=True, exist_ok=True)
    folder, programs = cache / model.stem, tools(cache)
    if model.suffix == ".gguf":
        wide, source = made(folder / "f16.gguf", lambda half: padded(model, half)), model
    else:
        wide = source = made(folder / "bf16.gguf", lambda half: converted(model, half))
    said = hashlib.sha256(text.read_bytes()).hexdigest()[:12]
    matrix = made(folder / f"imatrix-{said}.gguf", lambda half: run(
        programs / "llama-imatrix", "-m", wide, "-f", text, "-o", half, "-c", "512", "--no-ppl"))
    quantized = made(folder / f"{kind}-{said}.gguf", lambda half: run(
        programs / "llama-quantize", "--imatrix", matrix, "--token-embedding-type", "f16", "--output-tensor-type", "f16",
        wide, half, kind))
    print(json.dumps({"quantized": str(quantized), "original": str(wide), "bits": bits(source, quantized)}))


main()
