"""The gfx950 forward in two wave groups one stage apart: one group's softmax and MFMAs beside the other's memory work.

A workgroup of eight waves has 256 rows of one query head; each wave keeps its 32 rows of q in registers. For key block
`j`, of 64 keys, a loop iteration has four stages:

    "read v"   V(j-1) from LDS; starts the copy of K(j+R-1)
    "p v"      O += P(j-1) V(j-1); beside it the row maxima of S(j), its exponents, half of its exponentials
    "read k"   K(j+1) from LDS; starts the copy of V(j+R-2); rescales O where it must be
    "q k"      S(j+1) = q K(j+1); beside it the other half of the exponentials, row sums, and P(j)

so that a SIMD always has one wave in an MFMA stage and one in a memory stage. In the MFMA stages the softmax of one
block is woven between the MFMAs of the other product by intra-wave windows: an MFMA of 32 clk leaves 24 for vector
instructions, and each half of the softmax takes about 90 of the 96 slots of 4 clk that a stage of 16 MFMAs has. Packed
fp32 arithmetic cannot run beside an MFMA, and is turned off.

K and V go from global memory straight to LDS, into rings of R slots each; V is transposed by the LDS reads
(``ds_read_b64_tr_b16``). S has a row a lane, so a row's maximum needs one exchange between two lanes, and P needs none
to become an operand.

*Lazy rescaling* (as in FlashAttention-4 and AMD's Gluon attention): P = exp2(S - m) and O are kept relative to a
reference m that is no exact maximum. As long as no row of a wave grows beyond 2**8 times its reference, the wave goes
on; else it takes the maxima as its new reference and rescales O: a branch that each wave takes for itself.

What keeps the rings free of races, with the second group one stage behind the first: a slot is refilled two memory
stages of its operand after it was read, and what a memory stage reads was waited for at the end of the one before. Keys
past the end are masked in the copies, which write zeros for them. The last iteration computes an S that nobody uses.
"""

# The kernel language has no types of its own for tensors, no starred tuples, and no `and` of constant and tensor.
# mypy: disable-error-code="no-untyped-def, assignment"
# ruff: noqa: RUF005, SIM102, SIM117

from __future__ import annotations

from triton import constexpr_function
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy, buffer_load, buffer_store, mfma
from triton.language.core import PropagateNan

from amdwarp.jit import jit
from amdwarp.stage import warp_pipeline_stage

LOG2_E = gl.constexpr(1.4426950408889634)
LN_2 = gl.constexpr(0.6931471805599453)
EITHER_NAN = gl.constexpr(PropagateNan.ALL)
SCALARS = ["rows", "keys", "heads", "tiles", "scale"]


@constexpr_function
def by_keys(lds, bases):
    """Bases (outer, k) of an operand tile as bases (key, element): keys are the outer dimension of K, and k of V."""
    return [[outer, k] if lds.tile.k_contiguous else [k, outer] for outer, k in bases]


@constexpr_function
def tile_shape(lds):
    """(keys, elements) of a tile."""
    return by_keys(lds, [(lds.tile.outer, lds.tile.k)])[0]


@constexpr_function
def shared_layout(lds):
    """Gluon form of the LDS layout of a (keys, elements) tile."""
    return gl.PaddedSharedLayout([[lds.interval, lds.padding]], by_keys(lds, lds.bases), [], tile_shape(lds))


@constexpr_function
def copy_layout(lds, waves):
    """Gluon form of the global-load layout of a (keys, elements) tile, whose lanes write LDS in order."""
    load = lds.load_layout(waves)
    parts = [by_keys(lds, bases) for bases in (load.registers, load.lanes, load.waves)]
    return gl.DistributedLinearLayout(*parts, [], tile_shape(lds))


@gluon.jit
def copy(slot, base, offsets, key, keys_left):
    """Start the copy of a tile of keys straight into LDS; those past the end become zeros."""
    async_copy.buffer_load_to_shared(slot, base, offsets, (key < keys_left)[:, None])
    async_copy.commit_group()


@gluon.jit
def any_lane(values, limits):
    """Whether a value of this wave exceeds its limit: one comparison, whose lane mask is a scalar of the wave."""
    mask = gl.inline_asm("v_cmp_gt_f32_e64 $0, $1, $2", ("=s", "v", "v"), [values, limits], gl.int64, is_pure=True)
    return mask != 0


@constexpr_function
def tied(count):
    """Constraints of an instruction with so many vector registers in, and the same ones out."""
    return ",".join(["=v"] * count + [str(at) for at in range(count)])


@constexpr_function
def registers(shape, waves):
    """Elements that a lane holds: of a tile its share, of a row vector the one of its row."""
    return shape[0] * shape[1] // (64 * waves) if len(shape) == 2 else shape[0] // (32 * waves)


@gluon.jit
def stay(value):
    """Keep a value's computation in the stage it stands in: an empty instruction that takes and gives it.

    Barriers order memory only, and LLVM moves arithmetic across them to where it is used.
    """
    COUNT: gl.constexpr = registers(value.shape, gl.num_warps())
    return gl.inline_asm("", tied(COUNT), [value], value.type, is_pure=False)


@gluon.jit
def hide_keys(s, first_key, position, hi, CAUSAL: gl.constexpr):
    """-inf where a row does not see a key; the first key of `s` is `first_key`."""
    key = first_key + gl.arange(0, s.shape[1], gl.SliceLayout(0, s.type.layout))
    visible = (key < hi)[None, :]
    if CAUSAL:
        visible &= key[None, :] <= position[:, None]
    return gl.where(visible, s, float("-inf"))


@gluon.jit
def larger(a, b):
    """The larger of two; NaN where either is one, which takes no instruction to rule out."""
    return gl.maximum(a, b, propagate_nan=EITHER_NAN)


@gluon.jit
def row_maximum(s_low, s_high):
    """The largest element of each row."""
    return gl.reduce(larger(s_low, s_high), 1, larger)


@gluon.jit
def to_operand(p, TYPE: gl.constexpr):
    """Probabilities as the left operand of P V: with four keys a lane at a time they are where the MFMA left S."""
    return gl.convert_layout(p.to(TYPE), gl.DotOperandLayout(0, p.type.layout, 4))


@gluon.jit
def read_v(slot, piece: gl.constexpr, ACC: gl.constexpr):
    """32 elements of each key of a block of V as operands, of the lower keys and the upper; transposed by the read."""
    V_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, 4)
    HALF: gl.constexpr = slot.shape[0] // 2
    columns = slot.slice(piece * 32, 32, dim=1)
    low = async_copy.load_shared_relaxed(columns.slice(0, HALF, dim=0), V_OPERAND)
    high = async_copy.load_shared_relaxed(columns.slice(HALF, HALF, dim=0), V_OPERAND)
    return low, high


@gluon.jit
def multiply_v(acc, p, v):
    """O += P V, piece by piece; P and V have lower and upper keys."""
    result = ()
    for piece in gl.static_range(len(acc)):
        result = result + (mfma(p[1], v[piece][1], mfma(p[0], v[piece][0], acc[piece])),)
    return result


@gluon.jit
def scaled(acc, factor):
    """Every piece of O times a factor for each row."""
    result = ()
    for piece in gl.static_range(len(acc)):
        result = result + (acc[piece] * factor[:, None],)
    return result


@gluon.jit
def walk(
    acc, total, ref, p, s_low, s_high, q, k, v, k_ring, v_ring, k_at, v_at, k_key, v_key, k_step, v_step,
    blocks, whole, keys, hi, position, scale, OPT: gl.constexpr, S: gl.constexpr,
):  # fmt: skip
    """Blocks 1 to `blocks`: their softmax, P V of the block before, and S of the next one.

    Rows see all of the blocks before `whole`; from there on keys are hidden, in a branch of a memory stage.
    """
    R: gl.constexpr = S.ring
    N: gl.constexpr = S.block_n
    HALF: gl.constexpr = S.block_n // 2
    ACC: gl.constexpr = acc[0].type.layout
    K_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, 8)
    for block in range(1, blocks):
        with warp_pipeline_stage("read v", priority=1):
            before = v_ring.index((block - 1) % R)
            operands = ()
            for piece in gl.static_range(S.dim // 32):
                operands = operands + (read_v(before, piece, ACC),)
            copy(k_ring.index((block + R - 1) % R), k, k_at, k_key, keys - (block + R - 1) * N)
            k += k_step
            if S.masked:
                if block >= whole:
                    s_low = hide_keys(s_low, block * N, position, hi, OPT.causal)
                    s_high = hide_keys(s_high, block * N + HALF, position, hi, OPT.causal)
        async_copy.wait_group(2 * (R - 2))
        with warp_pipeline_stage("p v", priority=0):
            with warp_pipeline_stage("maxima beside p v", scope="intra_wave", order=S.pv_order):
                top = row_maximum(s_low, s_high) * scale
                if S.lazy:
                    grows = any_lane(top, ref + S.threshold)
                    new_ref = gl.where(grows, larger(ref, top), ref)
                else:
                    grows = True
                    new_ref = larger(ref, top)
                base = new_ref
                if S.masked:
                    # a row that has seen nothing: exp2(-inf - 0) is 0, where -inf - -inf would be no number
                    base = gl.where(new_ref == float("-inf"), 0.0, new_ref)
                low = gl.exp2(s_low * scale - base[:, None])
                high = s_high * scale - base[:, None]
                acc = multiply_v(acc, p, operands)
            low = stay(low)
            high = stay(high)
        with warp_pipeline_stage("read k", priority=1):
            after = k_ring.index((block + 1) % R).permute((1, 0))
            k_low = async_copy.load_shared_relaxed(after.slice(0, HALF, dim=1), K_OPERAND)
            k_high = async_copy.load_shared_relaxed(after.slice(HALF, HALF, dim=1), K_OPERAND)
            copy(v_ring.index((block + R - 2) % R), v, v_at, v_key, keys - (block + R - 2) * N)
            v += v_step
            if grows:
                rescale = gl.exp2(ref - base)
                total = total * rescale
                acc = scaled(acc, rescale)
            ref = new_ref
        async_copy.wait_group(2 * (R - 2))
        with warp_pipeline_stage("q k", priority=0):
            with warp_pipeline_stage("sums beside q k", scope="intra_wave", order=S.qk_order):
                high = gl.exp2(high)
                total += gl.sum(low, 1) + gl.sum(high, 1)
                p = (to_operand(low, q.dtype), to_operand(high, q.dtype))
                zero = gl.zeros((S.block_m, HALF), gl.float32, ACC)
                s_low = mfma(q, k_low, zero)
                s_high = mfma(q, k_high, zero)
    return acc, total, ref, p


@gluon.jit
def tile_of_program(tiles, heads, S: gl.constexpr):
    """(row tile, head) of this workgroup: each die has consecutive heads, which share keys, and their tiles in turn."""
    program = gl.program_id(0)
    count = tiles * heads
    share = count // S.xcds
    extra = count % S.xcds
    die = program % S.xcds
    program = die * share + gl.minimum(die, extra) + program // S.xcds
    # the last tiles of a causal head see the most keys, and go first
    return tiles - 1 - program % tiles, program // tiles


@jit(do_not_specialize=SCALARS)
def attend(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, sinks_ptr, rows, keys, heads, tiles, scale,
    q_batch, q_head, q_row_units, k_batch, k_head, k_row_units, v_batch, v_head, v_row_units,
    out_batch, out_head, out_row_units, lse_batch, lse_head, OPT: gl.constexpr, S: gl.constexpr,
):  # fmt: skip
    """256 rows of one query head. Grid: (row tiles * heads, batch)."""
    TYPE: gl.constexpr = q_ptr.dtype.element_ty
    D: gl.constexpr = S.dim
    N: gl.constexpr = S.block_n
    HALF: gl.constexpr = S.block_n // 2
    R: gl.constexpr = S.ring
    ACC: gl.constexpr = gl.amd.AMDMFMALayout(
        version=4, instr_shape=[32, 32, 16], transposed=True, warps_per_cta=[S.num_warps, 1]
    )
    Q_OPERAND: gl.constexpr = gl.DotOperandLayout(0, ACC, 8)
    K_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, 8)
    K_LDS: gl.constexpr = S.k_layout()
    V_LDS: gl.constexpr = S.v_layout()
    K_COPY: gl.constexpr = copy_layout(K_LDS, S.num_warps)
    V_COPY: gl.constexpr = copy_layout(V_LDS, S.num_warps)
    q_row = gl.to_tensor(q_row_units) * 8
    k_row = gl.to_tensor(k_row_units) * 8
    v_row = gl.to_tensor(v_row_units) * 8
    out_row = gl.to_tensor(out_row_units) * 8

    tile, head = tile_of_program(tiles, heads, S)
    batch = gl.program_id(1).to(gl.int64)
    wide_head = head.to(gl.int64)
    key_head = (head // S.ratio).to(gl.int64)
    first_row = tile * S.block_m
    k = k_ptr + (batch * k_batch + key_head * k_head)
    v = v_ptr + (batch * v_batch + key_head * v_head)

    k_key = gl.arange(0, N, gl.SliceLayout(1, K_COPY))
    v_key = gl.arange(0, N, gl.SliceLayout(1, V_COPY))
    k_at = k_key[:, None] * k_row + gl.arange(0, D, gl.SliceLayout(0, K_COPY))[None, :]
    v_at = v_key[:, None] * v_row + gl.arange(0, D, gl.SliceLayout(0, V_COPY))[None, :]
    k_step = N * k_row.to(gl.int64)
    v_step = N * v_row.to(gl.int64)
    k_ring = gl.allocate_shared_memory(TYPE, [R, N, D], shared_layout(K_LDS))
    v_ring = gl.allocate_shared_memory(TYPE, [R, N, D], shared_layout(V_LDS))

    # Copies in the order in which they will be waited for: K(0), then K(i) and V(i - 1).
    copy(k_ring.index(0), k, k_at, k_key, keys)
    for ahead in gl.static_range(1, R):
        k += k_step
        copy(k_ring.index(ahead), k, k_at, k_key, keys - ahead * N)
        copy(v_ring.index(ahead - 1), v, v_at, v_key, keys - (ahead - 1) * N)
        v += v_step
    k += k_step

    q_rows = gl.arange(0, S.block_m, gl.SliceLayout(1, Q_OPERAND))
    q_elements = gl.arange(0, D, gl.SliceLayout(0, Q_OPERAND))
    q_base = q_ptr + (batch * q_batch + wide_head * q_head + first_row.to(gl.int64) * q_row)
    q_at = gl.minimum(q_rows, rows - first_row - 1)[:, None] * q_row + q_elements[None, :]
    q = buffer_load(q_base, q_at)

    row = gl.arange(0, S.block_m, gl.SliceLayout(1, ACC))
    position = first_row + row + (keys - rows)
    hi = keys
    whole = keys // N
    if OPT.causal:
        last = gl.minimum(first_row + S.block_m, rows) - 1 + keys - rows
        hi = gl.maximum(gl.minimum(keys, last + 1), 0)
        whole = gl.maximum(first_row + keys - rows + 1, 0) // N
    blocks = gl.maximum(gl.cdiv(hi, N), 1)

    ref = gl.full((S.block_m,), float("-inf"), gl.float32, gl.SliceLayout(1, ACC))
    total = gl.zeros((S.block_m,), gl.float32, gl.SliceLayout(1, ACC))
    if OPT.sinks:
        sink = gl.load(sinks_ptr + head) * LOG2_E
        ref = gl.maximum(ref, sink)
        total += gl.where(sink == float("-inf"), 0.0, 1.0)
    acc = ()
    for _ in gl.static_range(D // 32):
        acc = acc + (gl.zeros((S.block_m, 32), gl.float32, ACC),)

    async_copy.wait_group(2 * (R - 1))
    first = k_ring.index(0).permute((1, 0))
    k_low = first.slice(0, HALF, dim=1).load(K_OPERAND)
    k_high = first.slice(HALF, HALF, dim=1).load(K_OPERAND)
    zero = gl.zeros((S.block_m, HALF), gl.float32, ACC)
    s_low = mfma(q, k_low, zero)
    s_high = mfma(q, k_high, zero)
    if S.masked:
        s_low = hide_keys(s_low, 0, position, hi, OPT.causal)
        s_high = hide_keys(s_high, HALF, position, hi, OPT.causal)
    new_ref = larger(ref, row_maximum(s_low, s_high) * scale)
    base = gl.where(new_ref == float("-inf"), 0.0, new_ref)
    low = gl.exp2(s_low * scale - base[:, None])
    high = gl.exp2(s_high * scale - base[:, None])
    total = total * gl.exp2(ref - base) + gl.sum(low + high, 1)
    p = (to_operand(low, TYPE), to_operand(high, TYPE))
    ref = new_ref
    async_copy.wait_group(2 * (R - 2))
    second = k_ring.index(1).permute((1, 0))
    s_low = mfma(q, second.slice(0, HALF, dim=1).load(K_OPERAND), zero)
    s_high = mfma(q, second.slice(HALF, HALF, dim=1).load(K_OPERAND), zero)

    acc, total, ref, p = walk(
        acc, total, ref, p, s_low, s_high, q, k, v, k_ring, v_ring, k_at, v_at, k_key, v_key, k_step, v_step,
        blocks, whole, keys, hi, position, scale, OPT, S,
    )  # fmt: skip

    async_copy.wait_group(0)
    final = v_ring.index((blocks - 1) % R)
    operands = ()
    for piece in gl.static_range(D // 32):
        operands = operands + (read_v(final, piece, ACC),)
    acc = multiply_v(acc, p, operands)
    factor = gl.where(total == 0.0, 0.0, 1.0 / total)
    out_base = out_ptr + (batch * out_batch + wide_head * out_head + first_row.to(gl.int64) * out_row)
    out_at = row[:, None] * out_row + gl.arange(0, 32, gl.SliceLayout(0, ACC))[None, :]
    inside = row < rows - first_row
    acc = scaled(acc, factor)
    for piece in gl.static_range(D // 32):
        buffer_store(acc[piece].to(out_ptr.dtype.element_ty), out_base, out_at + piece * 32, inside[:, None])
    if lse_ptr is not None:
        lse = gl.where(total == 0.0, float("-inf"), (ref + gl.log2(total)) * LN_2)
        lse_base = lse_ptr + (batch * lse_batch + wide_head * lse_head + first_row.to(gl.int64))
        buffer_store(lse, lse_base, row, inside)
