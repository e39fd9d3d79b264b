"""Text as bytes: batches by step and replica, held-out windows by kind, choices between continuations.

A file that `cargo xtask text` makes is kinds one after the other, each opened by
a line ``\\x1e KIND``; any other file is one kind. The last part of each kind is held out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trinity import InputError

Bytes = npt.NDArray[np.uint8]
MARK = b"\x1e "
#: One part in so many is held out, from the end of each kind, and at most so many bytes.
HELD_OUT = 20
MOST_HELD_OUT = 1 << 19
#: Bytes of a choice's context and of its continuations, and how many there are to choose from.
CONTEXT, CONTINUATION, ALTERNATIVES = 96, 32, 4


@dataclass
class Corpus:
    """Bytes to train on, and bytes held out by kind."""

    train: Bytes
    held_out: dict[str, Bytes]
    sha256: str

    def batch(self, seed: int, step: int, replica: int, sequences: int, context: int) -> Bytes:
        """Sequences of one more byte than the context; the same for the same numbers, on any machine."""
        random = np.random.Generator(np.random.Philox(key=[seed, (step << 16) + replica]))
        starts = random.integers(0, len(self.train) - context - 1, size=sequences)
        return np.stack([self.train[at : at + context + 1] for at in starts])

    def windows(self, kind: str, count: int, context: int) -> Bytes:
        """Windows of a kind, side by side or evenly spread."""
        data = self.held_out[kind]
        room = (len(data) - 1) // context
        if room < 1:
            raise InputError(f"the held-out text of kind `{kind}` has {len(data)} bytes, and a window takes {context + 1}")
        chosen = np.linspace(0, room - 1, min(count, room)).astype(int) * context
        return np.stack([data[at : at + context + 1] for at in chosen])

    def choices(self, kind: str, count: int) -> tuple[Bytes, npt.NDArray[np.int64]]:
        """Contexts with continuations, the true one at a known place: bytes and places."""
        data = self.held_out[kind]
        random = np.random.Generator(np.random.Philox(key=[41, len(data)]))
        last = len(data) - CONTEXT - CONTINUATION
        if last < 1:
            return np.zeros((0, ALTERNATIVES, CONTEXT + CONTINUATION), np.uint8), np.zeros(0, np.int64)
        found = np.empty((count, ALTERNATIVES, CONTEXT + CONTINUATION), np.uint8)
        truth = random.integers(0, ALTERNATIVES, size=count)
        for at in range(count):
            start = int(random.integers(0, last))
            found[at, :, :CONTEXT] = data[start : start + CONTEXT]
            for place in range(ALTERNATIVES):
                # Others are what follows elsewhere in the same kind of text.
                other = start if place == truth[at] else int(random.integers(0, last))
                found[at, place, CONTEXT:] = data[other + CONTEXT : other + CONTEXT + CONTINUATION]
        return found, truth


def _kinds(data: bytes) -> dict[str, bytes]:
    if not data.startswith(MARK):
        return {"text": data}
    found = {}
    for part in data[len(MARK) :].split(b"\n" + MARK):
        name, _, body = part.partition(b"\n")
        found[name.decode("ascii", "replace")] = body
    return found


def load(path: str | Path, context: int) -> Corpus:
    """The text of a file, cut into what is learned from and what is held out."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the text {path}: {error.strerror}\nhelp: make one with `cargo xtask text`, or name any text file as text.file") from None
    train, held_out = [], {}
    for name, body in _kinds(data).items():
        part = min(len(body) // HELD_OUT, MOST_HELD_OUT)
        train.append(np.frombuffer(body[: len(body) - part], np.uint8))
        held_out[name] = np.frombuffer(body[len(body) - part :], np.uint8)
    whole = np.concatenate(train)
    if len(whole) < 2 * context:
        raise InputError(f"{path} has {len(whole)} bytes to train on: too few for a context of {context}")
    return Corpus(whole, held_out, hashlib.sha256(data).hexdigest())
