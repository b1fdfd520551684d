"""Hooks on all modules end with the test that registered them."""

import pytest
from equality.cases import forget_hooks_on_all_modules


@pytest.fixture(autouse=True)
def no_hooks_on_all_modules():
    yield
    forget_hooks_on_all_modules()
