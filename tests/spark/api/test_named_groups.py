"""Key groups as users name them."""

from __future__ import annotations

import pytest

from ferryman._spark.api.reconfiguring import _numbers
from ferryman.errors import InvalidPlan


@pytest.mark.parametrize("groups", ["12", "x", [1.9], ["3"], True, [None]])
def test_groups_that_are_no_numbers_are_refused(groups):
    with pytest.raises(InvalidPlan, match="whole numbers"):
        _numbers(groups)


def test_groups_are_one_number_or_several():
    assert (_numbers(3), _numbers(range(2)), _numbers({5})) == ([3], [0, 1], [5])
