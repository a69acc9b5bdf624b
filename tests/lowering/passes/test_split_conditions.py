"""split_conditions: conditions around ops give values, as in the kernel as it is written."""

from __future__ import annotations

import numpy as np
import pytest
from amdwarp.lowering.bridge import filecheck

from amdwarp.sanitizer import check

pytestmark = pytest.mark.usefixtures("needs_triton")


@pytest.mark.parametrize("how", ["tasks", "pipeline"])
@pytest.mark.parametrize(
    "case", ["one branch", "two branches", "one after another", "nested", "no value of an op", "between ops"]
)
def test_conditions_that_give_values(case: str, how: str) -> None:
    from ws_conditions import build, computed

    made, straight = build(case, how), build(case, "none")
    for n, limit in ((0, 0), (1, 0), (5, 2), (4, 9), (7, 0)):
        expected = computed(straight, n, limit)
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(computed(made, n, limit), expected)


def test_the_condition_is_inside_the_op() -> None:
    from ws_conditions import build

    filecheck(
        build("two branches", "pipeline").asm["amdwarp"],
        """
        CHECK: scf.for
        CHECK: [[A:%[^ ]+]] = scf.if {{.*}} -> (tensor
        CHECK: arith.addf
        CHECK: } else {
        CHECK: } {amdwarp.ws.guard}
        CHECK: scf.if {{.*}} -> (tensor
        CHECK: scf.yield [[A]]
        CHECK: } else {
        CHECK: arith.subf
        """,
    )


def test_free_of_races() -> None:
    from ws_conditions import arguments, build

    report = check(build("two branches", "tasks"), arguments(6, 2), (1,), seeds=2)
    assert report.ok, str(report)


@pytest.mark.parametrize("how", ["tasks", "pipeline"])
def test_a_loop_of_no_iteration(how: str) -> None:
    from ws_conditions import build, computed

    made = computed(build("no iteration", how), 3, 0)
    np.testing.assert_array_equal(made, computed(build("no iteration", "none"), 3, 0))
    assert (made[0] == 0).all()
