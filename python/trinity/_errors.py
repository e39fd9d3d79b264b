"""What Trinity refuses or fails at, in the sentences of the command."""

from __future__ import annotations

from typing import Self


class Error(Exception):
    """What Trinity refuses or fails at.

    ``message`` says what is wrong and where, ``help`` what to do about it
    (``None`` where that is not known); ``str(error)`` has both.
    """

    def __init__(self, text: str, message: str | None = None, help: str | None = None) -> None:
        super().__init__(text)
        self.message = text if message is None else message
        self.help = help

    @classmethod
    def advised(cls, message: str, help: str) -> Self:
        """What is wrong, and what to do about it."""
        return cls(f"{message}\nhelp: {help}", message, help)

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (str(self), self.message, self.help))


class InputError(Error, ValueError):
    """What was given is wrong and can be mended (the command exits with 2)."""


class RunError(Error, RuntimeError):
    """The input was fine, the run was not (the command exits with 1)."""
