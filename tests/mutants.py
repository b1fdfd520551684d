"""Errors that a mistaken hand could make in this package, each with a fast test that must fail on it.

`python tests/mutants.py` runs them all, in forks of one process, on a copy of the package, and prints the table as
JSON: for each mutant the exit code of its test on the mutated package, and on the package as it is.
"""

import json
import os
import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import flint  # noqa: F401  imported once, before the forks
import hypothesis  # noqa: F401
import pytest
import scipy.optimize  # noqa: F401
import sympy  # noqa: F401
import torch

ROOT = Path(__file__).parent.parent


class Mutant(NamedTuple):
    """`old` becomes `new` in a file of the package; `test` must then fail."""

    file: str
    old: str
    new: str
    test: str


ALPHA = "tests/bounds/edges/alpha.py"
LEAK = "tests/bounds/edges/leak.py"
ROUNDING = "tests/bounds/edges/rounding.py"
PLANTED = "tests/equivalence/edges/planted_errors.py::test_a_planted_error_is_refuted_by_its_part"
SHOWN = (
    "tests/equivalence/edges/planted_errors.py"
    "::test_a_planted_error_is_shown_by_an_input_and_not_by_the_corrected_network"
)
NETWORKS = "tests/equivalence/edges/networks.py"
MAPS = "tests/equivalence/edges/maps.py"
OUTPUTS = "tests/equivalence/edges/outputs.py"
ROUNDED = "tests/equivalence/edges/rounding.py"
TOLERANCE = "tests/equivalence/edges/tolerances.py"
BASIS = "tests/basis/laws.py"
DIFFERENCE = "tests/bounds/edges/rounding.py::test_difference_of_a_leaking_layer_and_its_convolution"
HALVINGS = "halvings = 1 - storage.smallest_subnormal_exponent"

MUTANTS = {
    "alpha 46 for 128": Mutant("bounds/alpha.py", HALVINGS, "halvings = 66", ALPHA),
    "alpha 88 for 128": Mutant("bounds/alpha.py", HALVINGS, "halvings = 127", ALPHA),
    "alpha 1024 for all": Mutant(
        "bounds/alpha.py", "SMALLEST_AUTO_ALPHA = 46.0", "SMALLEST_AUTO_ALPHA = 1000.0", ALPHA
    ),
    "alpha not a power of two": Mutant("bounds/alpha.py", "alpha *= 2", "alpha += 1", ALPHA),
    "a bit more in float32": Mutant("bounds/formats.py", '"float32", 24', '"float32", 25', ALPHA),
    "tf32 as float32": Mutant(
        "bounds/formats.py",
        '"tf32", 11',
        '"tf32", 24',
        f"{ROUNDED}::test_products_that_may_be_cut_are_counted_by_the_coarsest_setting",
    ),
    "rounded to nearest": Mutant(
        "bounds/directed.py", "return nearest if nearest >= exact else", "return nearest or", ALPHA
    ),
    "a leak by cancellation": Mutant(
        "bounds/leak.py", "return odds / (1 + odds)", "return 1 - 1 / (1 + odds) * 1.0", LEAK
    ),
    "a leak forgets the far keys": Mutant(
        "bounds/leak.py", "return pairs + arb(0).union(tail)", "return pairs / 2", LEAK
    ),
    "gamma halved": Mutant(
        "bounds/rounding.py", "return operations * unit_roundoff /", "return operations * unit_roundoff / 2 /", ROUNDING
    ),
    "the bias is not rounded": Mutant(
        "bounds/rounding.py", "operations, coarse = terms + bias,", "operations, coarse = terms,", ROUNDING
    ),
    "the cast is not counted": Mutant("bounds/rounding.py", "(1 + cast) ** casts - 1", "1 - 1", ROUNDING),
    "half of the leak": Mutant("bounds/difference.py", "(2 * Fraction(leak)", "(Fraction(leak) / 4", DIFFERENCE),
    "weights within a tolerance": Mutant(
        "equivalence/tap_sums.py",
        "return ~(at_places(first, ours, places) == at_places(second, theirs, places))",
        "return (at_places(first, ours, places) - at_places(second, theirs, places)).abs() > 1e-6",
        f"{PLANTED}[one weight by one ulp]",
    ),
    "biases not compared": Mutant(
        "equivalence/layers.py", "if unequal.any():", "if False:", f"{PLANTED}[a large bias by one ulp]"
    ),
    "padding mode not compared": Mutant(
        "equivalence/layers.py",
        "first.mode != second.mode",
        "False",
        f"{PLANTED}[reflect replaced by replicate]",
    ),
    "stride not compared": Mutant(
        "basis/form.py",
        "return Form(sites.stride,",
        "return Form((1,) * len(sites.stride),",
        f"{PLANTED}[stride that shows at some sizes only]",
    ),
    "heads off the grid": Mutant(
        "equivalence/layers.py",
        "return judge_out_of_bounds(original, converted)",
        'return holds("geometry")',
        f"{MAPS}::test_heads_off_the_grid_of_two_axes",
    ),
    "any leak": Mutant(
        "equivalence/leak.py",
        "if not least > roundoff:",
        "if not least > 1:",
        f"{PLANTED}[leak above the roundoff]",
    ),
    "bounded called proved": Mutant(
        "equivalence/leak.py",
        "if not any(computed.values()) and",
        "if max(computed.values()) <= 1e-15 and",
        f"{NETWORKS}::test_strength_follows_alpha_and_not_what_is_measured",
    ),
    "one prime": Mutant(
        "equivalence/exact_sums.py",
        "while product <= 1 << bits",
        "while product <= 1",
        f"{MAPS}::test_a_difference_that_many_moduli_divide_is_a_difference",
    ),
    "composite moduli": Mutant(
        "equivalence/exact_sums.py",
        "return odd > 1 and all(",
        "return odd > 1 or all(",
        f"{MAPS}::test_a_difference_that_many_moduli_divide_is_a_difference",
    ),
    "a bit less in float32": Mutant(
        "equivalence/exact_sums.py",
        "torch.float32: 24",
        "torch.float32: 23",
        f"{MAPS}::test_one_ulp_of_a_factor_is_seen_in_every_format",
    ),
    "NaN passes": Mutant(
        "equivalence/outputs.py",
        "if not bool(second.isfinite().all()):\n        return math.inf",
        "if not bool(second.isfinite().all()):\n        return 0.0",
        f"{SHOWN}[NaN in an output]",
    ),
    "missing outputs pass": Mutant(
        "equivalence/outputs.py",
        "if list(ours) != list(theirs):",
        "if False:",
        f"{OUTPUTS}::test_outputs_are_compared_by_place_and_kind",
    ),
    "constants not compared": Mutant(
        "equivalence/graph.py",
        "{tuple(tensor.shape)} {digest}",
        "{tuple(tensor.shape)}",
        f"{SHOWN}[a buffer by one ulp]",
    ),
    "operators not compared": Mutant(
        "equivalence/graph.py",
        "for ours, theirs in pairs if ours.key != theirs.key)",
        "for ours, theirs in pairs if not ours.key)",
        "tests/equivalence/laws.py::test_a_changed_context_never_holds[slope of an activation]",
    ),
    "sizes not compared": Mutant(
        "equivalence/graph.py",
        "    if first.conditions != second.conditions:\n        told",
        "    if False:\n        told",
        "tests/equivalence/laws.py::test_a_changed_context_never_holds[code for certain batch sizes]",
    ),
    "undecided exits 0": Mutant(
        "verdicts.py", "return 3", "return 0", f"{NETWORKS}::test_where_nothing_was_checked_nothing_holds"
    ),
    "the best row decides": Mutant(
        "verdicts.py",
        "return max(verdicts, key=order.index",
        "return min(verdicts, key=order.index",
        f"{PLANTED}[head dropped]",
    ),
    "the bound forgets the layer": Mutant(
        "equivalence/tolerance.py",
        "(passed.error + own)",
        "passed.error",
        f"{TOLERANCE}::test_the_bound_of_a_leaking_network_is_of_the_size_of_the_difference",
    ),
    "any bound will do": Mutant(
        "equivalence/tolerance.py",
        "if bound is not None and bound <= tolerance:",
        "if bound is not None and bound >= 0:",
        f"{TOLERANCE}::test_of_a_layer_the_bound_decides_or_an_input_and_between_them_nothing",
    ),
    "a certificate of any file": Mutant(
        "equivalence/rechecking.py",
        "if sha256(Path(path)) != known]",
        "if False]",
        "tests/equivalence/edges/rechecks.py::test_a_file_that_changed_is_refuted_before_it_is_read",
    ),
    "query minus key": Mutant(
        "basis/grid.py",
        "return self.key_coordinates()[None] - torch.stack(sites, -1)[:, None]",
        "return torch.stack(sites, -1)[:, None] - self.key_coordinates()[None]",
        BASIS,
    ),
    "reflect off by one": Mutant(
        "basis/padding.py", "((side - 1) - place.abs()).abs()", "(side - place.abs()).abs()", BASIS
    ),
    "only the first queries are solved": Mutant(
        "span/rational/containment.py",
        "if any(left):",
        "if False:",
        "tests/span/edges/exact_rows.py::test_a_query_far_behind_the_equations_that_were_solved_is_not_passed_over",
    ),
    "a norm that no residual raises": Mutant(
        "span/programme/dual.py",
        "slope += Fraction(sum",
        "slope += 0 * Fraction(sum",
        "tests/span/edges/duals.py::test_no_mixing_is_larger_than_the_bound_on_norms",
    ),
    "floats of exact rows decide": Mutant(
        "span/programme/decision.py",
        "if attention.exact:\n        given",
        "if False:\n        given",
        "tests/span/edges/exact_rows.py::test_the_floats_of_exact_rows_decide_nothing",
    ),
    "what a dual meets is not charged": Mutant(
        "span/programme/dual.py",
        "(self.gain - norm * self.met) / self.peak",
        "self.gain / self.peak",
        "tests/span/laws.py::test_verdicts_at_the_border_are_those_of_an_independent_programme",
    ),
    "a residual that grows with the norm counts as none": Mutant(
        "span/conditions/limits.py",
        "min(norm, largest)",
        "norm",
        "tests/span/edges/arguments.py::test_the_largest_norm",
    ),
    "taps of a transposed layer not flipped back": Mutant(
        "theorem/modules.py",
        "weight.flip(list(range(2, weight.ndim)))",
        "weight",
        "tests/span/edges/recovered.py::test_recovered_modules_compute_the_same",
    ),
}


def run(folder: Path, test: str) -> int:
    """The exit code of a test on the package in `folder`, in a fork, which imports it anew and torch not again."""
    child = os.fork()
    if child == 0:
        arguments = [str(folder / test), f"--rootdir={folder}", "-q", "-x", "--tb=no"]
        arguments += ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        code = 70
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        try:
            code = int(pytest.main(arguments))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> None:
    """Runs every mutant, and each test on the package as it is."""
    torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),))  # sets torch's exporter up once, before the forks
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        copy_package(folder)
        whole = {test: run(folder, test) for test in dict.fromkeys(mutant.test for mutant in MUTANTS.values())}
        found = {}
        for title, mutant in MUTANTS.items():
            path = folder / "conv2attn" / mutant.file
            text = path.read_text()
            if text.count(mutant.old) != 1:
                raise SystemExit(f"{title}: {mutant.old!r} is in {mutant.file} {text.count(mutant.old)} times")
            path.write_text(text.replace(mutant.old, mutant.new))
            found[title] = {"whole": whole[mutant.test], "mutated": run(folder, mutant.test)}
            path.write_text(text)
        print(json.dumps({"home": home_of_package(folder), "mutants": found}, indent=2))


def copy_package(folder: Path) -> None:
    """Copies what the tests need, and lets this process import the package from there."""
    ignored = shutil.ignore_patterns("__pycache__")
    for part in ("conv2attn", "tests", "benchmarks", "examples", "docs", "proofs"):
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    for file in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / file, folder)
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))


def home_of_package(folder: Path) -> bool:
    """Whether it is the copy in `folder` that is imported."""
    spec = find_spec("conv2attn")
    return spec is not None and Path(str(spec.origin)).resolve().is_relative_to(folder.resolve())


if __name__ == "__main__":
    main()
