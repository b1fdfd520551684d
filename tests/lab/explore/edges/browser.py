"""A visit to the page in Chromium: what it computes is what Python computes, by keys and taps, without an error.

The laws of tests/lab/explore read the numbers of a page; what its scripts do with them is seen in a browser alone.
"""

from copy import deepcopy
from itertools import pairwise

import numpy as np
import pytest
import torch
from lab.explore.cases import Transformer, converted, image, originals, trained
from lab.explore.chromium import browsing
from torch import nn

from conv2attn import convert, heads, set_engine
from conv2attn.lab.explore import captured_layers, explore, explore_page, explored_layers
from conv2attn.layers.attention import Encoding, MultiHeadSelfAttention
from conv2attn.networks import attention_layers, layer_inputs
from conv2attn.networks.zoo import AttentionClassifier, ClassifierPlan

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsing(tmp_path_factory.mktemp("profile")) as found:
        yield found


def visit(browser, folder, explored, plant=""):
    """Opens the page of what was explored, with `plant` behind its script."""
    page = explore_page({"the image": explored}, "a network", "an image")
    (folder / "page.html").write_text(page.replace("chooseView(0);", f"chooseView(0);{plant}"))
    browser.log()
    browser.post("/url", url=(folder / "page.html").as_uri())


def visit_layers(browser, folder, network, plant=""):
    """Opens the page of `network`; its layers, and what each receives."""
    visit(browser, folder, explored_layers(network, image()), plant)
    layers = attention_layers(network)
    return layers, layer_inputs(network, lambda: network(image()))


def shown_attention(browser, head, query):
    """The attention that the page computes for one query of the layer that it shows."""
    call = "return Array.from(attentionRow(state.layer, arguments[0], arguments[1], state.alpha))"
    return np.array(browser.run(call, head, query))


def exact(layer, given, alpha):
    """A layer in float64 at another sharpness, and its input."""
    copy = set_engine(deepcopy(layer).double(), "dense")
    with torch.no_grad():
        copy.encoding.assign(alpha=alpha)
    return copy, given.double()


def numbers_of_python(name, layer, given, alpha, channel, query):
    """The leak of the first head at `query`, the largest leak, and the largest difference of a channel."""
    with torch.no_grad():
        soft, precise = exact(layer, given, alpha)
        attention = soft.attention(precise)[0]
        hard = exact(layer, given, 1e4)[0].attention(precise)[0].round()
        leaks = (attention * (1 - hard)).sum(-1)
        difference = soft(precise) - originals()[int(name)].double()(precise)
        columns = difference.shape[-1]
        return (
            leaks[0, query[0] * columns + query[1]].item(),
            leaks.max().item(),
            difference[0, channel].abs().max().item(),
        )


def test_the_slider_changes_the_numbers_to_those_of_python(browser, tmp_path):
    layers, given = visit_layers(browser, tmp_path, converted())
    for place, (name, layer) in enumerate(layers.items()):
        if place:
            browser.keys("#layer", "Down")
        seen = []
        for keys in (["Home"], ["Right"] * 8, ["Right"] * 9, ["End"]):
            browser.keys("#alpha", *keys)
            alpha = browser.value("alpha-value")
            channel, query = browser.run("return [state.layer.output.channel, state.query]")
            shown = [browser.value(each) for each in ("leak", "worst-leak", "difference")]
            computed = numbers_of_python(name, layer, given[name], alpha, channel, query)
            assert np.allclose(shown, computed, rtol=1e-9, atol=1e-13), (name, alpha)
            seen.append((alpha, *shown))
            soft, precise = exact(layer, given[name], alpha)
            place_of_query = query[0] * browser.run("return state.layer.queries[1]") + query[1]
            rows = soft.attention(precise)[0, :, place_of_query].detach().numpy()
            for head, row in enumerate(rows):
                assert np.abs(shown_attention(browser, head, query) - row).max() <= 1e-13
        alphas, *falling = zip(*seen, strict=True)
        assert [*alphas] == [1, 2, 2 ** (17 / 8), 128]
        assert all(first > last for numbers in falling for first, last in pairwise(numbers))
    assert browser.log() == []


def test_trained_heads_attend_as_in_python(browser, tmp_path):
    layers, given = visit_layers(browser, tmp_path, trained())
    assert browser.run("return getComputedStyle(document.getElementById('sharpness')).display") == "none"
    for place, (name, layer) in enumerate(layers.items()):
        if place:
            browser.keys("#layer", "Down")
        attention = deepcopy(layer).double().attention(given[name].double())[0].detach().numpy()
        tolerance = 4e-3 if browser.run("return state.layer.kind") == "stored" else 1e-13
        for head in range(layer.heads):
            for query in ([0, 0], [2, 5], [6, 8]):
                shown = shown_attention(browser, head, query)
                assert np.abs(shown - attention[head, query[0] * 9 + query[1]]).max() <= tolerance
        mean = browser.run("return Array.from(meanByDisplacement(state.layer, 0, state.alpha))")
        assert sum(mean) == pytest.approx(1, abs=63 * tolerance)
        assert mean[6 * 17 + 8] == pytest.approx(attention[0].diagonal().mean(), abs=tolerance)
    assert browser.log() == []


@torch.no_grad()
def test_captured_attention_is_shown(browser, tmp_path):
    network = Transformer(1)
    visit(browser, tmp_path, captured_layers(network, image()))
    attention = network.attention_of(image())[0].numpy()
    assert np.abs(shown_attention(browser, 1, [2, 5]) - attention[1, 24, 1:]).max() <= 4e-3
    browser.keys("#image", "Right")
    assert browser.value("extra") == pytest.approx(attention[0, 1 + 3 * 9 + 5, 0], abs=1e-6)
    assert "such as a class token: 1" in browser.text("geometry")
    assert browser.log() == []


@torch.no_grad()
def test_two_images_their_mean_and_their_terms_are_chosen(browser, tmp_path):
    """Scores of q.k and q.r, each alone, before and after the softmax, and a query in every head of every layer."""
    layer = MultiHeadSelfAttention(2, 2, Encoding.of("learned", 2, (6, 8), 2), terms="qk+qr", d_key=4)
    images = torch.stack([image()[0], image()[0].flip(1)])
    page = explore(nn.Sequential(layer), images)
    (tmp_path / "page.html").write_text(page.html)
    browser.log()
    browser.post("/url", url=(tmp_path / "page.html").as_uri())
    terms = layer.term_scores(images)
    both = torch.stack([layer.attention(images), *(each.softmax(-1) for each in terms.values())])
    lowered = [each - each.amin(-1, keepdim=True) for each in (*terms.values(), sum(terms.values()))]
    expected = [*both, *lowered]
    names = ["", *(f"the softmax of {name} alone, " for name in ("q·k", "q·r"))]
    names += [*(f"{name} before the softmax, " for name in ("q·k", "q·r")), "all terms before the softmax, "]
    parts = ["image 1", "image 2", "the mean of all images"]
    assert browser.run("return data.views.map(({ name }) => name)") == [n + part for n in names for part in parts]
    choose = "at('view').value = arguments[0]; at('view').dispatchEvent(new Event('change'))"
    for number, numbers in enumerate(each for what in expected for each in (what[0], what[1], what.mean(0))):
        browser.run(choose, number)
        scale = numbers[1].max().item()
        assert np.abs(shown_attention(browser, 1, [2, 5]) - numbers[1, 23].numpy()).max() <= 4e-3 * scale
        assert browser.run("return state.view.scores") == (number >= 9)
        assert "Scores: q·k + q·r." in browser.text("geometry")
    assert browser.run("return document.querySelectorAll('#matrix button').length") == 2
    assert browser.run("return at('sheet').checked")
    assert browser.log() == []


@torch.no_grad()
def test_a_class_token_asks(browser, tmp_path):
    network = Transformer(1)
    visit(browser, tmp_path, captured_layers(network, image()))
    browser.run("at('token').value = 0; at('token').dispatchEvent(new Event('change'))")
    attention = network.attention_of(image())[0, :, 0, 1:].numpy()
    for head in range(len(attention)):
        found = browser.run("return Array.from(leadingRow(state.layer, arguments[0], 0))", head)
        assert np.abs(np.array(found) - attention[head]).max() <= 4e-3 * attention[head].max()
    assert "Leading token 0: head 0 looks most" in browser.text("told")
    assert browser.log() == []


def test_the_facts_are_those_of_heads(browser, tmp_path):
    network = Transformer(1)
    visit(browser, tmp_path, captured_layers(network, image()))
    (layer,) = heads(network, image(), grid=(7, 9), extra_tokens=1).layers
    cells = "return [...document.querySelectorAll(arguments[0])].map((cell) => Number(cell.dataset.value))"
    shares = "return [...document.querySelectorAll('#facts td[data-value]')].map((cell) => cell.dataset.value)"
    told = browser.run(shares)
    assert [float(each) for each in told[::4]] == pytest.approx([head.peak_mass for head in layer.heads], abs=1e-6)
    assert [float(each) for each in told[1::4]] == pytest.approx([head.relative for head in layer.heads], abs=1e-6)
    assert [(head.absolute, head.content) for head in layer.heads] == [(None, None)] * 2
    assert {*told[2::4], *told[3::4]} == {"null"}
    labels = browser.run("return [...document.querySelectorAll('#matrix button')].map((each) => each.ariaLabel)")
    assert [head.kind in label for head, label in zip(layer.heads, labels, strict=True)] == [True] * 2
    folds = "return [...document.querySelectorAll('#matrix details')].map(({ open }) => open)"
    assert browser.run(folds) == [True]
    browser.click("#matrix button[data-head='1']")
    assert browser.run("return [state.head, state.view.layers.indexOf(state.layer)]") == [1, 0]
    span = browser.run(cells, "#span td")
    three = next(fact for fact in layer.spans if (fact.kernel_size, fact.dilation) == (3, 1))
    assert (len(span), span[4]) == (9, pytest.approx(three.center, abs=1e-6))
    assert np.mean(span) == pytest.approx(three.mean, abs=1e-6)
    visit_layers(browser, tmp_path, converted())
    assert browser.run(folds) == [False] * browser.run("return state.view.layers.length")  # shifts alone look alike
    assert browser.run(cells, "#span td") == pytest.approx([1] * 9)
    assert browser.run("return document.querySelectorAll('#facts tr').length") == 10
    assert browser.run("return document.querySelector('#facts tr[data-chosen] td').textContent") == "0"
    assert browser.log() == []


def test_keys_and_taps_move_the_query(browser, tmp_path):
    visit_layers(browser, tmp_path, converted())
    assert browser.run("return state.query") == [3, 4]
    browser.keys("#image", "Up", "Up", "Left")
    assert browser.run("return state.query") == [1, 3]
    assert "Query (1, 3)" in browser.text("told")
    browser.keys("#image", *["Left"] * 9)
    assert browser.run("return state.query") == [1, 0]
    browser.click("#image")
    assert browser.run("return state.query") == [3, 4]
    browser.click("#heads input[value='5']")
    assert "head 5 looks most at displacement (0, 1), with 100.0 %" in browser.text("told")
    browser.keys("#heads input:checked", "Right")
    assert "head 6 looks" in browser.text("told")
    assert "offset (1, −1)" in browser.text("kernel-help")
    assert browser.log() == []


def test_everything_has_a_name_and_fits_a_phone(browser, tmp_path):
    visit_layers(browser, tmp_path, converted())
    unnamed = """return [...document.querySelectorAll("select, input, [role], canvas:not([aria-hidden]), table")]
        .filter((each) => !(each.labels?.length || each.ariaLabel || each.role === "status")).map((each) => each.id)"""
    assert browser.run(unnamed) == []
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
    browser.post("/goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)
    try:
        assert browser.run("return innerWidth") == 360
        assert browser.run("return document.documentElement.scrollWidth") <= 360
    finally:
        browser.post("/goog/cdp/execute", cmd="Emulation.clearDeviceMetricsOverride", params={})


def test_many_heads_are_shown_whole(browser, tmp_path):
    visit_layers(browser, tmp_path, convert(nn.Sequential(nn.Conv2d(2, 1, 7, padding=3))))
    cut = """return [...document.querySelectorAll("#heads label")]
        .filter((label) => label.scrollHeight > label.clientHeight + 1).length"""
    assert browser.run("return document.querySelectorAll('#heads label').length") == 49
    assert browser.run(cut) == 0
    assert browser.run("const box = document.querySelector('.scroll'); return box.scrollWidth <= box.clientWidth")


def test_an_error_in_the_page_is_seen(browser, tmp_path):
    visit_layers(browser, tmp_path, converted(), plant="noSuchFunction();")
    assert [entry["level"] for entry in browser.log()] == ["SEVERE"]


def test_the_page_cannot_reach_a_network(browser, tmp_path):
    visit_layers(browser, tmp_path, converted(), plant="new Image().src = 'http://127.0.0.1:9/';")
    (entry,) = browser.log()
    assert "Content Security Policy" in entry["message"]


def test_convolutions_open_softened_and_the_photo_stays_in_view_on_a_phone(browser, tmp_path):
    page = explore(nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)), image())
    (tmp_path / "page.html").write_text(page.html)
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.post("/goog/cdp/execute", cmd="Emulation.setDeviceMetricsOverride", params=metrics)
    try:
        browser.post("/url", url=(tmp_path / "page.html").as_uri())
        assert browser.run("return state.alpha") == 2
        assert browser.run("return document.documentElement.scrollWidth") == 390
        for place in ("attention", "heads", "output-section"):
            browser.run(f"document.getElementById('{place}').scrollIntoView({{block: 'center'}})")
            top, bottom = browser.run(
                "const box = document.getElementById('image').getBoundingClientRect(); return [box.top, box.bottom]"
            )
            assert 0 <= top < bottom <= 844
    finally:
        browser.post("/goog/cdp/execute", cmd="Emulation.clearDeviceMetricsOverride", params={})


def test_a_notebook_shows_the_page_in_its_cell():
    plan = ClassifierPlan(side=8, width=4, heads=1, layers=1, hidden=4)
    page = explore(AttentionClassifier(plan))  # on the example image, in the size of the plan
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
