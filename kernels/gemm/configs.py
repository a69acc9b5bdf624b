"""Schedules of the GEMM and how its operands are accessed. Plain Python: no Triton, no device."""

from __future__ import annotations

from dataclasses import dataclass

from amdwarp.errors import UsageError
from amdwarp.target import Target, get_target

from .layouts import LANES, LdsLayout, OperandTile, conflict_factor, derive

#: Kinds of operands: Triton's names of the element types, and their bits.
OPERANDS: dict[str, tuple[tuple[str, ...], int]] = {
    "f16": (("fp16", "bf16"), 16),
    "fp8": (("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16"), 8),
    "i8": (("i8",), 8),
    "mxfp4": (("mxfp4",), 4),
}
MFMA_SHAPES: dict[str, dict[str, tuple[tuple[int, int, int], ...]]] = {
    "gfx942": {
        "f16": ((16, 16, 16), (32, 32, 8)),
        "fp8": ((16, 16, 32), (32, 32, 16)),
        "i8": ((16, 16, 32), (32, 32, 16)),
    },
    "gfx950": {
        "f16": ((16, 16, 32), (32, 32, 16)),
        "fp8": ((16, 16, 128), (32, 32, 64)),
        "i8": ((16, 16, 64), (32, 32, 32)),
        "mxfp4": ((32, 32, 64),),
    },
}


@dataclass(frozen=True)
class Access:
    """How the kernel reaches its operands; every field is a compile-time constant of the kernel.

    Attributes:
        b_k_contiguous: B is stored with K contiguous (a transposed view); otherwise with N contiguous.
        a_direct, b_direct: rows start 16-byte aligned and end on a 16-byte piece, so that loads go straight to LDS;
            otherwise they pass through registers, element by element.
        c_vector: the same of output rows, which are then stored four elements at a time.
        vector: operand elements in 16 bytes.
    """

    b_k_contiguous: bool
    a_direct: bool = True
    b_direct: bool = True
    c_vector: bool = True
    vector: int = 8

    @property
    def groups(self) -> int:
        """Operands that go straight to LDS, each in a group of copies of its own."""
        return int(self.a_direct) + int(self.b_direct)

    # Extents and strides reach the kernel divided by these: a product with 8 (16 for elements of a byte) tells the
    # compiler what no attribute of a launch can, that 8 divides them.
    @property
    def a_unit(self) -> int:
        """Divisor of A's row stride."""
        return self.vector if self.a_direct else 1

    @property
    def b_unit(self) -> int:
        """Divisor of B's row stride."""
        return self.vector if self.b_direct else 1

    @property
    def c_unit(self) -> int:
        """Divisor of C's row stride."""
        return 8 if self.c_vector else 1

    @property
    def k_unit(self) -> int:
        """Divisor of K."""
        return self.vector if self.a_direct or (self.b_direct and self.b_k_contiguous) else 1

    @property
    def n_unit(self) -> int:
        """Divisor of N."""
        return 8 if self.c_vector or (self.b_direct and not self.b_k_contiguous) else 1


@dataclass(frozen=True)
class GemmSchedule:
    """One schedule of the GEMM.

    Attributes:
        tile_m, tile_n, tile_k: output tile of a workgroup and its step along K, elements.
        woven: True has four waves weave their loads between their own MFMAs; False has two groups of four waves run one
            stage apart.
        quarters: True cuts the tile into four quarters, of which two share a memory and an MFMA stage; False runs one
            pair of stages a K step.
        ring: K steps that LDS holds at once.
        waves_m, waves_n: waves of the workgroup along M and N.
        mfma: MFMA shape (m, n, k).
        group_m: tile rows that neighbouring workgroups share before they move on along N.
        xcds: dies that the hardware deals workgroups to in turn.
        arch: the GPU it is made for.
        operand: a key of ``OPERANDS``, the kind of elements it multiplies.
    """

    tile_m: int = 256
    tile_n: int = 256
    tile_k: int = 64
    woven: bool = False
    quarters: bool = True
    ring: int = 2
    waves_m: int = 2
    waves_n: int = 4
    mfma: tuple[int, int, int] = (32, 32, 16)
    group_m: int = 4
    xcds: int = 8
    arch: str = "gfx950"
    operand: str = "f16"

    @property
    def element_bytes(self) -> int:
        """Bytes of an element as it stands in memory and LDS; of a pair of fp4, 1."""
        return max(1, OPERANDS[self.operand][1] // 8)

    @property
    def row_elements(self) -> int:
        """Elements in memory (of fp4: pairs) of one row in a K step."""
        return self.tile_k // 2 if self.operand == "mxfp4" else self.tile_k

    @property
    def vector(self) -> int:
        """Operand elements in the 16 bytes that one lane moves or reads."""
        return 16 // self.element_bytes

    @property
    def mfma_version(self) -> int:
        """Triton's number for the MFMA generation: 3 for CDNA3, 4 for CDNA4."""
        return 3 if self.arch == "gfx942" else 4

    @property
    def num_warps(self) -> int:
        """Waves of one workgroup."""
        return self.waves_m * self.waves_n

    @property
    def part_m(self) -> int:
        """Rows of A that one LDS tile holds."""
        return self.tile_m // 2 if self.quarters else self.tile_m

    @property
    def part_n(self) -> int:
        """Columns of B that one LDS tile holds."""
        return self.tile_n // 2 if self.quarters else self.tile_n

    @property
    def b_orders(self) -> tuple[bool, ...]:
        """Whether K is B's contiguous dimension: every order that it takes."""
        return (True, False) if self.element_bytes == 2 else (True,)

    @property
    def accumulator_registers(self) -> int:
        """Registers a lane that the fp32 output tile takes."""
        return self.tile_m * self.tile_n // (self.num_warps * LANES)

    def a_layout(self) -> LdsLayout:
        """LDS layout of one A tile."""
        return derive(OperandTile(self.part_m, self.row_elements, True, self.mfma[0], self.element_bytes))

    def b_layout(self, k_contiguous: bool) -> LdsLayout:
        """LDS layout of one B tile."""
        return derive(OperandTile(self.part_n, self.row_elements, k_contiguous, self.mfma[1], self.element_bytes))

    def lds_bytes(self, b_k_contiguous: bool = True) -> int:
        """Bytes of LDS that the ring takes, padding included."""
        if self.arch == "gfx942":
            return self.ring * (self.tile_m + self.tile_n) * self.tile_k * self.element_bytes
        parts = 2 if self.quarters else 1
        layouts = (self.a_layout(), self.b_layout(b_k_contiguous))
        return parts * sum(layout.size_bytes(self.ring) for layout in layouts)

    def constraints(
        self, target: str | Target = "gfx950", access: Access | None = None, dtype: str | None = None
    ) -> list[str]:
        """What makes this schedule illegal on a target, one sentence each; empty where it is legal.

        Args:
            target: arch name or record.
            access: the operands it would run on; None asks about the schedule alone.
            dtype: their type by Triton's name; None likewise.
        """
        record = get_target(target)
        if record.arch != self.arch:
            return [f"this schedule of the GEMM is made for {self.arch}, not for {record.arch}"]
        if self.arch not in MFMA_SHAPES:
            return [f"the GEMM runs on {', '.join(MFMA_SHAPES)}, not on {self.arch}"]
        wrong = [
            f"{name} = {getattr(self, name)!r} is no int"
            for name in ("tile_m", "tile_n", "tile_k", "ring", "waves_m", "waves_n", "group_m", "xcds")
            if type(getattr(self, name)) is not int
        ]
        wrong += [
            f"{name} = {getattr(self, name)!r} is no bool"
            for name in ("woven", "quarters")
            if type(getattr(self, name)) is not bool
        ]
        if wrong:
            return wrong
        for name in ("tile_m", "tile_n", "tile_k", "waves_m", "waves_n"):
            value = getattr(self, name)
            if value < 1 or value & (value - 1):
                wrong.append(f"{name} = {value} is no power of two")
        if self.group_m < 1 or self.xcds < 1:
            wrong.append(f"group_m = {self.group_m} and xcds = {self.xcds} must be at least 1")
        if self.operand not in OPERANDS:
            return [f"operand = {self.operand!r} is none of {', '.join(OPERANDS)}"]
        shapes = MFMA_SHAPES[self.arch][self.operand]
        if self.mfma not in shapes:
            wrong.append(f"mfma = {self.mfma} is none of {shapes}")
        if self.arch == "gfx942" and not self.woven:
            wrong.append("woven = False needs wide copies to LDS, which gfx942 has not")
        if wrong:
            return wrong
        waves = 4 if self.woven else 8
        if self.num_warps != waves:
            wrong.append(f"a schedule with woven = {self.woven} has {waves} waves, not {self.num_warps}")
        if self.woven and self.quarters:
            wrong.append("woven = True takes the tile whole: quarters = False")
        for name, part, along, step in (
            ("tile_m", self.part_m, self.waves_m, self.mfma[0]),
            ("tile_n", self.part_n, self.waves_n, self.mfma[1]),
        ):
            if part < along * step:
                wrong.append(f"{name} = {getattr(self, name)} leaves waves without an MFMA of {step}")
        if self.tile_k < self.mfma[2]:
            wrong.append(f"tile_k = {self.tile_k} is less than one MFMA's {self.mfma[2]}")
        # Four quarters refill a slot piece by piece while the rest of it is read; a whole tile needs two further slots,
        # one being read by the wave group behind and one in flight. Four waves in step refill what they have just read.
        legal = (2,) if self.quarters or self.woven else (3, 4)
        if self.ring not in legal:
            wrong.append(f"ring = {self.ring}; here it must be one of {legal}")
        budget = record.vgprs * record.simds // waves
        if self.accumulator_registers > budget // 2:
            wrong.append(f"{self.accumulator_registers} accumulator registers of {budget} leave no room for operands")
        names, _ = OPERANDS[self.operand]
        if dtype is not None and dtype not in names:
            wrong.append(f"this schedule multiplies {' and '.join(names)}, not {dtype}")
        if self.element_bytes == 1 and access is not None and not access.b_k_contiguous:
            wrong.append(f"a schedule for {self.operand} operands takes only B with K contiguous, as weight.T")
        if (self.quarters or self.woven) and access is not None and not (access.a_direct and access.b_direct):
            # 64 element offsets a lane beside 128 accumulators and 64 operand registers spilled 48 registers.
            kind = (
                "an intra-wave schedule"
                if self.woven
                else "a schedule in quarters"
                if self.quarters
                else "this schedule"
            )
            wrong.append(f"{kind} takes only operands whose rows are 16-byte aligned, in whole 16-byte pieces")
        large = self.arch == "gfx942" and self.accumulator_registers > 128
        if large and access is not None and not access.b_k_contiguous:
            # with B row-major 14 of 60 loads were left unwoven
            wrong.append("a 256x256 tile on gfx942 takes only B with K contiguous")
        if wrong:
            return wrong
        lds = max(self.lds_bytes(order) for order in self.b_orders)
        if lds > record.lds_bytes:
            wrong.append(f"the ring takes {lds} bytes of LDS, {record.arch} has {record.lds_bytes}")
        return wrong or self._layout_constraints()

    def _layout_constraints(self) -> list[str]:
        """What is wrong with the derived LDS layouts; those of gfx942 are fixed, and right for its one step along K."""
        if self.arch == "gfx942":
            step = 64 // self.element_bytes
            return [] if self.tile_k == step else [f"tile_k = {self.tile_k}; on gfx942 it must be {step}"]
        try:
            layouts = [self.a_layout(), *(self.b_layout(order) for order in self.b_orders)]
            for layout in layouts:
                layout.load_layout(self.num_warps)
        except UsageError as error:
            return [str(error)]
        return [
            f"operand reads of a {layout.tile.outer}x{layout.tile.k} tile take {factor} times their LDS passes"
            for layout in layouts
            if (factor := conflict_factor(layout)) > 1
        ]

    def check(self, target: str | Target = "gfx950", access: Access | None = None, dtype: str | None = None) -> None:
        """Raise `UsageError` with the first broken constraint, if there is one."""
        wrong = self.constraints(target, access, dtype)
        if wrong:
            known = get_target(target).arch in MFMA_SHAPES
            remedy = "choose another schedule" if known else f"choose {' or '.join(MFMA_SHAPES)}"
            raise UsageError(wrong[0], remedy=remedy, construct="GemmSchedule")


SCHEDULES = {
    "inter_wave_256": GemmSchedule(),
    "inter_wave_256_fp8": GemmSchedule(tile_k=128, mfma=(32, 32, 64), operand="fp8"),
    "inter_wave_256_mxfp4": GemmSchedule(tile_k=256, mfma=(32, 32, 64), operand="mxfp4"),
    "inter_wave_256_i8": GemmSchedule(tile_k=128, mfma=(32, 32, 32), operand="i8"),
    "inter_wave_256x128": GemmSchedule(tile_n=128, waves_m=4, waves_n=2),
    "inter_wave_128": GemmSchedule(tile_m=128, tile_n=128, quarters=False, ring=4, mfma=(16, 16, 32)),
    "intra_wave": GemmSchedule(woven=True, quarters=False, waves_n=2),
    "intra_wave_gfx942": GemmSchedule(
        tile_n=128, tile_k=32, woven=True, quarters=False, waves_n=2, mfma=(16, 16, 16), arch="gfx942"
    ),
    "intra_wave_256_gfx942": GemmSchedule(
        tile_k=32, woven=True, quarters=False, waves_n=2, mfma=(16, 16, 16), arch="gfx942"
    ),
    "intra_wave_256_fp8_gfx942": GemmSchedule(
        woven=True, quarters=False, waves_n=2, mfma=(16, 16, 32), arch="gfx942", operand="fp8"
    ),
    "intra_wave_256_i8_gfx942": GemmSchedule(
        woven=True, quarters=False, waves_n=2, mfma=(32, 32, 16), arch="gfx942", operand="i8"
    ),
}


#: Clk of 64 elements of K, modelled for gfx950: ``amdwarp cycles gemm --schedule NAME``, of one or two K steps.
STEP_CLK = {"inter_wave_256": 2101, "inter_wave_256x128": 1181, "inter_wave_128": 864}


def kind_of(dtype: str) -> str:
    """The kind of operands, a key of ``OPERANDS``, that a type by Triton's name is of; "" for none."""
    return next((kind for kind, (names, _) in OPERANDS.items() if dtype in names), "")


def named(name: str, arch: str, dtype: str = "fp16") -> GemmSchedule | None:
    """The schedule of a name, or the one of its family for another arch or kind of operands; None if there is none."""
    kind = kind_of(dtype)
    names = (f"{name}_{kind}_{arch}", f"{name}_256_{kind}_{arch}", f"{name}_{kind}", f"{name}_{arch}", name)
    return next((SCHEDULES[one] for one in names if one in SCHEDULES), None)


def choose(m: int, n: int, k: int, compute_units: int = 256, arch: str = "gfx950", dtype: str = "fp16") -> GemmSchedule:
    """The default schedule of a shape.

    The 256x256 tile moves half the operand bytes a flop of the 128x128 one, and wins once its tiles fill the chip;
    until then more and smaller tiles keep more compute units busy. Of fp16 and bf16 on gfx950 the one with the fewest
    clk: rounds that a compute unit takes, by `STEP_CLK`.

    Args:
        m, n, k: extents of the product, elements.
        compute_units: compute units of the device; an MI350X or MI355X has 256.
        arch: of the device.
        dtype: of the operands, by Triton's name.

    Raises:
        UsageError: no schedule multiplies that type on that GPU.
    """
    if (kind := kind_of(dtype)) not in ("f16", ""):
        name = f"intra_wave_256_{kind}_gfx942" if arch == "gfx942" else f"inter_wave_256_{kind}"
        if name not in SCHEDULES:
            raise UsageError(f"no schedule multiplies {dtype} on {arch}", remedy="take another dtype or GPU")
        return SCHEDULES[name]
    if arch == "gfx942":
        return SCHEDULES["intra_wave_gfx942"]

    def clk(name: str) -> int:
        schedule = SCHEDULES[name]
        tiles = -(-m // schedule.tile_m) * -(-n // schedule.tile_n)
        return -(-tiles // compute_units) * STEP_CLK[name]

    return SCHEDULES[min(STEP_CLK, key=clk)]
