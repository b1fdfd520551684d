"""The paper's formulas by loops over Python numbers: Eqs. (1) to (8), and the scores of each row of Table 3."""

import math

import torch

from conv2attn.layers.attention import Encoding


def encoding_of(kind, axes, heads=3, width=4):
    """An encoding of random numbers in float64."""
    torch.manual_seed(axes)
    centers = torch.randn(heads, axes, dtype=torch.float64)
    made = {
        "quadratic": lambda: Encoding.of("quadratic", centers, torch.rand(heads, dtype=torch.float64) + 0.1),
        "generalised": lambda: Encoding.of("generalised", centers, torch.randn(heads, axes, axes, dtype=torch.float64)),
        "learned": lambda: Encoding.of("learned", heads, (4,) * axes, width),
        "sinusoidal": lambda: Encoding.of("sinusoidal", heads, axes, width),
    }
    return made[kind]().double()


def sinusoid(shift, width):
    """The vector of Vaswani et al. 2017, sines before cosines."""
    angles = [shift / 10_000 ** (2 * i / width) for i in range(width // 2)]
    return [*map(math.sin, angles), *map(math.cos, angles)]


def score(encoding, head, shift):
    """The score of a shift, by the formula of its paper."""
    if encoding.family.name in ("quadratic", "generalised"):
        away = [d - c for d, c in zip(shift, encoding.center[head].tolist(), strict=True)]
    match encoding.family.name:
        case "quadratic":
            return -encoding.alpha[head].item() * sum(d * d for d in away)
        case "generalised":
            root = encoding.root[head]
            precision = (root.mT @ root).tolist()
            axes = range(len(away))
            return -sum(away[i] * precision[i][j] * away[j] for i in axes for j in axes) / 2
        case "learned":
            vectors = [t[d + len(t) // 2].tolist() for t, d in zip(encoding.tables, shift, strict=True)]
        case "sinusoidal":
            vectors = [sinusoid(d, encoding.bias.shape[2]) for d in shift]
    return sum(b * r for row, r_axis in zip(encoding.bias[head].tolist(), vectors, strict=True)
               for b, r in zip(row, r_axis, strict=True))  # fmt: skip


def vector(encoding, shift):
    """r_delta."""
    match encoding.family.name:
        case "quadratic":
            return [sum(d * d for d in shift), *shift]
        case "generalised":
            return [*shift, *(shift[i] * shift[j] for i in range(len(shift)) for j in range(i, len(shift)))]
        case "learned":
            return [x for t, d in zip(encoding.tables, shift, strict=True) for x in t[d + len(t) // 2].tolist()]
        case "sinusoidal":
            return [x for d in shift for x in sinusoid(d, encoding.bias.shape[2])]


def loops(layer, image):
    """Eqs. (1) to (8) for one image (d_in, *sides), by loops over Python floats; of the product only its numbers."""
    numbers = {
        name: None if tensor is None else tensor.tolist()
        for name, tensor in {
            "query": layer.query,
            "key": layer.key,
            "position_key": layer.position_key,
            "u": layer.content_bias,
            "query_bias": layer.query_bias,
            "key_bias": layer.key_bias,
            "value": layer.weights.value,
            "output": layer.weights.output,
            "bias": layer.bias,
        }.items()
    }
    padded = layer.image_padding.pad(image[None])[0]
    sides = tuple(padded.shape[1:])
    places = coordinates(sides)
    tokens = {place: [padded[(c, *place)].item() for c in range(layer.d_in)] for place in places}
    sites = [
        tuple(b + o * s for b, o, s in zip(layer.sites.before, index, layer.sites.stride, strict=True))
        for index in coordinates(layer.sites.count(sides))
    ]
    results = []
    for site in sites:
        total = list(numbers["bias"])
        for h in range(layer.heads):
            q, terms = affine(numbers["query"], numbers["query_bias"], h, tokens[site]), layer.terms
            scores = []
            for place in places:
                delta = [k - s for k, s in zip(place, site, strict=True)]
                total_score = score(layer.encoding, h, delta) if terms.vr else 0.0
                key = affine(numbers["key"], numbers["key_bias"], h, tokens[place])
                if terms.qk:
                    total_score += dot(q, key)
                if terms.uk:
                    total_score += dot(numbers["u"][h], key)
                if terms.qr:
                    r = vector(layer.encoding, delta)
                    total_score += dot(q, times(numbers["position_key"][h], r) if numbers["position_key"] else r)
                scores.append(total_score)
            weights = [math.exp(each - max(scores)) for each in scores]
            mixed = [
                sum(w * tokens[place][c] for w, place in zip(weights, places, strict=True)) / sum(weights)
                for c in range(layer.d_in)
            ]
            total = [t + o for t, o in zip(total, through(numbers, layer, h, mixed), strict=True)]
        results.append(total)
    return torch.tensor(results, dtype=torch.float64).T.reshape(layer.d_out, *layer.sites.count(sides))


def affine(matrices, biases, h, token):
    """`W token + b` of one head; None without a matrix."""
    if matrices is None:
        return None
    bias = biases[h] if biases else [0.0] * len(matrices[h])
    return [x + b for x, b in zip(times(matrices[h], token), bias, strict=True)]


def through(numbers, layer, h, mixed):
    """`mixed W_val^h W_out^h`, group by group."""
    step, result = layer.d_in // layer.groups, []
    for g in range(layer.groups):
        part = mixed[g * step : (g + 1) * step]
        if numbers["value"]:
            width = layer.d_head // layer.groups
            part = times(numbers["value"][h][g * width : (g + 1) * width], part)
        if numbers["output"]:
            height = layer.d_out // layer.groups
            part = times(numbers["output"][h][g * height : (g + 1) * height], part)
        result += part
    return result


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def times(matrix, vector):
    return [dot(row, vector) for row in matrix]


def coordinates(sides):
    return [(i, *rest) for i in range(sides[0]) for rest in coordinates(sides[1:])] if sides else [()]
