"""What the scheduled kernels of gfx950 have in common: layouts, copies into LDS, reads of operands, masks, row maxima.

K and V go from global memory straight to LDS; V is transposed by the LDS reads (``ds_read_b64_tr_b16``). S has a row a
lane, so a row's maximum needs one exchange between two lanes, and P needs none to become an operand.
"""

# The kernel language has no types of its own for tensors, no starred tuples, and no `and` of constant and tensor.
# mypy: disable-error-code="no-untyped-def, assignment, misc"
# ruff: noqa: RUF005, RET505

from __future__ import annotations

from triton import constexpr_function
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.amd.cdna4 import async_copy, mfma
from triton.language.core import PropagateNan

LOG2_E = gl.constexpr(1.4426950408889634)
LN_2 = gl.constexpr(0.6931471805599453)
EITHER_NAN = gl.constexpr(PropagateNan.ALL)


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
def copy(slot, base, offsets, key, keys_left, MASKED: gl.constexpr):
    """Start the copy of a block of keys straight into LDS; those past the end become zeros.

    Without masks blocks are whole, and the copy of one past the end is left out by one comparison for all lanes.
    """
    first = key if MASKED else gl.zeros_like(key)
    async_copy.buffer_load_to_shared(slot, base, offsets, (first < keys_left)[:, None])
    async_copy.commit_group()


@gluon.jit
def any_lane(values, limits):
    """Whether a value of this wave exceeds its limit: one comparison, whose lane mask is a scalar of the wave."""
    mask = gl.inline_asm("v_cmp_gt_f32_e64 $0, $1, $2", ("=s", "v", "v"), [values, limits], gl.int64, is_pure=True)
    return mask != 0


@gluon.jit
def any_lane_of_two(values, limits, others, others_limits):
    """The same of two rows a lane."""
    TEXT: gl.constexpr = "v_cmp_gt_f32_e64 $0, $1, $2\nv_cmp_gt_f32_e32 vcc, $3, $4\ns_or_b64 $0, $0, vcc"
    # the first mask is written before the last values are read
    REGISTERS: gl.constexpr = "=&s,v,v,v,v,~{vcc},~{scc}"
    mask = gl.inline_asm(TEXT, REGISTERS, [values, limits, others, others_limits], gl.int64, is_pure=True)
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
def larger(a, b):
    """The larger of two; NaN where either is one, which takes no instruction to rule out."""
    return gl.maximum(a, b, propagate_nan=EITHER_NAN)


@gluon.jit
def row_maximum(s_low, s_high):
    """The largest element of each row."""
    return gl.reduce(larger(s_low, s_high), 1, larger)


@gluon.jit
def in_lanes(p):
    """(rows, 2, 4, groups) elements of each row: a lane has every other four of them."""
    return gl.permute(gl.reshape(p, (p.shape[0], p.shape[1] // 8, 2, 4)), (0, 2, 3, 1))


@gluon.jit
def hide_keys(s, first_key, last_key):
    """-inf where a key is behind the last one that its row sees; the first key of `s` is `first_key`.

    What differs between the two lanes of a row is on the side of the limit: keys are constants of an instruction then,
    and take no registers.
    """
    parts = in_lanes(s)
    OF_NEAR: gl.constexpr = gl.SliceLayout(3, parts.type.layout)
    OF_LANES: gl.constexpr = gl.SliceLayout(2, OF_NEAR)
    OF_KEYS: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, parts.type.layout))
    lane = gl.arange(0, 2, gl.SliceLayout(0, OF_LANES)) * 4
    near = gl.arange(0, 4, gl.SliceLayout(1, OF_KEYS))
    group = gl.arange(0, parts.shape[3], gl.SliceLayout(0, OF_KEYS)) * 8
    seen = gl.convert_layout(last_key - first_key, gl.SliceLayout(1, OF_LANES))[:, None] - lane[None, :]
    key = near[:, None] + group[None, :]
    parts = gl.where(key[None, None, :, :] <= seen[:, :, None, None], parts, float("-inf"))
    return gl.convert_layout(gl.reshape(gl.permute(parts, (0, 3, 1, 2)), s.shape), s.type.layout)


@gluon.jit
def row_sums(p, S: gl.constexpr):
    """The sums of each row's elements; with `sum_lanes` of those that a lane has, (rows, 2), to be added in the end."""
    if S.sum_lanes:
        return gl.sum(gl.sum(in_lanes(p), 3), 2)
    else:
        return gl.sum(p, 1)


@gluon.jit
def scaled_sums(sums, factor, like, S: gl.constexpr):
    """Sums of `row_sums` times a factor for each row; elements of a row are in its lanes as those of `like` are."""
    if S.sum_lanes:
        return sums * gl.max(gl.max(in_lanes(factor[:, None] + gl.zeros_like(like)), 3), 2)
    else:
        return sums * factor


@gluon.jit
def to_operand(p, TYPE: gl.constexpr):
    """Probabilities as the left operand of P V: with four keys a lane at a time they are where the MFMA left S."""
    return gl.convert_layout(p.to(TYPE), gl.DotOperandLayout(0, p.type.layout, 4))


@gluon.jit
def read_k_part(slot, half: gl.constexpr, part: gl.constexpr, ACC: gl.constexpr):
    """Half of the elements of the lower keys of a block of K as operands, or of the upper keys."""
    K_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, 8)
    HALF: gl.constexpr = slot.shape[0] // 2
    WIDTH: gl.constexpr = slot.shape[1] // 2
    keys = slot.permute((1, 0)).slice(half * HALF, HALF, dim=1)
    return async_copy.load_shared_relaxed(keys.slice(part * WIDTH, WIDTH, dim=0), K_OPERAND)


@gluon.jit
def read_k(slot, half: gl.constexpr, parts: gl.constexpr, ACC: gl.constexpr):
    """The lower keys of a block of K as operands, or the upper ones; their elements in one part or in two."""
    K_OPERAND: gl.constexpr = gl.DotOperandLayout(1, ACC, 8)
    HALF: gl.constexpr = slot.shape[0] // 2
    if parts == 1:
        keys = slot.permute((1, 0)).slice(half * HALF, HALF, dim=1)
        return (async_copy.load_shared_relaxed(keys, K_OPERAND),)
    else:
        return read_k_part(slot, half, 0, ACC), read_k_part(slot, half, 1, ACC)


@gluon.jit
def multiply_k(q, k, ACC: gl.constexpr):
    """S of some rows and half a block of keys; q and K have their elements in parts."""
    s = gl.zeros((q[0].shape[0], k[0].shape[1]), gl.float32, ACC)
    for part in gl.static_range(len(q)):
        s = mfma(q[part], k[part], s)
    return s


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
def multiply_piece(acc, p, v):
    """One piece of O += P V; P and V have lower and upper keys."""
    return mfma(p[1], v[1], mfma(p[0], v[0], acc))


@gluon.jit
def multiply_v(acc, p, v):
    """O += P V, piece by piece."""
    result = ()
    for piece in gl.static_range(len(acc)):
        result = result + (multiply_piece(acc[piece], p, v[piece]),)
    return result


@gluon.jit
def scaled(acc, factor):
    """Every piece of O times a factor for each row."""
    result = ()
    for piece in gl.static_range(len(acc)):
        result = result + (acc[piece] * factor[:, None],)
    return result
