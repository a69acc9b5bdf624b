"""Errors for the person who wrote the kernel: construct, file and line, what is wrong, what to do."""

from __future__ import annotations


class AmdwarpError(Exception):
    """Base of every error this package raises on purpose.

    Args:
        problem: what is wrong, in the words of the kernel's author.
        remedy: what to change, or "" where nothing can be said.
        construct: the construct it concerns, e.g. ``warp_pipeline_stage 'load'``.
        where: ``file:line`` of the kernel source, or None.
        pass_name: the lowering pass that found it, or None.
    """

    def __init__(
        self,
        problem: str,
        *,
        remedy: str = "",
        construct: str = "",
        where: str | None = None,
        pass_name: str | None = None,
    ) -> None:
        self.problem = problem
        self.remedy = remedy
        self.construct = construct
        self.where = where
        self.pass_name = pass_name
        super().__init__(self._text())

    def locate(self, where: str | None) -> None:
        """Say afterwards where in the kernel it happened."""
        self.where = where
        self.args = (self._text(), *self.args[1:])

    def _text(self) -> str:
        head = " ".join(part for part in (self.construct, f"({self.where})" if self.where else "") if part)
        text = f"{head}: {self.problem}" if head else self.problem
        if self.remedy:
            text += f"; {self.remedy}"
        if self.pass_name:
            text += f" [{self.pass_name}]"
        return text


class UsageError(AmdwarpError, ValueError):
    """A wrong argument: shape, dtype, stride, device, flag, unknown arch."""


class UnsupportedTritonError(AmdwarpError, RuntimeError):
    """No Triton, or one of a version this package was not tried with."""


class LoweringError(AmdwarpError):
    """A kernel that a pass refuses."""


class ProtocolError(LoweringError):
    """A stage pipeline whose LDS dependences its waits and barriers do not cover."""


class EmulatorError(AmdwarpError):
    """Program text the emulator does not know, or an execution that cannot go on."""
