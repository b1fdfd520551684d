"""Validation on few images: on all of the digits it would take longer than the training does."""

from dataclasses import replace

import pytest

from conv2attn.lab.data import read_images_of


@pytest.fixture(scope="module", autouse=True)
def few_test_images():
    def read(source):
        images = read_images_of(source)
        return replace(images, test_pixels=images.test_pixels[:30], test_labels=images.test_labels[:30])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("conv2attn.lab.training.loop.read_images_of", read)
        yield
