"""What decides about the values of a KV cache beside a prompt's tokens: the model, what an engine makes of it, adapters.

Blocks are known by hashes of these, so that those of another model are never found. Knows files and configurations;
knows nothing of blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

#: Files of weights, by their endings.
_WEIGHTS = {".safetensors", ".bin", ".pt", ".gguf", ".tri"}
#: Bytes of a weights file's beginning, and of its end, that say which it is: models are too large to be read whole.
_SAMPLE = 1 << 16
_PIECE = 1 << 20


def _blake(*parts: str | bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()


def fingerprint(model: str) -> str:
    """A hash of a model's configuration and of the beginnings and ends of its weights; of its name, where it is no file or folder."""
    path, digest = Path(model), hashlib.blake2b(digest_size=16)
    digest.update(b"folder" if path.is_dir() else b"file" if path.is_file() else model.encode())
    for own in sorted(path.iterdir()) if path.is_dir() else [path] if path.is_file() else []:
        if own.name == "config.json":
            digest.update(own.read_bytes())
        elif own.suffix in _WEIGHTS:
            size = own.stat().st_size
            digest.update(f"{own.name} {size}".encode())
            with open(own, "rb") as file:
                digest.update(file.read(_SAMPLE))
                file.seek(max(size - _SAMPLE, 0))
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


def _lasting(config: Any) -> Any:
    """A configuration without where it was read from, and by which version of transformers."""
    if isinstance(config, dict):
        return {str(key): _lasting(one) for key, one in config.items() if not str(key).startswith("_") and key != "transformers_version"}
    return config


def model_of(vllm_config: Any) -> tuple[str, str]:
    """A model's name, and a hash of what its files say: what a basis of its keys and values is held against."""
    model = vllm_config.model_config
    return named(str(model.model), str(getattr(getattr(model, "hf_config", None), "_commit_hash", None)))


def named(model: str, commit: str) -> tuple[str, str]:
    """The same of a model by where it is, or its name on a hub and the commit there."""
    path = Path(model)
    return path.resolve().name if path.exists() else model, _blake(fingerprint(model), commit)


def served(vllm_config: Any) -> dict[str, str]:
    """What an engine makes of a model: options may change what its files say, and so its keys and values."""
    model, load = vllm_config.model_config, getattr(vllm_config, "load_config", None)
    own: Any = getattr(model, "hf_config", None)
    config = json.dumps(_lasting(own.to_dict()), sort_keys=True, default=str) if hasattr(own, "to_dict") else ""
    return {
        "model": fingerprint(model.model),
        "config": _blake(config),
        # Of a hub's model: a name may stand for other weights tomorrow.
        "commit": str(getattr(own, "_commit_hash", None)),
        "quantization": str(getattr(model, "quantization", None)),
        "revision": str(getattr(model, "revision", None)),
        "weights": str(getattr(load, "load_format", None)),
        "of": str(model.dtype),
    }


class Adapters:
    """What adapters are: a hash of the bytes of each one's files, as they were when it was asked for first.

    An engine reads an adapter once, and again where it had no room for it: which bytes it has of one whose files
    changed meanwhile is not known. Such a one has no identity until the engine is started again, and ``say`` is told.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        #: By number and path, what the files looked like, and the hash; no hash where they changed.
        self._known: dict[tuple[int, str], tuple[tuple[Any, ...], str | None]] = {}
        self._missed: set[str] = set()

    def identity(self, adapter: Any) -> str | None:
        """A text that names the adapter of a request by its content; nothing where blocks of it are not to be kept."""
        name, path = str(adapter.lora_name), str(adapter.lora_path)
        place = (int(adapter.lora_int_id), path)
        looks = _looks(path)
        if place not in self._known:
            content = _content(path) if looks else None
            if content is None:
                if path not in self._missed:
                    self._say(f"blocks of adapter {name} are not kept: {path} is no folder with an adapter on this machine")
                self._missed.add(path)
                return None
            self._known[place] = looks, content
        before, content = self._known[place]
        if content is not None and before != looks:
            self._say(f"blocks of adapter {name} are not kept any more: {path} changed while this engine runs, and which of both it reads is not known")
            content = None
        self._known[place] = before, content
        return None if content is None else f"lora {content}"


def _adapter_folder(path: str) -> Path | None:
    """Where an adapter's files are; of a hub's name, where this machine has it."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute():
        return None
    try:
        from huggingface_hub import snapshot_download  # type: ignore[import-not-found, unused-ignore]

        return Path(snapshot_download(path, local_files_only=True))
    except (ImportError, OSError, ValueError):
        return None


def _adapter_files(path: str) -> list[Path]:
    folder = _adapter_folder(path)
    if folder is None:
        return []
    found = sorted(one for one in folder.iterdir() if one.suffix in _WEIGHTS)
    config = folder / "adapter_config.json"
    return [*found, config] if found and config.is_file() else []


def _looks(path: str) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of an adapter's files; nothing where they are not there."""
    with contextlib.suppress(OSError):
        return tuple((file.name, stat.st_size, stat.st_mtime_ns) for file in _adapter_files(path) for stat in (file.stat(),))
    return ()


def _content(path: str) -> str | None:
    """A hash of all bytes: adapters are small, and one that is trained on differs anywhere."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        for file in _adapter_files(path):
            digest.update(f"{file.name} {file.stat().st_size} ".encode())
            with open(file, "rb") as source:
                while piece := source.read(_PIECE):
                    digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()
