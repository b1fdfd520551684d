"""The documentation: what is generated is up to date, guides run, and the site builds without a warning."""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import griffe
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import conv2attn
from conv2attn.layers.attention import ENGINES
from studies.paper import paper

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
GUIDES = sorted((DOCS / "guides").glob("*.md"))
MOST = 5 * 2**20
VISIBLE, MOST_APART = 16, 0.005
"""Of 255, a difference of a colour that is seen; the share of pixels that may have one."""


def module(path: Path):
    """A file of Python that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


GENERATE = module(DOCS / "generate.py")
HOUSE = module(DOCS / "house.py")
COUNT = re.compile(r"[\d,]+(?= (?:files|lines)\b)")


def build(folder: Path, config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={"PATH": "", "NO_MKDOCS_2_WARNING": "1"}
    )


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    done = build(tmp_path, ROOT / "mkdocs.yml")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert (tmp_path / "demo.html").stat().st_size < MOST
    verify = (tmp_path / "api" / "verify" / "index.html").read_text()
    assert 'id="conv2attn.certify"' in verify
    assert re.findall(r"<p>(?:Raises|Examples):", verify) == []


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[nowhere](nowhere.md)")
    (tmp_path / "mkdocs.yml").write_text("site_name: planted\ndocs_dir: docs\n")
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr


def test_every_page_stands_in_the_navigation():
    told = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert told == {path.as_posix() for path in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", (DOCS / page).read_text()):
        assert (DOCS / page).parent.joinpath(link).exists(), link


def test_every_public_name_stands_in_the_reference():
    pages = [page.read_text() for page in (DOCS / "api").glob("*.md")]
    told = [name for page in pages for name in re.findall(r"^::: conv2attn\.(\w+)$", page, re.M)]
    assert sorted(told) == conv2attn.__all__
    listed = re.findall(r"^\| \[`(\w+)`\]\(\w+\.md#conv2attn\.\1\)", (DOCS / "api" / "index.md").read_text(), re.M)
    assert sorted(listed) == conv2attn.__all__


def test_the_reference_shows_a_function_and_not_the_module_of_its_name():
    package = griffe.load("conv2attn", search_paths=[ROOT])
    kinds = {name: package[name].kind.value for name in conv2attn.__all__}
    assert [name for name, kind in kinds.items() if kind == "module"] == []


def test_the_page_of_codes_is_that_of_the_rules():
    assert (DOCS / "errors.md").read_text() == GENERATE.error_codes()


def test_the_tables_of_the_experiments_are_those_of_their_rows():
    page = (DOCS / "experiments.md").read_text()
    assert GENERATE.filled(page, GENERATE.tables()) == page


def test_a_time_in_the_text_follows_the_row_of_its_page():
    page = (ROOT / "benchmarks" / "training.md").read_text()
    row = "| 128 | 8 | 51.6 | 131.7 | 2.55x |"
    assert row in page
    sentence = GENERATE.timed_sentences(page.replace(row, row.replace("2.55", "7.25")))["silent-content"]
    assert " 7.2 times as long at 128 channels" in sentence
    assert sentence != GENERATE.timed_sentences(page)["silent-content"]


def pixels_apart(first: Path, second: Path) -> float:
    """The share of pixels by which two pictures of one size differ visibly."""
    pictures = [np.asarray(Image.open(path).convert("RGB"), dtype=float) for path in (first, second)]
    assert pictures[0].shape == pictures[1].shape
    return float((np.abs(pictures[0] - pictures[1]).max(-1) > VISIBLE).mean())


@pytest.mark.rotated
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "photo.png")) for name in GENERATE.PICTURES]
)
def test_a_picture_of_the_pages_is_what_its_command_draws(name, tmp_path):
    """Measured errors move the dots of a certificate from one processor to another; a panel is many pixels more."""
    drawn = GENERATE.draw_picture(name, tmp_path)
    assert pixels_apart(DOCS / name, drawn) < MOST_APART
    turned = tmp_path / f"turned-{name}"
    Image.open(drawn).transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(turned)
    assert pixels_apart(DOCS / name, turned) > MOST_APART
    command = f"conv2attn {GENERATE.PICTURES[name]} {name}"
    assert any(command in page.read_text() for page in (ROOT / "README.md", DOCS / "gallery.md"))


def test_the_claims_that_bounds_name_are_those_of_the_table():
    page = (DOCS / "certificates.md").read_text()
    table = module(DOCS / "bound_claims.py").table()
    assert GENERATE.filled(page, {"claims": table}) == page
    assert GENERATE.filled(page, {"claims": table.replace("L2c", "L2b", 1)}) != page


@pytest.mark.parametrize("name", ["an epsilon of 1e-5 times 1 + s", "all weights of a convolution times 1 + s"])
def test_the_mistakes_that_sections_forgive_are_those_of_the_table(name):
    """Two rows of the table, planted again."""
    assert module(DOCS / "forgiven.py").row(name) in (DOCS / "certificates.md").read_text()


def test_the_kinds_of_files_that_are_refused_are_listed():
    page = (DOCS / "files.md").read_text()
    assert GENERATE.filled(page, {"refused": GENERATE.refused_files(), "onnx": GENERATE.onnx_operators()}) == page


def test_the_numbers_of_heads_are_those_of_the_table():
    page, table = (DOCS / "heads.md").read_text(), GENERATE.head_numbers()
    assert GENERATE.filled(page, {"facts": table}) == page
    assert GENERATE.filled(page, {"facts": table.replace("tokens", "pixels", 1)}) != page


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_a_row_on_its_page(engine):
    assert f"\n| `{engine}` |" in (DOCS / "engines.md").read_text()


def test_the_house_is_the_one_that_stands():
    page = (DOCS / "house.md").read_text()
    anew = GENERATE.filled(page, HOUSE.parts())
    assert COUNT.sub("", anew) == COUNT.sub("", page)
    for told, found in zip(
        *([int(n.replace(",", "")) for n in COUNT.findall(text)] for text in (page, anew)), strict=True
    ):
        assert abs(told - found) <= 2 + found / 10
    package = Path(conv2attn.__file__).parent
    folders = {each.name for each in package.iterdir() if (each / "__init__.py").exists()}
    assert {*HOUSE.ABOVE, *HOUSE.BESIDE} == folders - {"proofs"}
    assert HOUSE.ABOVE[:0:-1] == conv2attn.DISTRICTS


@pytest.mark.parametrize("name", GENERATE.SCHEMAS)
def test_schemas_are_those_of_the_types(name):
    assert (DOCS / f"{name}.schema.json").read_text() == GENERATE.schema(name)


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_runs_and_its_notebook_has_its_outputs(guide):
    path = GENERATE.notebook_of(guide)
    made = GENERATE.notebook(guide, GENERATE.outputs(guide))
    text, anew = map(GENERATE.without_pictures, (path.read_text(), made))
    assert text == anew
    assert ("a picture" in text) == ("plots.draw" in guide.read_text() or "show(" in guide.read_text())
    body = json.loads(path.read_text())
    assert body["nbformat"] == 4
    assert all(
        cell["outputs"] for cell in body["cells"] if cell["cell_type"] == "code" and "print" in "".join(cell["source"])
    )


def test_the_run_of_the_lesson_draws_the_figures_that_it_names(tmp_path):
    """One epoch of it, in a folder of its own."""
    page = (DOCS / "guides" / "teaching.md").read_text()
    (block,) = re.findall(r"```sh\n(.*?)```", page, re.S)
    runner, lines = CliRunner(), block.replace("\\\n", "").splitlines()
    with chdir(tmp_path):
        for line in lines:
            program, *words = shlex.split(line.replace("--epochs 10", "--epochs 1"))
            if program == "python":
                assert words.pop(0) == "studies/paper.py"
            done = runner.invoke({"conv2attn": GENERATE.command_line, "python": paper}[program], words)
            assert done.exit_code == 0, done.output
        named = re.findall(r"`(figures/\S+\.png)`", page)
        assert named
        assert [name for name in named if not Path(name).is_file()] == []


@pytest.mark.slow
def test_the_example_of_the_quick_start_runs(capsys):
    for code in re.findall(r"```python\n(.*?)```", (DOCS / "start.md").read_text(), re.S):
        exec(compile(code, "start.md", "exec"), {})
    assert capsys.readouterr().out.startswith("holds (proved)")


def test_pages_of_the_site_name_paths_and_show_outputs():
    hooks = module(DOCS / "hooks.py")

    def page(uri, text):
        return hooks.on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri=uri)))

    links = "see [L1](../proofs/L1.py) and [x](heads.md)"
    assert page("heads.md", links) == "see L1 (`proofs/L1.py`) and [x](heads.md)"
    shown = page("guides/cnn-as-attention.md", (DOCS / "guides" / "cnn-as-attention.md").read_text())
    assert "```\n\n```text\n49 heads for a 7x7 kernel\n```\n" in shown
    assert "plots.draw_certificate(certificate)\n```\n\n\n![the picture that this code draws](data:image/png;" in shown


def test_the_page_on_proofs_links_the_theorems_in_coq(monkeypatch):
    hooks = module(DOCS / "hooks.py")
    monkeypatch.setattr(hooks.shutil, "which", lambda program: f"/usr/bin/{program}")
    row = "| statement | claims |\n| one head per tap | L1, COUNT |\n"
    shown = hooks.on_page_markdown(row, SimpleNamespace(file=SimpleNamespace(src_uri="proofs.md")))
    assert shown == row.replace("L1", '<a href="../formal/C2A.L1.html">L1</a>')


def test_a_table_of_sentences_names_the_heading_of_each_cell_and_one_of_numbers_does_not():
    """On a telephone site.css sets the cells of such a table below each other."""
    hooks = module(DOCS / "hooks.py")
    headings = "<tr><th>#</th><th>the <b>source</b></th><th>true</th></tr>"
    row = f"<table>{headings}<tr><td>E1</td><td>a</td><td>{{}}</td></tr></table>"
    shown = hooks.on_page_content(row.format("word " * 40))
    assert re.findall('data-heading="([^"]*)"', shown) == ["#", "the source", "true"]
    assert hooks.on_page_content(row.format("word")) == row.format("word")


@pytest.mark.skipif(not shutil.which("coqdoc"), reason="the pages of the formal layer need coqdoc")
def test_every_formal_file_has_a_page(tmp_path):
    hooks = module(DOCS / "hooks.py")
    hooks.on_post_build({"site_dir": str(tmp_path)})
    pages = {page.stem for page in (tmp_path / "formal").glob("C2A.*.html")}
    assert pages == {f"C2A.{path.stem}" for path in hooks.FORMAL.glob("*.v")}
    assert "Lemma 1" in (tmp_path / "formal" / "C2A.L1.html").read_text()
