"""What an attention computes: one statement of its options, their meaning and their rules. Plain Python.

For one query row and one key, in this order:

    s = scale * (q . k)                       scale is 1/sqrt(dim) unless given
    s = softcap * tanh(s / softcap)           with a softcap
    s = s - alibi[head] * |position - key|    with ALiBi slopes
    s = s + bias[batch, head, row, key]       with a bias
    s = -inf                                  where the key is not visible

    out = sum_key softmax(s) * v,  lse = log(sum_key exp(s))        natural logarithm

A *sink* is one more logit of each query head that no value belongs to: it joins the sum below the softmax (and lse) as
it is, neither scaled nor capped. A row that sees no key gives zeros and lse = -inf; with a sink, zeros and lse = sink.
A sink of +inf takes all of the weight: zeros and lse = +inf; one of -inf is none.

Numbers are fp32. A row whose largest logit is beyond `LOGIT_MAX` in magnitude may give NaN in out and lse, but no other
wrong result: there neighbouring fp32 numbers are further apart than any softmax can tell. With a bias or ALiBi slopes,
whose fp32 sums all readers of a logit share, it gives what these sums say: where a bias hides every key with -1e9, or
with the lowest number of its dtype, out is the mean of their values, as in torch, and lse lacks the logarithm of their
number (below -2.3e38 it is -2.3e38). Such a row, with its lse below -`LOGIT_MAX`, gives no gradient. The gradient of a
finite sink beyond it has no meaning.

Alignment: rows and keys of one sequence end together (*bottom-right*). With `sq` rows and `sk` keys, row `i` stands at
position `i + sk - sq`, which is that of its own key; rows at a negative position come before the first key. Causal
masking, windows and ALiBi distances all count from that position.

Query head `h` of `hq` reads key/value head `h // (hq // hkv)`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from amdwarp.errors import UsageError

HEAD_DIM_MIN, HEAD_DIM_MAX, HEAD_DIM_STEP = 32, 256, 8
#: Largest softcap: tanh in fp32 is 2**-23 off, and a logit so many times that, which 16-bit results must not show.
SOFTCAP_MAX = 1000.0
FP32_MAX = 3.4028234663852886e38
#: Largest scale: base 2 makes it 1.44 times as large, which fp32 has to hold.
SCALE_MAX = 2.0**127
#: Smallest softcap: the smallest normal fp32 number.
SOFTCAP_MIN = 2.0**-126
#: Largest magnitude of a row's largest logit, 2**24 in base 2.
LOGIT_MAX = 2.0**24 * math.log(2.0)


@dataclass(frozen=True)
class AttentionOptions:
    """Options that are numbers; hashable, so a kernel can take them as a constant.

    Sinks, ALiBi slopes and bias are arrays, and their presence alone is an option:

    | array | shape | dtype |
    |---|---|---|
    | sinks | (query heads,) | fp32 |
    | alibi | (query heads,) or (batch, query heads), slopes | fp32 |
    | bias | broadcasts to (batch, query heads, rows, keys) | fp32 or that of q |

    Attributes:
        causal: a row sees keys up to its own position.
        scale: factor of q . k, positive; None for 1/sqrt(dim of q and k).
        window: (left, right): a row at position p sees keys from p - left to p + right; None on a side leaves it open,
            and None for both is no window. With causal, right counts as 0.
        softcap: positive bound of the scaled logits, up to 1000; None for none.
        sinks, alibi, bias: such an array is given.
    """

    causal: bool = False
    scale: float | None = None
    window: tuple[int | None, int | None] | None = None
    softcap: float | None = None
    sinks: bool = False
    alibi: bool = False
    bias: bool = False

    def __post_init__(self) -> None:
        for name in ("causal", "sinks", "alibi", "bias"):
            if not isinstance(getattr(self, name), bool):
                raise _error(f"{name} is {getattr(self, name)!r}", "give True or False")
        for name, none in (("scale", "1/sqrt(dim)"), ("softcap", "no cap")):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise _error(f"{name} is {value!r}", f"give a finite positive number, or None for {none}")
        if self.softcap is not None and self.softcap > SOFTCAP_MAX:
            raise _error(f"softcap is {self.softcap!r}", f"give one up to {SOFTCAP_MAX:g}, or None for no cap")
        if self.softcap is not None and self.softcap < SOFTCAP_MIN:
            raise _error(f"softcap is {self.softcap!r}, which fp32 cannot hold", "give one from 2**-126 on")
        if self.scale is not None and self.scale > SCALE_MAX:
            raise _error(f"scale is {self.scale!r}, which fp32 cannot hold", "give one up to 2**127")
        self._check_window()

    def _check_window(self) -> None:
        if self.window is None:
            return
        if not isinstance(self.window, tuple) or len(self.window) != 2:
            raise _error(f"window is {self.window!r}", "give (left, right), or None for no window")
        for side, reach in zip(("left", "right"), self.window, strict=True):
            if reach is None:
                continue
            if isinstance(reach, bool) or not isinstance(reach, int) or not 0 <= reach < 2**31:
                raise _error(
                    f"window has {side} = {reach!r}", "give a number of keys from 0 to 2**31 - 1, or None for no bound"
                )

    def scale_of(self, dim: int) -> float:
        """The factor of q . k for heads of so many elements."""
        return 1.0 / math.sqrt(dim) if self.scale is None else float(self.scale)

    @property
    def reach(self) -> tuple[int | None, int | None]:
        """(left, right) that causal masking and the window leave together; None where a side is open."""
        left, right = self.window or (None, None)
        return left, 0 if self.causal else right

    def visible_keys(self, row: int, rows: int, keys: int) -> range:
        """The keys that a row sees, by the mask alone."""
        left, right = self.reach
        position = row + keys - rows
        first = 0 if left is None else max(0, position - left)
        end = keys if right is None else min(keys, position + right + 1)
        return range(first, max(first, end))


def _error(problem: str, remedy: str) -> UsageError:
    return UsageError(problem, remedy=remedy, construct="attention")
