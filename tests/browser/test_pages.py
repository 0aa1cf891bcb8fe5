"""All components of pages in headless Chromium."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

from regard.look.page import (
    AttentionMaps,
    Bars,
    BeamTree,
    Contributions,
    Distribution,
    Facts,
    Heatmap,
    Histogram,
    Intervals,
    Lines,
    Logo,
    MaskMap,
    Page,
    Scatter,
    Sequences,
    Surprise,
    Table,
    Tagged,
    Text,
)
from regard.look.page.document import PACK_ABOVE, pack, pack_weights, visible

pytestmark = pytest.mark.browser

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    "<script>alert(2)</script>",
    "<!--",
    "]]>",
    '"\'` onmouseover=alert(3) x="',
    "\u202eabc\u2066",
    "javascript:alert(4)",
]


def nodes(tokens):
    """A root and one child per token, the last one finished."""
    shared = {"kept": True, "finished": False}
    root = {"id": "root", "parent": None, "token": "<S>", "score": 0.0, "step": 0, **shared}
    children = [
        {"id": i, "parent": "root", "token": t, "score": -1.0 - i, "step": 1, **shared}
        for i, t in enumerate(tokens)
    ]
    children[-1]["finished"] = True
    return [root, *children]


def every_component(words):
    """One of each, with these words wherever a string may stand."""
    n, word = len(words), words[0]
    weights = np.tril(np.ones((n, n)))
    weights /= weights.sum(1, keepdims=True)
    return [
        Text("\n\n".join(words)),
        Facts([(w, w) for w in words], title=word),
        Table(words, [words, words], highlight=[1], title=word),
        Heatmap(weights, words, words, title=word, unit=word),
        MaskMap(weights > 0, words, title=word),
        AttentionMaps(
            np.stack([weights] * 6).reshape(2, 3, n, n), words, layers=words[:2], title=word
        ),
        Surprise(words, [(word, np.arange(n)), (words[1], [math.inf] * n)], title=word),
        Contributions(words, [(word, np.arange(n) - 2.0)], title=word, unit=word),
        Logo(words, np.arange(2 * n).reshape(2, n), range(n), 9.0, title=word, note=word),
        Scatter(np.eye(n)[:, :2], words, words, marks={1: word}, x_label=word, title=word),
        Scatter(np.eye(n)[:, :2], words, values=range(n), title=word, unit=word, diagonal=True),
        Tagged(words, [None, *words[1:]], dict(zip(words, words, strict=True)), title=word),
        Distribution(words, np.arange(n), title=word),
        BeamTree(nodes(words), title=word),
        Lines([(w, [1, 2], [i, 2 * i]) for i, w in enumerate(words)], word, word, title=word),
        Bars(words, range(n), title=word, unit=word),
        Intervals(words, range(n), range(n), range(n), title=word, unit=word),
        Histogram([0, 1, 3], [4, 5], title=word, x_label=word, y_label=word),
        Sequences([(w, -1.0) for w in words], title=word, score_name=word),
    ]


def written(tmp_path, *components, title="Title"):
    page = Page(title, title)
    for i, component in enumerate(components):
        page.section(f"{title} {i}", note=title)
        page.add(component)
    return page.write(tmp_path / "page.html")


def elements(page):
    """How many elements of each tag stand in the body."""
    return page.evaluate(
        "() => Array.from(document.body.querySelectorAll('*')).reduce("
        "(n, e) => ({...n, [e.tagName]: (n[e.tagName] ?? 0) + 1}), {})"
    )


def test_hostile_words_run_nothing_inject_nothing_and_ask_nothing(browser_page, tmp_path):
    path = written(tmp_path, *every_component(HOSTILE), title=HOSTILE[0])
    page = browser_page.open(path)
    # Touch everything that answers: hover, focus, switch to arcs.
    page.get_by_role("button", name="arcs").click()
    for selector in (
        ".map canvas",
        ".arcs .token",
        ".surprise .token",
        ".beam-tree .node",
        ".track",
    ):
        page.locator(selector).first.hover()
        page.locator(selector).last.hover()
    hostile = elements(page)
    assert browser_page.errors == []
    assert [url for url in browser_page.requests if not url.startswith("data:")] == [path.as_uri()]
    assert page.title() == HOSTILE[0]

    harmless = [f"w{i}" for i in range(len(HOSTILE))]
    page = browser_page.open(written(tmp_path, *every_component(harmless), title="w0"))
    page.get_by_role("button", name="arcs").click()
    for selector in (
        ".map canvas",
        ".arcs .token",
        ".surprise .token",
        ".beam-tree .node",
        ".track",
    ):
        page.locator(selector).last.hover()
    assert hostile == elements(page)
    assert "IMG" not in hostile and browser_page.errors == []


def test_the_policy_stops_a_script_that_got_in(browser_page, tmp_path):
    path = written(tmp_path, Text("text"))
    path.write_text(path.read_text().replace("</main>", "<script>window.hit = 1</script></main>"))
    page = browser_page.open(path)
    assert page.evaluate("window.hit") is None
    assert any("Content Security Policy" in error for error in browser_page.errors)


def test_tokens_look_the_same_in_the_browser_and_in_figures(browser_page, tmp_path):
    tokens = [
        "",
        " ",
        "\n",
        "\t",
        "a b",
        "\x00\x1b\x7f\x85",
        "\u202e",
        "\u00ad",
        "\u0301e",
        "é",
        "👩‍🔬",
    ]
    tokens += ["\u00a0", "\u3000", "\u2028", "\ue000", "می\u200cخواهم", "<b>", *HOSTILE]
    page = browser_page.open(written(tmp_path, Text("text")))
    for spaces in (True, False):
        shown = page.evaluate("([ts, s]) => ts.map(t => regard.visible(t, s))", [tokens, spaces])
        assert shown == [visible(token, spaces=spaces) for token in tokens]


def test_packed_arrays_are_read_back_as_they_were_written(browser_page, tmp_path):
    page = browser_page.open(written(tmp_path, Text("text")))
    rng = np.random.default_rng(0)
    small, large = rng.normal(size=(3, 4)), rng.normal(size=(150, 160)) * 100
    small[1, 2] = large[7, 11] = math.nan
    weights = rng.dirichlet(np.ones(40), size=(2, 9, 30))
    assert weights.size > PACK_ABOVE and large.size > PACK_ABOVE
    read = """packed => { const a = regard.unpack(packed), size = a.shape.reduce((x, y) => x * y);
        const range = i => a.bounds(i) ?? [a.get(i) - 1e-5, a.get(i) + 1e-5];
        const value = f => (_, i) => Number.isNaN(a.get(i)) ? null : f(i);
        const each = f => Array.from({length: size}, value(f));
        return [each(a.get), each(i => range(i)[0]), each(i => range(i)[1])].map(v => v.join()) }"""
    arrays = ((small, pack(small)), (large, pack(large)), (weights, pack_weights(weights)))
    for array, packed in arrays:
        lists = [text.split(",") for text in page.evaluate(read, packed)]
        value, low, high = (np.array([float(x or "nan") for x in xs]) for xs in lists)
        true = array.ravel()
        assert (np.isnan(value) == np.isnan(true)).all()
        inside = (low - 1e-9 <= true) & (true <= high + 1e-9)
        assert inside[~np.isnan(true)].all()  # the interval the read-out states holds the truth


def reference_cut(logits, temperature, top_k, top_p):
    """Temperature, then top-K, then top-P, straight from the definition."""
    tempered = np.exp(np.array(logits) / temperature)
    tempered /= tempered.sum()
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:top_k]
    share = tempered[order] / tempered[order].sum()
    crossing = next((n for n in range(1, len(order) + 1) if share[:n].sum() >= top_p), len(order))
    kept = order[:crossing]
    return kept, tempered[kept].sum(), tempered[kept] / tempered[kept].sum()


def test_the_sliders_cut_as_the_definition_says(browser_page, tmp_path):
    rng = np.random.default_rng(1)
    logits = [*np.round(rng.normal(size=11) * 2, 3), 1.5, 1.5]  # a tie goes to the earlier symbol
    page = browser_page.open(written(tmp_path, Text("text")))
    for temperature in (0.2, 1.0, 2.7):
        for top_k in (1, 4, 13):
            for top_p in (0.11, 0.52, 0.93, 1.0):
                kept, mass, final = reference_cut(logits, temperature, top_k, top_p)
                state = {"temperature": temperature, "topK": top_k, "topP": top_p}
                ours = page.evaluate("([l, s]) => regard.cutDistribution(l, s)", [logits, state])
                assert ours["order"][: ours["kept"]] == kept
                assert ours["mass"] == pytest.approx(mass, abs=1e-9)
                np.testing.assert_allclose(np.array(ours["final"])[kept], final, atol=1e-9)
                assert sum(ours["final"]) == pytest.approx(1)


def test_moving_a_slider_recolours_the_bars(browser_page, tmp_path):
    shown = Distribution(list("abcd"), np.log([0.4, 0.3, 0.2, 0.1]), top_k=3)
    page = browser_page.open(written(tmp_path, shown))
    kept = page.locator(".fill:not(.cut)")
    assert kept.count() == 3
    assert (
        "3 of 4 symbols kept, holding 90.0% of the mass" in page.locator(".kept-line").inner_text()
    )
    page.locator("input[data-name=top-P]").fill("0.7")  # a and b hold 0.7 / 0.9 of what K left
    assert kept.count() == 2
    page.locator("input[data-name=temperature]").fill("0.05")
    # temperature 1/20: (0.3 / 0.4)^20 and (0.2 / 0.4)^20 are all that is left beside the first
    assert (
        kept.count() == 1
        and f"{100 / (1 + 0.75**20 + 0.5**20):.1f}%" in page.locator(".kept-line").inner_text()
    )


def read_cell(page, row, column):
    """Walk to a cell of the first map by arrow keys; the first press only shows where one is."""
    page.locator(".map canvas").first.focus()
    for key, times in (("ArrowRight", 1 + column), ("ArrowDown", row)):
        for _ in range(times):
            page.keyboard.press(key)
    return page.locator(".tip").inner_text()


def test_a_heat_map_reads_out_the_cell_under_the_keys_and_the_pointer(browser_page, tmp_path):
    values = np.arange(12.0).reshape(3, 4) - 5
    heatmap = Heatmap(values, ["a", " ", "c"], list("wxyz"), scale="diverging", unit="nats")
    page = browser_page.open(written(tmp_path, heatmap))
    text = read_cell(page, 1, 2)
    assert text.split("\n") == ["1 nats", "row 2: ·", "column 3: y"]
    box = page.locator(".map .cursor").bounding_box()
    page.mouse.move(box["x"] + 1.5 * box["width"], box["y"] + 1.5 * box["height"])
    assert page.locator(".tip").inner_text().startswith("6 nats\nrow 3: c\ncolumn 4: z")
    page.mouse.move(1, 1)
    assert page.locator(".tip").is_hidden()


def test_a_heat_map_paints_its_values(browser_page, tmp_path):
    page = browser_page.open(
        written(tmp_path, MaskMap(np.array([[True, False, False]]), ["q"], list("abc")))
    )
    pixels = page.evaluate(
        """() => { const c = document.querySelector('.map canvas'), g = c.getContext('2d');
        const y = c.height - 19, at = x => Array.from(g.getImageData(c.width - x, y, 1, 1).data);
        return [at(95), at(57), at(19)] }"""
    )
    assert pixels[0] == [0x2A, 0x7F, 0x97, 255] and pixels[1] == pixels[2] == [
        0xEF,
        0xED,
        0xE6,
        255,
    ]


def test_one_head_opens_large_and_its_arcs_say_who_looks_where(browser_page, tmp_path):
    weights = np.zeros((2, 3, 4, 5))
    weights[..., 0] = 1.0
    weights[1, 2, 1] = [0.0, 0.25, 0.0, 0.75, 0.0]
    attention = AttentionMaps(weights, list("abcd"), list("vwxyz"), layers=["first", "second"])
    page = browser_page.open(written(tmp_path, attention))
    assert page.locator(".thumb canvas").count() == 6
    page.locator(".thumb").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    assert page.locator(".toolbar h4").inner_text() == "second, head 3"
    browser_page.settle()
    assert read_cell(page, 1, 3) == "weight 0.75\nb (2)\nlooks at y (4)"
    page.get_by_role("button", name="arcs").click()
    page.locator(".queries .token").nth(1).hover()
    assert page.locator(".readout").inner_text() == "b (2) looks at: y 0.75, w 0.25"
    page.locator(".keys-looked-at .token").nth(3).hover()
    assert page.locator(".readout").inner_text() == "y (4) is looked at by: b 0.75"
    page.locator(".queries .token").nth(0).focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".readout").inner_text().startswith("b (2) looks at")
    assert browser_page.errors == []


def test_scores_stand_beside_the_weights_of_the_chosen_head(browser_page, tmp_path):
    weights = np.tril(np.full((1, 2, 2, 2), 0.5))
    scores = np.array([[[[1.5, -np.inf], [-2.0, 0.5]], [[3.0, -np.inf], [0.0, 4.0]]]])
    attention = AttentionMaps(weights, list("ab"), scores=scores, score_name="q · k")
    page = browser_page.open(written(tmp_path, attention))
    assert page.locator(".beside h5").all_text_contents() == [
        "q · k: before the softmax",
        "weights: after the softmax",
    ]
    assert read_cell(page, 1, 0).startswith("q · k −2\nb (2)")
    page.locator(".thumb").nth(1).click()
    browser_page.settle()
    assert read_cell(page, 1, 1).startswith("q · k 4\nb (2)")
    assert page.locator(".map").count() == 2
    page.get_by_role("button", name="arcs").click()
    assert page.locator(".map").count() == 0
    assert browser_page.errors == []


def test_masked_cells_are_drawn_alike_in_scores_and_weights(browser_page, tmp_path):
    weights = np.tril(np.full((1, 1, 2, 2), 0.5))
    scores = np.array([[[[1.5, -np.inf], [-2.0, 0.5]]]])
    page = browser_page.open(
        written(tmp_path, AttentionMaps(weights, list("ab"), scores=scores, score_name="q · k"))
    )
    corner = """e => e.map((c) => {
        const [g, s] = [c.getContext('2d'), c.width / c.clientWidth];
        return Array.from(g.getImageData(c.width - 30 * s, c.height - 70 * s, 24, 24).data).join();
    })"""
    first, second = page.locator(".beside .map canvas").evaluate_all(corner)
    assert first == second and len(set(first.split(","))) > 3  # hatched


def test_counts_that_are_zero_have_no_colour(browser_page, tmp_path):
    counts = Heatmap([[0.0, 1.0, 1000.0]], ["a"], list("xyz"), scale="logarithmic", unit="times")
    page = browser_page.open(written(tmp_path, counts))
    tones = page.evaluate(
        """() => { const c = document.querySelector('.map canvas'), g = c.getContext('2d');
        const at = x => Array.from(g.getImageData(c.width - x, c.height - 3, 1, 1).data);
        return [at(73), at(35)] }"""
    )
    assert tones[0] != tones[1] and tones[1] == [0x22, 0x26, 0x5E, 255]  # the end of the ramp
    assert page.locator(".hint").inner_text() == "Colour follows the logarithm; hatched is 0."
    assert read_cell(page, 0, 0).startswith("0 times")


def test_tags_colour_the_text_and_explain_themselves(browser_page, tmp_path):
    tags = [None, *(f"state {i % 9 + 1}" for i in range(20))]
    text = Tagged([f"t{i}" for i in range(21)], tags, {"state 1": "emits t"})
    page = browser_page.open(written(tmp_path, text))
    assert page.locator(".tagged .token small").all_text_contents() == [
        "–",
        *(str(i % 9 + 1) for i in range(20)),
    ]
    colour = "e => getComputedStyle(e).backgroundColor"
    tones = [page.locator(".tagged .token").nth(i).evaluate(colour) for i in (1, 2, 10, 7, 8, 9)]
    assert tones[0] == tones[2] != tones[1]
    assert tones[3] == tones[0] and tones[4] == tones[1] != tones[5]  # colours come round again
    assert page.locator(".tagged .legend > span").last.inner_text() == "state 9"
    page.locator(".tagged .token").nth(1).hover()
    assert page.locator(".tip").inner_text() == "t1 (2)\nstate 1\nemits t"
    assert browser_page.errors == []


def test_an_axis_of_whole_numbers_has_no_ticks_between_them(browser_page, tmp_path):
    xs = list(range(4))
    page = browser_page.open(written(tmp_path, Lines([("a", xs, [0.1, 0.2, 0.1, 0.4])])))
    ticks = page.locator(".lines svg text[text-anchor=middle]").all_text_contents()
    assert [t for t in ticks if t] == ["0", "1", "2", "3"]


@pytest.mark.slow
def test_512_tokens_and_48_heads_stay_usable(browser_page, tmp_path):
    n = 512
    weights = np.zeros((6, 8, n, n), dtype=np.float32)
    weights[:] = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    page = browser_page.open(written(tmp_path, AttentionMaps(weights, [f"t{i}" for i in range(n)])))
    page.wait_for_selector(".thumb canvas")
    took = page.evaluate(
        """() => { const start = performance.now();
        document.querySelectorAll('.thumb')[47].click();
        document.querySelectorAll('.toggle button')[1].click();
        return performance.now() - start }"""
    )
    assert took < 3000
    page.locator(".queries .token").nth(20).hover()
    assert "t20 (21) looks at: t0 0.0" in page.locator(".readout").inner_text()
    page.get_by_role("button", name="map").click()
    browser_page.settle()
    low, high = re.search(r"stored in 8 bits: ([\d.]+) to ([\d.]+)", read_cell(page, 9, 0)).groups()
    assert float(low) < 0.1 < float(high) < float(low) + 0.005  # one of ten equal weights
    assert browser_page.errors == []


def test_a_surprise_names_bits_and_probability_of_every_model(browser_page, tmp_path):
    surprise = Surprise(
        ["a", "\n", "b"], [("one", [2.0, 0.0, 1.0]), ("two", [math.inf, 3.0, math.nan])]
    )
    page = browser_page.open(written(tmp_path, surprise))
    page.locator(".panel").first.locator(".token").nth(0).hover()
    tip = page.locator(".tip")
    assert (
        tip.inner_text() == "a (1)\none: 2 bits, probability 0.25\ntwo: impossible (probability 0)"
    )
    page.locator(".panel").last.locator(".token").nth(1).hover()
    assert tip.inner_text() == "↵ (2)\none: 0 bits, probability 1\ntwo: 3 bits, probability 0.125"
    assert page.locator(".token.chosen").count() == 2  # the same symbol in both panels


def test_the_best_beam_is_drawn_through_the_tree(browser_page, tmp_path):
    page = browser_page.open(written(tmp_path, BeamTree(nodes(["x", "y", "z"]))))
    assert page.locator(".edge.best").count() == 1 and page.locator(".edge").count() == 3
    page.locator(".node.best").last.hover()
    tip = page.locator(".tip").inner_text()
    assert f"{3 / math.log(2):.4g} bits, probability {math.exp(-3):.3g}" in tip


def test_the_best_path_is_straight_and_nothing_crosses_a_name(browser_page, tmp_path):
    browser_page.page.set_viewport_size({"width": 390, "height": 800})
    tree = nodes(["x", "y", "z"])
    tree.append({**tree[3], "id": "next", "parent": 2, "token": "w", "step": 2})
    page = browser_page.open(written(tmp_path, BeamTree(tree, best="next")))
    place = r"e => e.map(n => n.getAttribute('transform').match(/[\d.]+/g).map(Number))"
    places = page.locator(".node.best").evaluate_all(place)
    assert len(places) == 3 and len({y for _, y in places}) == 1
    tops = page.locator(".node").evaluate_all(place)
    assert min(y for _, y in tops) == places[0][1]  # at the top
    root = page.locator(".node").first.bounding_box()
    tree_box = page.locator("svg[role=tree]").bounding_box()
    assert root["y"] - tree_box["y"] < 30 and root["x"] - tree_box["x"] < 30
    crossed = page.evaluate(
        """() => [...document.querySelectorAll('.node text')].some((text) => {
          const box = text.getBoundingClientRect();
          return [...document.querySelectorAll('.edge')].some((edge) => {
            const from = edge.ownerSVGElement.getBoundingClientRect();
            return Array.from({ length: 101 }).some((_, i) => {
              const p = edge.getPointAtLength((edge.getTotalLength() * i) / 100);
              const [x, y] = [p.x + from.x, p.y + from.y];
              return x > box.left && x < box.right && y > box.top + 3 && y < box.bottom - 3;
            });
          });
        })"""
    )
    assert crossed is False


def test_an_infinite_value_has_a_row_and_the_axis_does_not_begin_at_zero(browser_page, tmp_path):
    rows = Intervals(
        ["a", "b", "c"],
        [2.95, math.inf, 3.041],
        [2.94, math.nan, 3.03],
        [2.96, math.nan, 3.05],
        unit="bits per symbol",
        better="less",
        highlight=[0],
    )
    page = browser_page.open(written(tmp_path, rows))
    texts = page.locator(".intervals svg text").all_text_contents()
    assert {"b", "∞", "2.95", "3.041", "bits per symbol, less is better"} <= set(texts)
    assert "0" not in texts
    first, last = (page.locator(".point").nth(i).bounding_box()["x"] for i in (0, 1))
    assert last - first > 300  # of 1100 pixels: the two are far apart
    assert page.locator(".beyond").count() == 1 and browser_page.errors == []


def test_bad_rows_do_not_press_the_better_half_together(browser_page, tmp_path):
    values = [2.95, 2.97, 3.0, 4.2, 4.9]
    ends = [v - 0.01 for v in values], [v + 0.01 for v in values]
    rows = Intervals(list("abcde"), values, *ends, unit="bits", better="less")
    page = browser_page.open(written(tmp_path, rows))
    assert page.locator(".point").count() == 3 and page.locator(".beyond").count() == 2
    assert {"4.2", "4.9"} <= set(page.locator(".intervals svg text").all_text_contents())
    near = [page.locator(".point").nth(i).bounding_box()["x"] for i in (0, 1)]
    page.get_by_role("button", name="all").click()
    assert page.locator(".point").count() == 5 and page.locator(".beyond").count() == 0
    far = [page.locator(".point").nth(i).bounding_box()["x"] for i in (0, 1)]
    assert near[1] - near[0] > 10 * (far[1] - far[0])


def test_more_curves_than_colours_are_named_at_their_ends(browser_page, tmp_path):
    curves = [(f"model {i}", [1, 2, 3], [1, 2, 3 + 0.01 * i]) for i in range(9)]
    page = browser_page.open(written(tmp_path, Lines(curves[:7]), Lines(curves)))
    assert page.locator(".direct").all_text_contents() == [f"model {i}" for i in range(8, -1, -1)]
    tops = page.locator(".direct").evaluate_all("e => e.map(t => t.getBoundingClientRect().top)")
    assert all(b - a >= 12 for a, b in itertools.pairwise(tops))


def test_ordered_curves_go_along_a_ramp_and_areas_lie_below(browser_page, tmp_path):
    curves = [(f"n = {n}", [0, 1], [0, n]) for n in (1, 2, 4)]
    lengths = [("model", [0, 1, 2], [1, 2, 1]), ("held out", [0, 1, 2], [1, 3, 1])]
    page = browser_page.open(
        written(tmp_path, Lines(curves, ordered=True), Lines(lengths, areas=["held out"]))
    )
    stroke = r"e => e.map(c => getComputedStyle(c).stroke.match(/\d+/g).map(Number))"
    tones = page.locator(".curve").evaluate_all(stroke)
    light = [0.2126 * r**2.2 + 0.7152 * g**2.2 + 0.0722 * b**2.2 for r, g, b in tones[:3]]
    assert light[0] > light[1] > light[2]
    assert page.locator(".area").count() == 1 and page.locator(".curve").count() == 4
    names = page.locator(".keys").last.locator("button").all_text_contents()
    assert names == ["held out", "model"]


@pytest.mark.parametrize("low, high, texts", [(8, 64, {"10", "20", "50"}), (1, 1e6, {"1", "100k"})])
def test_a_logarithmic_axis_says_so_and_has_ticks(browser_page, tmp_path, low, high, texts):
    lines = Lines([("a", [low, high], [1, 2])], "records", "loss", log_x=True)
    page = browser_page.open(written(tmp_path, lines))
    shown = page.locator(".lines svg text").all_text_contents()
    assert texts <= set(shown) and "records (logarithmic)" in shown and "loss" in shown


def test_each_bar_of_a_surprise_stands_under_its_symbol(browser_page, tmp_path):
    bits = [1.0, 5.0, 2.0, math.inf]
    page = browser_page.open(written(tmp_path, Surprise(list("isa$"), [("one", bits)])))
    middle = "e => e.map(x => { const b = x.getBoundingClientRect(); return b.left + b.width / 2 })"
    tokens = page.locator(".surprise .token").evaluate_all(middle)
    bars = page.locator(".cell .bar").evaluate_all(middle)
    assert np.allclose(tokens, bars, atol=1.0)
    heights = page.locator(".cell .bar").evaluate_all("e => e.map(x => x.clientHeight)")
    assert heights[0] < heights[2] < heights[1] == heights[3]
    assert page.locator(".surprise canvas").count() == 0


def test_lines_leave_gaps_where_a_logarithm_has_no_value(browser_page, tmp_path):
    lines = Lines(
        [("a", [1, 10, 100, 1000], [1.0, 0.0, 2.0, 4.0]), ("b", [1, 1000], [3, 3])], log_y=True
    )
    page = browser_page.open(written(tmp_path, lines))
    assert page.locator(".curve").first.get_attribute("d").count("M") == 2
    assert "1 point cannot be drawn" in page.locator(".hint").inner_text()
    page.locator(".keys button").last.click()
    assert page.locator(".curve").count() == 1


@pytest.mark.parametrize("width", [360, 1280])
def test_pages_do_not_scroll_sideways(browser_page, tmp_path, width):
    words = ["a", "longer-than-the-others", "c", "d"]
    browser_page.page.set_viewport_size({"width": width, "height": 700})
    page = browser_page.open(written(tmp_path, *every_component(words)))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert browser_page.errors == []


def test_dark_follows_the_reader_and_print_is_light(browser_page, tmp_path):
    page = browser_page.open(written(tmp_path, MaskMap(np.array([[True]]), ["q"])))
    pixel = """() => { const c = document.querySelector('.map canvas'), g = c.getContext('2d');
        return Array.from(g.getImageData(c.width - 9, c.height - 9, 1, 1).data) }"""
    light = page.evaluate(pixel)
    page.emulate_media(color_scheme="dark")
    browser_page.settle()
    dark = page.evaluate(pixel)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(pixel) == light != dark


def test_without_scripts_the_page_says_so_and_shows_its_tables(chromium, tmp_path):
    path = written(tmp_path, Table(["model"], [["<b>lstm</b>"]]), Bars(["x"], [3.25]))
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    text = page.inner_text("body")
    context.close()
    assert "Scripts are off" in text and "<b>lstm</b>" in text and "3.25" in text


def test_the_smallest_and_the_emptiest_data_are_drawn(browser_page, tmp_path):
    root = nodes(["x"])[:1]
    edge_cases = [
        Distribution(["only"], [0.0]),
        Surprise([], [("m", [])]),
        Surprise(["a"], [("m", [math.nan])]),
        Heatmap([[math.nan]], ["r"], ["c"]),
        Heatmap([[2.0]], ["r"], [""], scale="diverging"),
        AttentionMaps(np.zeros((1, 1, 1, 1)), ["a"]),
        BeamTree(root),
        Lines([("empty", [], [])], log_x=True),
        Lines([("point", [3], [0])], log_y=True),
        Lines([("point", [3], [5])], log_x=True, log_y=True),
        Bars([], []),
        Bars(["a", "b"], [-1.0, math.inf]),
        Intervals([], [], [], []),
        Intervals(["a", "b", "c"], [math.inf, -math.inf, math.nan], *[[math.nan] * 3] * 2),
        Histogram([0, 1], [0]),
        Table(["a"], []),
        Sequences([]),
    ]
    page = browser_page.open(written(tmp_path, *edge_cases))
    assert browser_page.errors == []
    assert page.locator(".undrawn").count() == 0
    assert "NaN" not in page.locator("main").inner_html()
