"""From shapes, strides and addresses to a launch: every check of the GEMM, in plain Python without Triton."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from amdwarp.errors import UsageError
from amdwarp.target import Target, get_target

from .configs import OPERANDS, SCHEDULES, Access, GemmSchedule, choose, named
from .tasks import TasksSchedule
from .ws_schedule import TASKS

#: Element types by Triton's name, and bytes of what stands in memory: of ``mxfp4`` pairs.
DTYPES = {name: max(1, bits // 8) for names, bits in OPERANDS.values() for name in names}
#: Those that a product may be written in, and their bytes.
OUTPUTS = {"fp16": 2, "bf16": 2, "fp32": 4, "i32": 4}
LOAD_BYTES = 16  # what one lane moves
# Buffer instructions take 32-bit byte offsets and Triton's descriptors end here; the tile's origin is a 64-bit address.
OFFSET_LIMIT = 0x7FFFFFFE
# Kernel arguments are 32-bit and are rounded up to whole tiles in 32 bits.
EXTENT_LIMIT = 2**31 - 1024


@dataclass(frozen=True)
class Matrix:
    """What the plan must know of a matrix in memory.

    Attributes:
        rows, columns: extents, elements.
        row_stride, column_stride: elements between neighbours.
        address: of element (0, 0), bytes; only its alignment matters.
        element_bytes: of one element.
    """

    rows: int
    columns: int
    row_stride: int
    column_stride: int
    address: int = 0
    element_bytes: int = 2

    @property
    def vector(self) -> int:
        """Elements in the 16 bytes that one lane moves."""
        return LOAD_BYTES // self.element_bytes

    def span(self) -> tuple[int, int]:
        """First byte and one past the last byte that the matrix can touch."""
        last = (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride
        return self.address, self.address + (last + 1) * self.element_bytes


@dataclass(frozen=True)
class GemmPlan:
    """One launch.

    Attributes:
        kernel: name of the kernel function.
        schedule, access: its compile-time constants.
        dtype: of the operands, by Triton's name.
        out_dtype: of the output.
        arguments: the scalar arguments by name, in order, after the pointers.
        hints: pointer name -> what is known of it, as ``amdwarp.compile`` takes ``attrs``.
        grid: workgroups.
    """

    kernel: str
    schedule: GemmSchedule
    access: Access
    dtype: str
    out_dtype: str
    arguments: dict[str, int]
    hints: dict[str, str]
    grid: tuple[int]

    @property
    def constexprs(self) -> dict[str, Any]:
        """Parameter name -> compile-time value."""
        return {"S": self.schedule, "ACCESS": self.access}

    @property
    def signature(self) -> dict[str, str]:
        """Parameter name -> type, of everything that is not a compile-time constant."""
        kind = "u8" if self.dtype == "mxfp4" else self.dtype
        pointers = dict.fromkeys(("a_ptr", "b_ptr"), f"*{kind}") | {"c_ptr": f"*{self.out_dtype}"}
        if self.dtype == "mxfp4":
            pointers |= dict.fromkeys(("scale_a_ptr", "scale_b_ptr"), "*u8")
        return pointers | dict.fromkeys(self.arguments, "i32")

    @property
    def options(self) -> dict[str, Any]:
        """Backend options."""
        options: dict[str, Any] = {"num_warps": self.schedule.num_warps, "enable_fp_fusion": True}
        if not self.schedule.woven:
            # Two waves share a SIMD: without accumulation registers all 256 of one are ordinary, and none is copied.
            options["llvm_fn_attrs"] = (("amdgpu-agpr-alloc", "0,0"),)
        return options

    def function(self) -> Any:
        """The kernel itself; imports Triton.

        Raises:
            UnsupportedTritonError: no Triton, or one that these kernels do not compile with.
        """
        from amdwarp.lowering.bridge import require_triton_for

        require_triton_for("the GEMM")
        if isinstance(self.schedule, TasksSchedule):
            return getattr(import_module(f".{self.schedule.module}", __package__), self.kernel)
        form = "intra_wave" if self.schedule.woven else "inter_wave"
        form += "_mx" if self.schedule.operand == "mxfp4" else ""
        return getattr(import_module(f".{form}_{self.schedule.arch}", __package__), self.kernel)


def plan(
    a: Matrix,
    b: Matrix,
    c: Matrix,
    dtype: str,
    schedule: str | GemmSchedule | None = None,
    *,
    out_dtype: str | None = None,
    target: str | Target = "gfx950",
    compute_units: int = 256,
) -> GemmPlan:
    """Check a product and choose how to launch it.

    Args:
        a: (M, K), row-major: unit column stride.
        b: (K, N), in either order.
        c: (M, N), row-major.
        dtype: of A and B, by Triton's name.
        schedule: a name in ``configs.SCHEDULES``, a schedule, or None or ``"inter_wave"`` for the default of the shape.
        out_dtype: of C; None is that of 16-bit operands, ``bf16`` of fp8 ones and ``i32`` of int8 ones.
        target: arch name or record.
        compute_units: of the device, for the default schedule.

    Raises:
        UsageError: shapes, strides, sizes or a schedule that the kernel cannot take; nothing is launched then.
    """
    if dtype not in DTYPES:
        raise _error(f"dtype {dtype} is not supported", f"convert to one of {', '.join(DTYPES)}")
    out_dtype = out_dtype or _default_output(dtype)
    _check_types(a, b, c, dtype, out_dtype)
    m, n, k = _extents(a, b, c)
    lda = _row_stride("a", a, "copy a to row-major order")
    b_k_contiguous, ldb = _b_order(b)
    ldc = _row_stride("out", c, "pass a contiguous out, or none")
    if m > 1 and ldc < n:
        raise _error(f"out has rows of {n} elements only {ldc} apart, so they overlap", "pass a contiguous out")
    _refuse_overlap(a, b, c)
    whole_k, whole_n = k % a.vector == 0, n % b.vector == 0
    access = Access(
        b_k_contiguous=b_k_contiguous,
        a_direct=whole_k and _aligned(lda, a),
        b_direct=(whole_k if b_k_contiguous else whole_n) and _aligned(ldb, b),
        c_vector=n % 8 == 0 and ldc % 8 == 0 and c.address % LOAD_BYTES == 0,
        vector=a.vector,
    )
    chosen = _schedule(schedule, (m, n, k), access, dtype, target, compute_units)
    sizes = (a.element_bytes, b.element_bytes, c.element_bytes)
    _check_offsets(chosen, (m, n, k), (lda, ldb, ldc), sizes, b_k_contiguous)
    arguments = {
        "m": m,
        "n_units": n // access.n_unit,
        "k_units": k // access.k_unit,
        "lda_units": lda // access.a_unit,
        "ldb_units": ldb // access.b_unit,
        "ldc_units": ldc // access.c_unit,
    }
    hints = {name: _hint(matrix) for name, matrix in (("a_ptr", a), ("b_ptr", b), ("c_ptr", c))}
    if dtype == "mxfp4":
        hints |= dict.fromkeys(("scale_a_ptr", "scale_b_ptr"), "D")
    tiles = -(-m // chosen.tile_m) * -(-n // chosen.tile_n)
    if tiles > EXTENT_LIMIT:
        raise _error(f"{tiles} output tiles are more than a grid holds", "split the product")
    kernel = "matmul_woven" if chosen.woven else "matmul_quarters" if chosen.quarters else "matmul_whole"
    if isinstance(chosen, TasksSchedule):
        kernel = chosen.kernel
    return GemmPlan(kernel, chosen, access, dtype, out_dtype, arguments, hints, (tiles,))


def _error(problem: str, remedy: str) -> UsageError:
    return UsageError(problem, remedy=remedy, construct="matmul")


def _default_output(dtype: str) -> str:
    return dtype if dtype in OUTPUTS else "i32" if dtype == "i8" else "bf16"


def _check_types(a: Matrix, b: Matrix, c: Matrix, dtype: str, out_dtype: str) -> None:
    """Refuse an output type that the kernels do not write, and records whose elements have another size."""
    if out_dtype not in OUTPUTS or (dtype == "i8") != (out_dtype == "i32"):
        known = "i32" if dtype == "i8" else ", ".join(one for one in OUTPUTS if one != "i32")
        raise _error(f"a product of {dtype} is not written as {out_dtype}", f"take {known}")
    sizes = {"a": (a, DTYPES[dtype]), "b": (b, DTYPES[dtype]), "out": (c, OUTPUTS[out_dtype])}
    for name, (matrix, size) in sizes.items():
        if matrix.element_bytes != size:
            raise _error(f"{name} has elements of {matrix.element_bytes} bytes, not {size}", "pass its own type")


def product_extents(a: Matrix, b: Matrix) -> tuple[int, int, int]:
    """M, N and K of a product.

    Raises:
        UsageError: inner extents that differ, or an extent that is zero or too large.
    """
    m, k, n = a.rows, a.columns, b.columns
    if b.rows != k:
        raise _error(f"a is {m}x{k} and b is {b.rows}x{n}: the inner extents differ", "transpose one of them")
    for name, extent in (("M", m), ("N", n), ("K", k)):
        if extent < 1:
            raise _error(f"{name} = {extent}, so there is nothing to multiply", "M, N and K must be at least 1")
        if extent > EXTENT_LIMIT:
            raise _error(f"{name} = {extent} exceeds {EXTENT_LIMIT}", "split the product")
    return m, n, k


def _extents(a: Matrix, b: Matrix, c: Matrix) -> tuple[int, int, int]:
    m, n, k = product_extents(a, b)
    if (c.rows, c.columns) != (m, n):
        raise _error(f"out is {c.rows}x{c.columns}, the product is {m}x{n}", "pass an out of that shape, or none")
    for name, matrix in (("a", a), ("b", b), ("out", c)):
        if min(matrix.row_stride, matrix.column_stride) < 0:
            raise _error(f"{name} has a negative stride", f"copy {name}")
    return m, n, k


def _tight(extent: int) -> int:
    """A row stride for a matrix of one row, where none is ever taken: the next that keeps rows aligned."""
    return -(-extent // LOAD_BYTES) * LOAD_BYTES


def _row_stride(name: str, matrix: Matrix, remedy: str) -> int:
    if matrix.columns > 1 and matrix.column_stride != 1:
        raise _error(f"{name} has a column stride of {matrix.column_stride}, not 1", remedy)
    return matrix.row_stride if matrix.rows > 1 else _tight(matrix.columns)


def _b_order(b: Matrix) -> tuple[bool, int]:
    """Whether K is B's contiguous dimension, and the stride of the other one."""
    k, n = b.rows, b.columns
    if n == 1 or k == 1:
        # One of the two strides is never taken; the other one decides.
        if n == 1 and b.row_stride == 1:
            return True, _tight(k)
        if n == 1:
            return False, b.row_stride if k > 1 else _tight(n)
        return (False, _tight(n)) if b.column_stride == 1 else (True, b.column_stride)
    if b.column_stride == 1:
        return False, b.row_stride
    if b.row_stride == 1:
        return True, b.column_stride
    raise _error(f"b has strides {b.row_stride} and {b.column_stride}, neither of them 1", "copy b")


def _aligned(stride: int, matrix: Matrix) -> bool:
    return stride % matrix.vector == 0 and matrix.address % LOAD_BYTES == 0


def _refuse_overlap(a: Matrix, b: Matrix, c: Matrix) -> None:
    first, last = c.span()
    for name, matrix in (("a", a), ("b", b)):
        low, high = matrix.span()
        apart = last <= low or high <= first or not c.address or not matrix.address
        if not apart and not _rows_alternate(c, matrix):
            raise _error(f"out lies over {name} in memory, and is written while {name} is read", "pass another out")


def _rows_alternate(one: Matrix, other: Matrix) -> bool:
    """Whether two matrices lie side by side in rows of one pitch, as two column ranges of a buffer do."""
    (run, pitch), (other_run, other_pitch) = _run_and_pitch(one), _run_and_pitch(other)
    if pitch != other_pitch or pitch <= 0:
        return False
    distance = (other.address - one.address) % pitch
    return run <= distance and distance + other_run <= pitch


def _run_and_pitch(matrix: Matrix) -> tuple[int, int]:
    """Bytes of one contiguous piece of a matrix in either order, and from the start of one to that of the next."""
    along_rows = matrix.column_stride == 1
    run, pitch = (matrix.columns, matrix.row_stride) if along_rows else (matrix.rows, matrix.column_stride)
    return run * matrix.element_bytes, pitch * matrix.element_bytes


def _names(arch: str) -> str:
    """The schedules to choose from on a GPU, for an error."""
    family = "inter_wave or " if arch == "gfx950" else ""
    found = [name for name, one in (SCHEDULES | TASKS).items() if one.arch == arch]
    return f"{family}one of {', '.join(found or SCHEDULES)}"


def _unknown(schedule: str, arch: str) -> UsageError:
    return _error(f"there is no schedule {schedule!r} for {arch}", f"take {_names(arch)}")


def _named(schedule: str, arch: str, dtype: str) -> GemmSchedule | None:
    return named(schedule, arch, dtype) or TASKS.get(f"{schedule}_{arch}", TASKS.get(schedule))


def check_name(schedule: str, target: Target) -> None:
    """Refuse a name that no schedule of a target has, whatever it multiplies.

    Raises:
        UsageError: such a name.
    """
    if schedule == "inter_wave" and target.arch == "gfx950":
        return
    if not any(_named(schedule, target.arch, dtype) for kind, _ in OPERANDS.values() for dtype in kind):
        raise _unknown(schedule, target.arch)


def _schedule(
    schedule: str | GemmSchedule | None,
    extents: tuple[int, int, int],
    access: Access,
    dtype: str,
    target: str | Target,
    compute_units: int,
) -> GemmSchedule:
    arch = get_target(target).arch
    if schedule is None or (schedule == "inter_wave" and arch == "gfx950"):
        schedule = choose(*extents, compute_units, arch, dtype)
        if arch == "gfx950" and dtype in OPERANDS["f16"][0] and schedule.constraints(target, access):
            schedule = SCHEDULES["inter_wave_128"]
    elif isinstance(schedule, str):
        found = _named(schedule, arch, dtype)
        if found is None:
            raise _unknown(schedule, arch)
        schedule = found
    elif not isinstance(schedule, GemmSchedule):
        raise _error(
            f"schedule is {schedule!r}", f"take inter_wave or one of {', '.join(SCHEDULES)}, a GemmSchedule, or None"
        )
    schedule.check(target, access, dtype)
    return schedule


def _check_offsets(
    schedule: GemmSchedule,
    extents: tuple[int, int, int],
    strides: tuple[int, int, int],
    sizes: tuple[int, int, int],
    b_k_contiguous: bool,
) -> None:
    m, n, k = extents
    lda, ldb, ldc = strides
    rows, columns, depth = min(m, schedule.tile_m), min(n, schedule.tile_n), min(k, schedule.tile_k)
    furthest = {
        "a": (rows - 1) * lda + schedule.tile_k,
        "b": (columns - 1) * ldb + schedule.tile_k if b_k_contiguous else (depth - 1) * ldb + schedule.tile_n,
        "out": (min(rows, schedule.part_m) - 1) * ldc + schedule.part_n,
    }
    for (name, elements), stride, size in zip(furthest.items(), strides, sizes, strict=True):
        if elements * size >= OFFSET_LIMIT or stride > EXTENT_LIMIT:
            raise _error(
                f"rows of {name} lie {stride} elements apart, so that one tile spans more than 2 GiB",
                f"copy {name} to closer rows, or split the product",
            )


def _hint(matrix: Matrix) -> str:
    low, high = matrix.span()
    aligned = "D" if matrix.address % LOAD_BYTES == 0 else ""
    return aligned + ("S" if high - low <= OFFSET_LIMIT else "")
