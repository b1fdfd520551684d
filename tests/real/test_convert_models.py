"""Models of packages that look into their own convolutions: converted with an input and without one."""

import pytest
import torch
from encoders import VISION, pictures, vision

from conv2attn import conversion_of, convert


@pytest.mark.parametrize("with_example", [False, True])
@pytest.mark.parametrize("name", VISION)
def test_a_transformer_that_reads_the_dtype_of_its_patch_embedding(name, with_example):
    model = vision(name)
    image = pictures(model)
    network = convert(model, example_input=image if with_example else None)
    assert {row.outcome for row in conversion_of(network).rows} == {"converted"}
    with torch.no_grad():
        torch.testing.assert_close(network(image).last_hidden_state, model(image).last_hidden_state)
