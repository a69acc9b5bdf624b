"""Each rule of the options refuses what breaks it, by name."""

import math

import pytest
from amdwarp.kernels.attention.options import AttentionOptions

from amdwarp.errors import UsageError


@pytest.mark.parametrize(
    "arguments,text",
    [
        ({"causal": 1}, "attention: causal is 1; give True or False"),
        ({"scale": 0.0}, "scale is 0.0; give a finite positive number, or None for 1/sqrt(dim)"),
        ({"scale": math.nan}, "scale is nan"),
        ({"scale": True}, "scale is True"),
        ({"softcap": -1.0}, "softcap is -1.0; give a finite positive number, or None for no cap"),
        ({"softcap": math.inf}, "softcap is inf"),
        ({"window": 5}, "window is 5; give (left, right), or None for no window"),
        ({"window": (1, 2, 3)}, "window is (1, 2, 3)"),
        ({"window": (-1, 0)}, "window has left = -1; give a number of keys from 0"),
        ({"window": (0, 2.0)}, "window has right = 2.0"),
    ],
)
def test_refusals(arguments, text):
    with pytest.raises(UsageError) as caught:
        AttentionOptions(**arguments)
    assert text in str(caught.value)


def test_scale_and_reach():
    assert AttentionOptions().scale_of(64) == 0.125 and AttentionOptions(scale=2).scale_of(64) == 2.0
    assert AttentionOptions().reach == (None, None)
    assert AttentionOptions(causal=True).reach == (None, 0)
    assert AttentionOptions(causal=True, window=(4, 3)).reach == (4, 0)
    assert AttentionOptions(window=(None, 3)).reach == (None, 3)


def test_visible_keys_end_together():
    causal = AttentionOptions(causal=True)
    assert [list(causal.visible_keys(row, 2, 4)) for row in range(2)] == [[0, 1, 2], [0, 1, 2, 3]]
    assert [list(causal.visible_keys(row, 3, 1)) for row in range(3)] == [[], [], [0]]
    assert list(AttentionOptions(window=(1, 1)).visible_keys(2, 4, 8)) == [5, 6, 7]
