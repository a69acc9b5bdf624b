"""Stock Triton kernels that the emulator tests compile and run."""

import triton
import triton.language as tl


@triton.jit
def vector_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)


@triton.jit
def softmax(x, out, rows, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    value = tl.load(x + row * columns + at, mask=mask, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(out + row * columns + at, value / tl.sum(value, axis=0), mask=mask)


@triton.jit
def layer_norm(x, out, weight, bias, mean_out, rstd_out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < columns
    value = tl.load(x + row * columns + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=0) / columns
    centred = tl.where(mask, value - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    w = tl.load(weight + at, mask=mask)
    b = tl.load(bias + at, mask=mask)
    tl.store(mean_out + row, mean)
    tl.store(rstd_out + row, rstd)
    tl.store(out + row * columns + at, centred * rstd * w + b, mask=mask)


@triton.jit
def matmul(a, b, c, M, N, K, stride_am, stride_bk, stride_cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * stride_am + rk[None, :]
    pb = b + rk[:, None] * stride_bk + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(pa, mask=rm[:, None] < M, other=0.0)
        y = tl.load(pb, mask=rn[None, :] < N, other=0.0)
        acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK * stride_bk
    where = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * stride_cm + rn[None, :], acc.to(c.dtype.element_ty), mask=where)


@triton.jit
def matmul_nt(a, b, c, M, N, K, stride_am, stride_bn, stride_cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * stride_am + rk[None, :]
    pb = b + rk[:, None] + rn[None, :] * stride_bn
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK
    tl.store(c + rm[:, None] * stride_cm + rn[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def matmul_tn(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] + (k + rk[None, :]) * M)
        acc = tl.dot(x, tl.load(b + (k + rk[:, None]) * N + rn[None, :]), acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def matmul_descriptor(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    pm, pn = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(da.load([pm, k]), db.load([k, pn]), acc)
    dc.store([pm, pn], acc.to(c.dtype.element_ty))


@triton.jit
def matmul_scaled(
    a,
    b,
    c,
    sa,
    sb,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    FA: tl.constexpr,
    FB: tl.constexpr,
    PA: tl.constexpr,
    PB: tl.constexpr,
):
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    rka, rkb, rs = tl.arange(0, BK // PA), tl.arange(0, BK // PB), tl.arange(0, BK // 32)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * (K // PA) + k // PA + rka[None, :])
        y = tl.load(b + (k // PB + rkb[:, None]) + rn[None, :] * (K // PB))
        s = tl.load(sa + rm[:, None] * (K // 32) + k // 32 + rs[None, :])
        t = tl.load(sb + rn[:, None] * (K // 32) + k // 32 + rs[None, :])
        acc = tl.dot_scaled(x, s, FA, y, t, FB, acc)
    tl.store(c + rm[:, None] * BN + rn[None, :], acc)


@triton.jit
def reductions(x, out_sum, out_max, out_arg, out_scan, out_hist, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    r, c = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    value = tl.load(x + r[:, None] * COLUMNS + c[None, :])
    tl.store(out_sum + r, tl.sum(value, axis=1))
    tl.store(out_max + c, tl.max(value, axis=0))
    tl.store(out_arg + r, tl.argmax(value, axis=1))
    tl.store(out_scan + r[:, None] * COLUMNS + c[None, :], tl.cumsum(value, axis=1))
    bins = (tl.abs(value) * 4).to(tl.int32)
    tl.store(out_hist + tl.arange(0, 16), tl.histogram(tl.reshape(bins, (ROWS * COLUMNS,)), 16))


@triton.jit
def attention(
    q, k, v, out, lse, heads, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr
):
    block, head = tl.program_id(0), tl.program_id(1)
    base = head * length * D
    rm, rn, rd = block * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    queries = tl.load(q + base + rm[:, None] * D + rd[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = (block + 1) * BM if CAUSAL else length
    for start in range(0, end, BN):
        keys = tl.load(k + base + (start + rn[None, :]) * D + rd[:, None])
        score = tl.dot(queries, keys) * scale
        if CAUSAL:
            score = tl.where(rm[:, None] >= start + rn[None, :], score, -float("inf"))
        new_top = tl.maximum(top, tl.max(score, axis=1))
        p = tl.exp2(score - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(p, axis=1)
        values = tl.load(v + base + (start + rn[:, None]) * D + rd[None, :])
        acc = tl.dot(p.to(values.dtype), values, acc * shrink[:, None])
        top = new_top
    tl.store(out + base + rm[:, None] * D + rd[None, :], (acc / total[:, None]).to(out.dtype.element_ty))
    tl.store(lse + head * length + rm, top + tl.log2(total))


@triton.jit
def atomics(counter, sums, slots, x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    value = tl.load(x + at, mask=mask, other=0.0)
    old = tl.atomic_add(counter, 1)
    tl.store(slots + old, tl.program_id(0))
    tl.atomic_add(sums + at % 7, value, mask=mask)
    tl.atomic_max(counter + 1, tl.program_id(0))
    tl.atomic_cas(counter + 2, 0, 5)


@triton.jit
def elementwise(x, y, out, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    a, b = tl.load(x + at, mask=mask, other=1), tl.load(y + at, mask=mask, other=1)
    if KIND == "div":
        r = a / b
    elif KIND == "idiv":
        r = a // b
    elif KIND == "imod":
        r = a % b
    elif KIND == "exp":
        r = tl.exp(a) + tl.log(tl.abs(b) + 1)
    elif KIND == "sqrt":
        r = tl.sqrt(tl.abs(a)) + tl.math.rsqrt(tl.abs(b) + 1)
    elif KIND == "trig":
        r = tl.sin(a) * tl.cos(b)
    elif KIND == "erf":
        r = tl.math.erf(a) + tl.floor(b)
    elif KIND == "fdiv":
        r = tl.math.div_rn(a, b)
    elif KIND == "cast":
        r = a.to(tl.float16).to(tl.float32) + b.to(tl.bfloat16).to(tl.float32)
    elif KIND == "shift":
        r = (a << (b & 7)) ^ (a >> 3)
    else:
        r = tl.minimum(tl.maximum(a, b), a + 1)
    tl.store(out + at, r, mask=mask)


@triton.jit
def cast(x, out, n, ROUND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value.to(out.dtype.element_ty, fp_downcast_rounding=ROUND), mask=at < n)


@triton.jit
def tile_dot(a, b, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm, rn, rk = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x = tl.load(a + rm[:, None] * BK + rk[None, :])
    y = tl.load(b + rk[:, None] * BN + rn[None, :])
    tl.store(c + rm[:, None] * BN + rn[None, :], tl.dot(x, y, out_dtype=c.dtype.element_ty))


@triton.jit
def half_scaled(
    a,
    b,
    c,
    sb,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    FA: tl.constexpr,
    FB: tl.constexpr,
    PB: tl.constexpr,
):
    rm, rn = tl.arange(0, BM), tl.arange(0, BN)
    rk, rkb, rs = tl.arange(0, BK), tl.arange(0, BK // PB), tl.arange(0, BK // 32)
    x = tl.load(a + rm[:, None] * BK + rk[None, :])
    y = tl.load(b + rkb[:, None] + rn[None, :] * (BK // PB))
    t = tl.load(sb + rn[:, None] * (BK // 32) + rs[None, :])
    tl.store(c + rm[:, None] * BN + rn[None, :], tl.dot_scaled(x, None, FA, y, t, FB))


@triton.jit
def block(x, y, z, out, KIND: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    a, b, c = tl.load(x + at), tl.load(y + at), tl.load(z + at)
    if KIND == "fma":
        r = tl.fma(a, b, c)
    elif KIND == "clamp":
        r = tl.clamp(a, b, tl.maximum(b, c))
    elif KIND == "umulhi":
        r = tl.math.umulhi(a, b)
    elif KIND == "sort":
        r = tl.sort(a)
    elif KIND == "flip":
        r = tl.flip(a, 0)
    elif KIND == "cumprod":
        r = tl.cumprod(a)
    elif KIND == "gather":
        r = tl.gather(a, at % 7, 0)
    elif KIND == "xor":
        r = tl.xor_sum(a) + b
    elif KIND == "argmin":
        r = tl.argmin(a, 0) + b
    tl.store(out + at, r)
