"""Pages and their components: what the data says, what is refused, and data is never markup."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.look.figures import colours
from regard.look.page import (
    AttentionMaps,
    Bars,
    BeamTree,
    Contributions,
    Distribution,
    Facts,
    Heatmap,
    Histogram,
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
from regard.look.page.component import PACK_ABOVE, pack, pack_weights, to_json, visible

EVIL = "</script><img src=x onerror=alert(1)><!-- ]]> \" ' & \u202e \u2028"


def node(id, parent, score, *, step, kept=True, finished=False, token="a"):
    return {
        "id": id,
        "parent": parent,
        "token": token,
        "score": score,
        "kept": kept,
        "finished": finished,
        "step": step,
    }


def one_of_each(word):
    """Every component, with this word wherever a string may stand."""
    return [
        Text(f"{word}\n\nsecond"),
        Facts([(word, word), ("count", 3)], title=word),
        Table([word, "n"], [[word, 1.5], ["b", None]], highlight=[1], title=word),
        Heatmap([[1.0, math.nan, 3.0]], [word], [word, "b", "c"], title=word, unit=word),
        MaskMap(np.tril(np.ones((2, 2), bool)), [word, "b"], title=word),
        AttentionMaps(np.full((1, 2, 3, 3), 1 / 3), [word, "b", "c"], layers=[word], title=word),
        Surprise([word, "b"], [(word, [1.0, math.inf]), ("m", [math.nan, 0.0])], title=word),
        Contributions([word, "b"], [(word, [1.0, -0.5])], title=word, unit=word),
        Logo([word, "b"], [[0.9, 0.1], [0.0, 0.5]], [0, 1], 1.0, title=word, note=word),
        Tagged([word, "b"], [word, None], {word: word}, title=word),
        Distribution([word, "b", "c"], [0.0, 1.0, -math.inf], title=word),
        BeamTree([node(0, None, 0.0, step=0), node(1, 0, -1.0, step=1, token=word)], title=word),
        Lines(
            [(word, [1, 2], [3.0, math.nan])],
            word,
            word,
            title=word,
            bands={word: ([1, 2], [3, 4])},
        ),
        Bars([word, "b"], [1.0, 2.0], [0.5, 1.5], [1.5, 2.5], title=word, unit=word),
        Histogram([0, 1, 3], [4, 5], title=word, x_label=word, y_label=word),
        Scatter(np.eye(2), [word, "b"], [word, "c"], marks={1: word}, x_label=word, title=word),
        Sequences([(word, -1.5), ("b", None)], title=word, score_name=word),
    ]


def page_of(components, word="A title"):
    page = Page(word, word)
    page.section(word, note=word)
    for component in components:
        page.add(component)
    return page


class Elements(HTMLParser):
    """Collects tags, attributes and the text of scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.scripts, self.inside = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag == "script":
            self.inside = dict(attributes).get("type", "code")
            self.scripts.append([self.inside, ""])

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, text):
        if self.inside:
            self.scripts[-1][1] += text


def test_hostile_words_add_no_element_and_no_attribute():
    evil = Elements(page_of(one_of_each(EVIL), EVIL).render())
    plain = Elements(page_of(one_of_each("word"), "word").render())
    assert evil.tags == plain.tags
    assert [name for name, _ in evil.attributes] == [name for name, _ in plain.attributes]


def test_every_data_block_reads_back_as_the_component_said():
    components = one_of_each(EVIL)
    blocks = [t for kind, t in Elements(page_of(components).render()).scripts if kind != "code"]
    assert [json.loads(block) for block in blocks] == [c.data() for c in components]


@given(st.text())
def test_no_string_can_close_a_data_block(text):
    written = to_json({"token": text})
    assert json.loads(written) == {"token": text}
    assert not set("<>&\u2028\u2029") & set(written)


def test_the_policy_allows_exactly_the_script_of_the_page():
    html = page_of(one_of_each("word")).render()
    code = next(text for kind, text in Elements(html).scripts if kind == "code")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html).group(1)
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
    assert "http" not in policy and "unsafe-eval" not in policy


def test_a_page_names_no_address_outside_itself():
    html = page_of(one_of_each("word")).render()
    outside = set(re.findall(r"(?:https?:)?//[a-z][\w.]+/?[\w/]*", html))
    assert outside == {"http://www.w3.org/2000/svg"}  # a namespace, which nothing fetches


def test_tables_texts_and_samples_are_readable_without_a_script():
    table = Table(["model", "bits"], [["<b>", 1234.5678], ["lstm", None]], highlight=[0], title="T")
    parts = [table, Facts([("seed", 7)]), Text("one\n\ntwo"), Sequences([("abc", -2.5)])]
    html = re.sub(r"<script.*?</script>", "", page_of(parts).render(), flags=re.S)
    assert (
        '<tr class="highlight"><td class="left">&lt;b&gt;</td><td class="right">1235</td>' in html
    )
    assert "<dt>seed</dt><dd>7</dd>" in html and "<p>one</p><p>two</p>" in html
    assert '<bdi>abc</bdi><span class="score">-2.5</span>' in html
    assert "<noscript>" in html


def test_a_lone_surrogate_can_still_be_written(tmp_path):
    page = page_of([Text("a\udcffb"), Surprise(["\udcff"], [("m", [1.0])])], "\udcff")
    assert "a⟨DCFF⟩b" in page.write(tmp_path / "page.html").read_text(encoding="utf-8")


def test_writing_replaces_the_file_at_once_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    page = page_of([Text("new")])
    assert page.write(path) == path
    assert path.read_text(encoding="utf-8") == page.render()
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        page_of([Text("new")]).write(path)
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_components_come_back_in_the_order_they_were_added():
    first, second, third = Text("1"), Text("2"), Text("3")
    page = Page("t")
    page.add(first, second)
    page.section("s")
    page.add(third)
    assert page.components == (first, second, third)
    with pytest.raises(TypeError, match="got str"):
        page.add("text")


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("", "∅"),
        (" the", "·the"),
        ("a\n\tb", "a↵⇥b"),
        ("\x00\x1b\x7f", "␀␛␡"),
        ("\u202eabc", "⟨202E⟩abc"),
        ("\u0301", "◌\u0301"),
        ("\u00a0\u2028", "⟨00A0⟩⟨2028⟩"),
        ("می\u200cخواهم", "می\u200cخواهم"),
    ],
)
def test_hidden_characters_are_made_visible(token, shown):
    assert visible(token) == shown


def test_titles_keep_their_spaces_but_cannot_reorder_the_page():
    assert visible("a b\n\u202e", spaces=False) == "a b\n⟨202E⟩"


def read_codes(packed, dtype):
    key = "u8root" if dtype == "u1" else "u16"
    return np.frombuffer(base64.b64decode(packed[key]), dtype=dtype).reshape(packed["shape"])


def test_small_arrays_travel_as_lists():
    values = np.array([[1 / 3, math.nan], [math.inf, -2e-7]])
    assert pack(values) == {"shape": [2, 2], "list": [0.333333, None, None, -2e-07]}
    assert pack_weights(np.array([[[[0.25, 0.75]]]])) == {
        "shape": [1, 1, 1, 2],
        "list": [0.25, 0.75],
    }


def test_large_attention_keeps_small_weights():
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(120, 0.05), size=(2, 3, 100))  # (L, H, T, S)
    assert weights.size > PACK_ABOVE
    packed = pack_weights(weights)
    codes = read_codes(packed, "u1").astype(float)
    assert (np.abs(np.sqrt(weights) - codes / 255) <= 0.5 / 255 + 1e-12).all()
    typical = np.rint(np.sqrt(1 / 512) * 255) / 255
    assert abs(typical**2 * 512 - 1) < 0.06


def test_large_heatmaps_keep_sixteen_bits_and_their_gaps():
    values = np.random.default_rng(0).normal(size=(150, 160)) * 1e3
    values[3, 5] = math.nan
    packed = pack(values)
    codes = read_codes(packed, "<u2")
    step = (packed["high"] - packed["low"]) / 65534
    back = np.where(codes == 65535, math.nan, packed["low"] + codes * step)
    assert np.isnan(back[3, 5]) and np.isnan(back).sum() == 1
    assert np.nanmax(np.abs(back - values)) <= step * 0.51


def test_a_constant_or_empty_of_finite_heatmap_can_be_packed():
    for value in (7.0, math.nan):
        packed = pack(np.full((150, 160), value))
        json.dumps(packed, allow_nan=False)
        assert packed["low"] == packed["high"] == (7.0 if value == 7.0 else 0.0)


def naive_cut(logits, temperature, top_k, top_p):
    """The three cuts, one symbol at a time."""
    weights = [math.exp(x / temperature) for x in logits]
    tempered = [w / sum(weights) for w in weights]
    order = sorted(range(len(logits)), key=lambda i: (-tempered[i], i))[: top_k or None]
    mass = sum(tempered[i] for i in order)
    kept, total = [], 0.0
    for i in order:
        if top_p < 1 and total >= top_p:
            break
        kept.append(i)
        total += tempered[i] / mass
    share = sum(tempered[i] for i in kept)
    return tempered, [tempered[i] / share if i in kept else 0.0 for i in range(len(logits))]


@given(
    st.lists(st.integers(-24, 24).map(lambda i: i / 4), min_size=1, max_size=9),
    st.sampled_from([0.3, 1.0, 2.5]),
    st.integers(0, 9),
    st.sampled_from([0.05, 0.37, 0.81, 1.0]),
)
def test_cuts_agree_with_taking_symbols_one_by_one(logits, temperature, top_k, top_p):
    top_k = min(top_k, len(logits))
    names = [str(i) for i in range(len(logits))]
    shown = Distribution(names, logits, temperature=temperature, top_k=top_k, top_p=top_p).cut()
    for ours, naive in zip(shown, naive_cut(logits, temperature, top_k, top_p), strict=True):
        np.testing.assert_allclose(ours, naive, atol=1e-9)


def test_probabilities_and_their_logarithms_are_the_same_distribution():
    probabilities = [0.5, 0.3, 0.2, 0.0]
    from_logits = Distribution(
        list("abcd"), [math.log(p) if p else -math.inf for p in probabilities]
    )
    from_probabilities = Distribution(list("abcd"), probabilities=probabilities)
    assert from_logits.data() == from_probabilities.data()
    np.testing.assert_allclose(from_probabilities.cut()[1], probabilities)


def test_the_best_beam_is_the_best_finished_one():
    nodes = [
        node(0, None, 0.0, step=0),
        node(1, 0, -1.0, step=1),
        node(2, 0, -0.5, step=1, kept=False, finished=True),
        node(3, 1, -1.5, step=2),
        node(4, 1, -2.0, step=2, finished=True),
    ]
    assert BeamTree(nodes).best_path() == [0, 1, 4]
    assert BeamTree(nodes[:4]).best_path() == [0, 1, 3]
    assert BeamTree(nodes, best=3).best_path() == [0, 1, 3]


def luminance(colour):
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * r**2.2 + 0.7152 * g**2.2 + 0.0722 * b**2.2


def test_tags_are_numbered_by_how_often_they_occur():
    tagged = Tagged(list("abcde"), ["x", "y", None, "z", "y"], {"y": "twice"})
    data = tagged.data()
    assert data["names"] == ["y", "x", "z"] and data["notes"] == ["twice", "", ""]
    assert data["tags"] == [1, 0, -1, 2, 0]


def test_colour_ramps_are_monotone_in_lightness():
    for name in ("ramp", "warm"):
        steps = np.diff([luminance(c) for c in colours(name)])
        assert (steps < 0).all()
    low, middle, high = np.split(np.array([luminance(c) for c in colours("diverging")]), [2, 3])
    assert (np.diff([*low, *middle]) > 0).all() and (np.diff([*middle, *high]) < 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Heatmap([[1, 2]], ["a"], ["b"]),
            "columns must have one entry per column of values",
        ),
        (lambda: Heatmap([1, 2], ["a"], ["b"]), "values must have 2 dimensions"),
        (lambda: Heatmap([[1]], ["a"], ["b"], scale="rainbow"), "scale must be one of .*'rainbow'"),
        (lambda: MaskMap([[1]], ["a"]), "mask must be boolean"),
        (lambda: Heatmap([[1]], ["a"], ["b"], marks=[(0, 1)]), r"marks must lie in .*\(0, 1\)"),
        (lambda: Heatmap([[2]], ["a"], ["b"], scale="weights"), r"weights must lie in \[0, 1\]"),
        (lambda: AttentionMaps(np.ones((1, 2, 3)), ["a"]), "weights must have 4 dimensions"),
        (
            lambda: AttentionMaps(np.ones((1, 2, 1, 1)), ["a"], chosen=(0, 2)),
            "chosen must be a layer",
        ),
        (
            lambda: AttentionMaps(np.full((1, 1, 2, 3), 2.0), ["a", "b"]),
            r"weights must lie in \[0, 1\]",
        ),
        (
            lambda: AttentionMaps(np.zeros((1, 1, 2, 3)), ["a", "b"]),
            "sources must have one entry per key",
        ),
        (
            lambda: AttentionMaps(np.zeros((1, 1, 1, 1)), ["a"], layers=["x", "y"]),
            "layers must have one",
        ),
        (
            lambda: AttentionMaps(np.zeros((1, 1, 1, 1)), ["a"], scores=np.zeros((1, 1, 1, 2))),
            r"scores must have the shape of weights, \(1, 1, 1, 1\), got \(1, 1, 1, 2\)",
        ),
        (lambda: Tagged(["a", "b"], ["x"]), "tags must have one entry per token"),
        (
            lambda: Heatmap([[-1.0]], ["a"], ["b"], scale="logarithmic"),
            "logarithmic values must be at least 0, got -1.0",
        ),
        (lambda: Surprise(["a"], [("m", [1, 2])]), "bits of 'm' must have one entry per token"),
        (lambda: Surprise(["a"], [("m", [-1])]), "bits of 'm' must not be negative, got -1.0"),
        (lambda: Surprise(["a"], []), "rows must hold at least one"),
        (lambda: Distribution(["a"]), "either logits or probabilities"),
        (lambda: Distribution(["a"], [1.0], top_p=0), r"top_p must be in \(0, 1\], got 0"),
        (lambda: Distribution(["a"], [1.0], top_k=2), r"top_k must be in 0..1, got 2"),
        (lambda: Distribution(["a"], [1.0], temperature=0), "temperature must be positive, got 0"),
        (lambda: Distribution(["a"], [math.nan]), "logits must be numbers"),
        (lambda: Distribution(["a"], probabilities=[0.0]), "probabilities must be finite"),
        (lambda: BeamTree([{"id": 0}]), "a node must have the keys"),
        (lambda: BeamTree([node(0, None, 0.0, step=0)] * 2), "node ids must differ, got 0 twice"),
        (
            lambda: BeamTree([node(0, 7, 0.0, step=0)]),
            "node 0: parent must be a node of an earlier",
        ),
        (
            lambda: BeamTree([node(0, None, 0.0, step=0)], best=3),
            "best must be the id of a node, got 3",
        ),
        (lambda: Table(["a"], [[1, 2]]), "row 0 must have one entry per column"),
        (lambda: Table(["a"], [[1]], align=["middle"]), "align must be one of left, right"),
        (lambda: Table(["a"], [[1]], highlight=[1]), "highlight must name rows 0 to 0, got 1"),
        (lambda: Lines([("a", [1], [1, 2])]), "ys of 'a' must have one entry per x"),
        (lambda: Lines([("a", [1], [1])] * 2), "different names"),
        (lambda: Lines([("a", [1], [1])], bands={"b": ([1], [1])}), "bands must name a series"),
        (lambda: Bars(["a"], [1], [0.5]), "give low and high together"),
        (lambda: Histogram([1, 0], [3]), "edges must be finite and increase"),
        (lambda: Histogram([0, 1, 2], [3]), "edges must have one entry per count, and one more"),
    ],
)
def test_wrong_data_is_refused_with_its_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()
