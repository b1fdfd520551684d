"""Positions of heads as tests change them, whether they train or not."""

from contextlib import contextmanager


@contextmanager
def changing(layer, name):
    """The positions with this name as a tensor in the dtype of scores; what the block makes of it is assigned."""
    numbers = getattr(layer.positions, name).detach().clone()
    yield numbers
    layer.encoding.assign(**{name: numbers})


def changed(layer, name, change):
    """The layer, of whose positions with this name `change` has changed the tensor in place."""
    with changing(layer, name) as numbers:
        change(numbers)
    return layer
