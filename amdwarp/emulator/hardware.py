"""Hardware registers that s_getreg and s_setreg name."""

from __future__ import annotations

import re

_HWREG = re.compile(r"hwreg\((\w+)(?:, ?(\d+), ?(\d+))?\)$")
#: Numbers of the registers in gfx9's encoding.
NUMBERS = {
    "HW_REG_MODE": 1,
    "HW_REG_WAVE_MODE": 1,
    "HW_REG_STATUS": 2,
    "HW_REG_TRAPSTS": 3,
    "HW_REG_HW_ID": 4,
    "HW_REG_XCC_ID": 20,
}


def register_field(text: str) -> tuple[int, int, int] | None:
    """(register number, lowest bit, width) of ``hwreg(name, offset, size)``, or None where it is not known."""
    match = _HWREG.match(text)
    if match is None:
        return None
    number = int(match[1], 0) if match[1][0].isdigit() else NUMBERS.get(match[1])
    if number is None:
        return None
    return number, int(match[2] or 0), int(match[3] or 32)


def mode_field(text: str) -> tuple[int, int] | None:
    """(lowest bit, width) of the field of MODE that an operand names, or None for another register."""
    field = register_field(text)
    return field[1:] if field is not None and field[0] == NUMBERS["HW_REG_MODE"] else None
