"""Real numbers of the tests of bounds have many more digits than floats."""

import mpmath
import pytest


@pytest.fixture(autouse=True, scope="module")
def _many_digits():
    with mpmath.workdps(800):
        yield
