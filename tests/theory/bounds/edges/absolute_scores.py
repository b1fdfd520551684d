"""Scores from absolute features: exact where they are said to be, and else within their bound."""

from fractions import Fraction

import pytest
import torch

from conv2attn.theory.bounds import FORMATS, absolute_score_error, exact_absolute_features

DTYPES = {name: getattr(torch, name) for name, form in FORMATS.items() if not form.cuts}


def features(alpha, centre, keys, name):
    """Query and key features, stored in the format."""
    dtype = DTYPES[name]
    alpha, centre, keys = (torch.as_tensor(x, dtype=torch.float64).to(dtype) for x in (alpha, centre, keys))
    wide = torch.float64 if name == "float64" else torch.float32
    query = torch.cat([2 * alpha * centre, -alpha[None]])
    squares = (keys.to(wide) ** 2).sum(1, keepdim=True)
    return query, torch.cat([keys, squares.to(dtype)], 1), wide


def computed_scores(alpha, centre, keys, name):
    query, key, wide = features(alpha, centre, keys, name)
    return key.to(wide) @ query.to(wide)


def true_score(alpha, centre, key):
    alpha, centre, key = Fraction(alpha), [Fraction(c) for c in centre], [Fraction(k) for k in key]
    return sum(2 * alpha * c * k - alpha * k * k for c, k in zip(centre, key, strict=True))


def corner(largest):
    return [(largest - i, largest - j) for i in range(3) for j in range(3)] + [(-largest, largest), (0, 0)]


LARGEST = {"bfloat16": 11, "float16": 32, "float32": 1672, "tf32": 32, "bf32": 11, "float64": 38745320}


def test_exactness_needs_a_power_of_two_within_range():
    for alpha in (46.0, 0.0, -64.0, float("nan"), float("inf"), 2.0**-150, 2.0**120):
        assert not exact_absolute_features(alpha, 100, 2, "float32")
    assert exact_absolute_features(2.0**-14, 20, 2, "float16")  # the smallest normal number
    assert exact_absolute_features(2.0**11, 15, 2, "float16")
    assert not exact_absolute_features(2.0**11, 16, 2, "float16")  # 2 alpha L is 2^16, which overflows
    assert exact_absolute_features(4.0, 0, 2, "float32")
    assert not exact_absolute_features(4.0, -1, 2, "float32")
    assert exact_absolute_features(46.0, 1, 1, "float32") is False
    assert exact_absolute_features(2.0**127, 0, 2, "float32")  # one pixel: every feature but alpha is 0
    assert exact_absolute_features(2.0**126, 1, 1, "float32")  # sums of 3 alpha are below 2^128
    assert not exact_absolute_features(2.0**125, 1, 3, "float32")  # those of 9 alpha are not


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("alpha", [0.3, 46.0, 100.1])
def test_score_errors_stay_within_the_bound(name, alpha):
    alpha = torch.tensor(alpha, dtype=torch.float64).to(DTYPES[name]).double().item()
    random = torch.Generator().manual_seed(1)
    for largest in (3, 20, 45):
        centre = ((torch.rand(2, generator=random, dtype=torch.float64) * 2 - 1) * largest).tolist()
        keys = corner(largest)
        computed = computed_scores(alpha, centre, keys, name).double()
        bound = Fraction(absolute_score_error(alpha, largest, 2, name))
        errors = [
            abs(Fraction(score) - true_score(alpha, centre, key))
            for score, key in zip(computed.tolist(), keys, strict=True)
        ]
        assert max(errors) <= bound
        assert not all(error <= bound / 1000 for error in errors)
