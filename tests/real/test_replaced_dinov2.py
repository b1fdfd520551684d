"""What replacing heads of DINOv2-small changes, on photographs, is what an independent loop with hooks says.

Pictures are of 112 pixels a side, for which the network interpolates its positions, and pass its first three layers:
that takes an eighth of the time.
"""

import importlib.util
from pathlib import Path

import pytest
import torch
from packaged import photograph
from torch.nn.functional import interpolate

import conv2attn
from conv2attn import heads

MODELS = Path(conv2attn.__file__).parents[1] / "examples" / "atlas" / "models.py"
PHOTOGRAPHS = ("astronaut", "chelsea", "coffee", "rocket")
SIDE, HEADS = 8, 6
NAMED = {0: [5], 2: [2]}
"""Heads that are replaced, by layer."""


@pytest.fixture(scope="module")
def network():
    """The first layers of the trained network."""
    spec = importlib.util.spec_from_file_location("atlas_models", MODELS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network = module.dinov2()
    del network.encoder.layer[3:]
    return network


@pytest.fixture(scope="module")
def images():
    """Four photographs at 112x112, normalised as ImageNet's."""
    pictures = [photograph(name)[:, :3] / 255 for name in PHOTOGRAPHS]
    batch = torch.cat([interpolate(each, (112, 112), mode="bilinear", antialias=True) for each in pictures])
    mean, std = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
    return (batch - mean[:, None, None]) / std[:, None, None]


def layer_names(network):
    """The modules that attend, in their order."""
    return [name for name, module in network.named_modules() if hasattr(module, "q_proj")]


def run(network, image, maps, kept=None):
    """The output for one image where a hook forms each named layer anew, head by head, with `maps` in place."""
    names, handles = layer_names(network), []

    def anew(number):
        def hook(module, args, kwargs, output):
            tokens = args[0] if args else kwargs["hidden_states"]
            mixed = []
            for head in range(HEADS):
                part = slice(head * 64, head * 64 + 64)
                query, key, value = (each(tokens)[0, :, part] for each in (module.q_proj, module.k_proj, module.v_proj))
                weights = (query @ key.T / 8).softmax(-1)
                if kept is not None:
                    kept[number, head] = weights
                mixed.append(maps.get((number, head), weights) @ value)
            return (module.o_proj(torch.cat(mixed, -1))[None], *output[1:])

        return hook

    for number in NAMED:
        handles.append(network.get_submodule(names[number]).register_forward_hook(anew(number), with_kwargs=True))
    try:
        return network(image[None]).last_hidden_state
    finally:
        for handle in handles:
            handle.remove()


def by_displacement(mean):
    """A map of the class token and 8x8 patches, patches by displacement: one loop over queries and one over keys."""
    sums, counts = torch.zeros(2 * SIDE - 1, 2 * SIDE - 1), torch.zeros(2 * SIDE - 1, 2 * SIDE - 1)
    patches = mean[1:, 1:].reshape(SIDE, SIDE, SIDE, SIDE)
    for row in range(SIDE):
        for column in range(SIDE):
            box = (slice(SIDE - 1 - row, 2 * SIDE - 1 - row), slice(SIDE - 1 - column, 2 * SIDE - 1 - column))
            sums[box] += patches[row, column]
            counts[box] += 1
    table, result = sums / counts, mean.clone()
    for row in range(SIDE):
        for column in range(SIDE):
            own = table[SIDE - 1 - row : 2 * SIDE - 1 - row, SIDE - 1 - column : 2 * SIDE - 1 - column].flatten()
            query = 1 + row * SIDE + column
            result[query, 1:] = own / own.sum() * mean[query, 1:].sum()
    return result


@torch.no_grad()
def test_replaced_heads_change_the_features_as_a_loop_with_hooks_says(network, images):
    names = layer_names(network)
    wanted = {names[number]: numbers for number, numbers in NAMED.items()}
    report = heads(network, images, replace="position", replaced_heads=wanted, only=list(wanted))
    found = {layer.name: layer for layer in report.layers}
    means = {}
    for image in images[::2]:
        kept = {}
        run(network, image, {}, kept)
        for key, weights in kept.items():
            means[key] = means.get(key, 0) + weights / 2
    every = {(number, head): by_displacement(means[number, head]) for number, each in NAMED.items() for head in each}

    plain = [network(image[None]).last_hidden_state for image in images[1::2]]

    def change(maps):
        forced = [run(network, image, maps) for image in images[1::2]]
        return sum(float((a - b).norm() / b.norm()) for a, b in zip(forced, plain, strict=True)) / len(plain)

    for (number, head), table in every.items():
        replaced = found[names[number]].heads[head].replaced
        expected = change({(number, head): table})
        assert expected > 1e-3
        assert replaced.effect.change == pytest.approx(expected, rel=1e-3)
        even = means[number, head].clone()  # the class token keeps its mean attention, as query and as key
        even[1:, 1:] = even[1:, 1:].sum(-1, keepdim=True) / SIDE**2
        assert replaced.uniform.change == pytest.approx(change({(number, head): even}), rel=1e-3)
    assert report.together.effect.change == pytest.approx(change(every), rel=1e-3)
