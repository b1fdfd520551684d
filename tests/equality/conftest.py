"""Hooks on all modules end with the test that registered them."""

import pytest
from torch import nn


@pytest.fixture(autouse=True)
def no_hooks_on_all_modules():
    yield
    nn.modules.module._global_forward_hooks.clear()
