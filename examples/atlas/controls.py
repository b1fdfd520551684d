"""Controls for the heads of DINOv2-small: `python controls.py` writes `results/controls.json` and `controls.md`.

Ten seeds each of: photos whose patches are shuffled, alike in all photos; a shuffled table of positions; and untrained
twins whose queries are scaled, head by head, until each head has the entropy of the trained one. Photos are of 112
pixels a side, 8x8 patches; the trained network is also measured at 168 and 224.
"""

import json
import math
import sys
from pathlib import Path

import torch
from models import dinov2, photos
from scipy.stats import t as student

import conv2attn

SEEDS, PHOTOS, SIDE, PATCH = 10, 8, 112, 14
OUTLIER = 3.0
"""Times the median norm of a photo's tokens from which a token counts as an outlier."""
MEASURES = {
    "shift": "heads with half of their attention on one displacement other than zero",
    "partly shift": "heads with a quarter of it there",
    "itself": "heads with half of their attention on their own position",
    "relative": "share of the energy about the mean that the displacement explains, a mean over heads",
    "distance": "mean attention distance in patches, a mean over heads",
}


def measured(network, images):
    """The measures of all heads, and the mean attention distance by layer in shares of the side."""
    side = images.shape[-1] // PATCH
    report = conv2attn.heads(conv2attn.capture(network, images), grid=(side, side), extra_tokens=1)
    heads = [head for layer in report.layers for head in layer.heads]
    away = [head.peak_mass if any(head.peak) else 0.0 for head in heads]
    numbers = {
        "shift": sum(mass >= 0.5 for mass in away),
        "partly shift": sum(mass >= 0.25 for mass in away),
        "itself": sum(head.itself >= 0.5 for head in heads),
        "relative": sum(head.relative or 0.0 for head in heads) / len(heads),
        "distance": sum(head.distance for head in heads) / len(heads),
    }
    by_layer = [sum(head.distance for head in layer.heads) / len(layer.heads) / side for layer in report.layers]
    return numbers, by_layer


def order(seed, count):
    """A random order of so many patches."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def with_patches_shuffled(images, seed):
    """The photos with their patches in another order, one for all of them."""
    side = images.shape[-1] // PATCH
    patches = images.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH).flatten(2, 3)[:, :, order(seed, side**2)]
    rows = patches.unflatten(2, (side, side)).permute(0, 1, 2, 4, 3, 5)
    return rows.reshape(images.shape)


def with_own_positions(network, seed=None):
    """The network with the table of its positions at `SIDE`, those of the patches shuffled by a seed."""
    embeddings, count = network.embeddings, (SIDE // PATCH) ** 2
    table = embeddings.interpolate_pos_encoding(torch.zeros(1, 1 + count, 384), SIDE, SIDE).detach().clone()
    if seed is not None:
        table[:, 1:] = table[:, 1:][:, order(seed, count)]
    embeddings.position_embeddings = torch.nn.Parameter(table)
    return network


def layers_of(network):
    """The layers of the network, in their order."""
    return [module for module in network.modules() if type(module).__name__ == "Dinov2Layer"]


def scores_of(layer, hidden):
    """The scores of the heads of a layer, (photos, heads, queries, keys), and its module of queries."""
    tokens = layer.norm1(hidden)
    (query, key) = (next(m for n, m in layer.named_modules() if n.endswith(name)) for name in ("q_proj", "k_proj"))
    heads = [each(tokens).unflatten(-1, (6, 64)).transpose(1, 2) for each in (query, key)]
    return heads[0] @ heads[1].mT / 8, query


def behind(layer, hidden):
    """The tokens behind a layer."""
    output = layer(hidden)
    return output if isinstance(output, torch.Tensor) else output[0]


def entropies(network, images):
    """The mean entropy of each head of each layer."""
    hidden, found = network.embeddings(images), []
    for layer in layers_of(network):
        found.append(entropy(scores_of(layer, hidden)[0]))
        hidden = behind(layer, hidden)
    return found


def entropy(scores, factor=1.0):
    """The mean entropy of each head."""
    logs = (scores * factor).log_softmax(-1)
    return -(logs.exp() * logs).sum(-1).mean((0, 2))


def matched_twin(wanted, images, seed):
    """An untrained network, each head's queries scaled until its entropy is the one wanted; and the largest gap."""
    twin, apart = with_own_positions(dinov2(seed)), 0.0
    hidden = twin.embeddings(images)
    for layer, target in zip(layers_of(twin), wanted, strict=True):
        scores, query = scores_of(layer, hidden)
        low, high = torch.full((6,), -10.0), torch.full((6,), 20.0)
        for _ in range(40):
            middle = (low + high) / 2
            flat = entropy(scores, middle.exp()[:, None, None]) > target
            low, high = torch.where(flat, middle, low), torch.where(flat, high, middle)
        for parameter in (query.weight, query.bias):
            parameter.data *= low.exp().repeat_interleave(64).view(-1, *[1] * (parameter.ndim - 1))
        apart = max(apart, float((entropy(scores_of(layer, hidden)[0]) - target).abs().max()))
        hidden = behind(layer, hidden)
    return twin, apart


def corrected(values):
    """Holm's corrected p-values by key."""
    ordered, largest, found = sorted(values, key=values.get), 0.0, {}
    for place, key in enumerate(ordered):
        largest = max(largest, min(1.0, (len(ordered) - place) * values[key]))
        found[key] = largest
    return found


def compared(own, controls):
    """For each control and measure its mean and deviation over seeds, and a corrected p-value.

    Student's t of the difference between the trained network and one more control, two-sided; None where the controls
    do not vary, since they do not tell then how far another one would be.
    """
    rows, values = {}, {}
    for name, runs in controls.items():
        for measure in MEASURES:
            numbers = torch.tensor([float(run[measure]) for run in runs], dtype=torch.float64)
            mean, spread = float(numbers.mean()), float(numbers.std())
            rows[f"{name}, {measure}"] = (mean, spread)
            if spread:
                ratio = abs(own[measure] - mean) / (spread * math.sqrt(1 + 1 / SEEDS))
                values[f"{name}, {measure}"] = float(2 * student.sf(ratio, SEEDS - 1))
    found = corrected(values)
    return {key: (*row, found.get(key)) for key, row in rows.items()}


def outlier_norms(network, images):
    """For each layer the share of patch tokens whose norm is `OUTLIER` times the median of their photo, and the top."""
    states = network(images, output_hidden_states=True).hidden_states[1:]
    norms = [state[:, 1:].norm(dim=-1) for state in states]
    ratios = [each / each.median(-1, keepdim=True).values for each in norms]
    return [(float((each >= OUTLIER).float().mean()), float(each.max())) for each in ratios]


@torch.no_grad()
def main():
    """Measures all, and writes both files."""
    images = {side: photos(side, PHOTOS) for side in (SIDE, 168, 224)}
    sizes = {side: measured(dinov2(), each) for side, each in images.items()}
    trained = with_own_positions(dinov2())
    own, _ = measured(trained, images[SIDE])
    controls = {"patches shuffled": [], "positions shuffled": [], "twins of equal entropy": []}
    apart, wanted = 0.0, entropies(trained, images[SIDE])
    for seed in range(SEEDS):
        controls["patches shuffled"].append(measured(trained, with_patches_shuffled(images[SIDE], seed))[0])
        shuffled = with_own_positions(dinov2(), seed)
        controls["positions shuffled"].append(measured(shuffled, images[SIDE])[0])
        twin, gap = matched_twin(wanted, images[SIDE], seed)
        apart = max(apart, gap)
        controls["twins of equal entropy"].append(measured(twin, images[SIDE])[0])
        print(f"seed {seed}", file=sys.stderr, flush=True)
    found = {
        "trained": own,
        "controls": controls,
        "compared": compared(own, controls),
        "entropy apart": apart,
        "sizes": {str(side): numbers for side, (numbers, _) in sizes.items()},
        "distance by layer": {str(side): by_layer for side, (_, by_layer) in sizes.items()},
        "outlier norms": outlier_norms(dinov2(), images[224]),
    }
    results = Path(__file__).parent / "results"
    (results / "controls.json").write_text(json.dumps(found, indent=1) + "\n")
    (results / "controls.md").write_text(page(found) + "\n")


def page(found):
    """The tables as Markdown."""
    names, sizes = found["controls"], found["sizes"]
    lines = ["| measure | trained | " + " | ".join(names) + " |", "| --- " * (2 + len(names)) + "|"]
    for measure in MEASURES:
        cells = []
        for name in names:
            mean, spread, value = found["compared"][f"{name}, {measure}"]
            tail = "" if value is None else " (p < 0.001)" if value < 0.001 else f" (p = {value:.1g})"
            cells.append(f"{mean:.3g} ± {spread:.2g}{tail}")
        lines.append(f"| {measure} | {found['trained'][measure]:.3g} | " + " | ".join(cells) + " |")
    lines += ["", "| measure | " + " | ".join(sizes) + " |", "| --- " * (1 + len(sizes)) + "|"]
    for measure in MEASURES:
        lines.append(f"| {measure} | " + " | ".join(f"{each[measure]:.3g}" for each in sizes.values()) + " |")
    distances = " | ".join(f"distance at {side}" for side in sizes)
    lines += ["", f"| layer | {distances} | outliers | largest norm |", "| --- " * (3 + len(sizes)) + "|"]
    for layer, (share, top) in enumerate(found["outlier norms"]):
        cells = [f"{each[layer]:.3f}" for each in found["distance by layer"].values()]
        lines.append(f"| {layer} | " + " | ".join(cells) + f" | {share:.1%} | {top:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
