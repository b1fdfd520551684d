"""Types of the public calls, as a type checker sees them."""

from typing import get_args, get_overloads, get_type_hints

from conv2attn import MultiHeadSelfAttention, convert, set_engine
from conv2attn.layers.attention import ENGINES
from conv2attn.layers.theorem import STOCK
from conv2attn.theory.basis import FAMILIES

HARD = [name for name, family in FAMILIES.items() if family.sharpens]


def test_a_convolution_gives_attention_and_any_other_module_its_own_class():
    *_, layer, network = map(get_type_hints, get_overloads(convert))
    assert (get_args(layer["model"]), layer["return"]) == (STOCK, MultiHeadSelfAttention)
    assert network["model"] is network["return"]


def test_choices_are_literals():
    hints = get_type_hints(convert)
    assert set(get_args(hints["encoding"])) == set(HARD)
    assert get_args(hints["stride_by"]) == ("queries", "pooling")
    assert set(get_args(get_type_hints(set_engine)["engine"])) == set(ENGINES)
