"""The formulas of the docstrings once more, in 100-digit arithmetic: constants too small to show on examples."""

import mpmath
import pytest

from conv2attn.bounds import FORMATS, absolute_score_error
from conv2attn.bounds.formats import accumulator_of

mpf = mpmath.mpf


@pytest.fixture(autouse=True)
def _hundred_digits():
    with mpmath.workdps(400):
        yield


def just_above(bound, formula, slack=1e-13):
    return formula <= bound <= formula * (1 + slack) + mpf(2) ** -1073


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_score_error(name, dimensions):
    def gamma(operations, u):
        return operations * mpf(u) / (1 - operations * mpf(u))

    features = 1 + gamma(5, FORMATS[name].unit_roundoff)
    relative = features * (1 + gamma(dimensions + 1, accumulator_of(name).unit_roundoff)) - 1
    formula = 3 * dimensions * relative * mpf(46.5) * 49
    assert just_above(absolute_score_error(46.5, 7, dimensions, name), formula)
