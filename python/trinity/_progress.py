"""Progress of long work: a tqdm bar where tqdm is installed and somebody watches, else a line now and then."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

Report = Callable[[str, int | None, int | None], None]

#: Seconds between lines where no bar can be drawn, as the command has them.
LINE_EVERY_S = 30.0


class Bar:
    """Shows what the extension module reports.

    ``progress`` is ``None`` (a bar on a terminal, for work that takes more than
    a second; where stderr is none, such as a log, a line twice a minute), ``True``
    (a bar anyway), ``False`` (nothing), or a function that is called with what is
    done, how much of it, and how much there is (``None`` where nobody knows).
    """

    def __init__(self, progress: bool | Report | None) -> None:
        self._bar: Any = None
        self._what: str | None = None
        self._began = self._said = time.monotonic()
        self.report: Report | None = None
        if callable(progress):
            self.report = progress
        elif progress or (progress is None and sys.stderr is not None):
            self._eager = bool(progress)
            self.report = self._draw if progress or sys.stderr.isatty() else self._line

    def _line(self, what: str, done: int | None, total: int | None) -> None:
        if done is None:
            print(what, file=sys.stderr)
            return
        now = time.monotonic()
        if self._what != what:
            self._what, self._began, self._said = what, now, now
        if now - self._said >= LINE_EVERY_S:
            self._said = now
            far = f"{100 * done / total:.0f} %" if total else str(done)
            print(f"{what}: {far}, {now - self._began:.0f} s", file=sys.stderr, flush=True)

    def _draw(self, what: str, done: int | None, total: int | None) -> None:
        if done is None:
            print(what, file=sys.stderr)
            return
        try:
            tqdm: Any = importlib.import_module("tqdm.auto").tqdm
        except ImportError:
            self.report = None
            return
        if self._what != what:
            self.close()
            self._what = what
            delay = 0.0 if self._eager else 1.0
            self._bar = tqdm(total=total, desc=what, delay=delay, leave=False, unit_scale=True)
        self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None
            self._what = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
