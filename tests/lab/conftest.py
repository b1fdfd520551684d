"""Validation on few images in all tests of training."""

import pytest
from lab.cases import few_test_images


@pytest.fixture(scope="module", autouse=True)
def on_few_images():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("conv2attn.lab.training.loop.read_images_of", few_test_images)
        yield
