"""Pages: data is never markup, one script may run, and files are written atomically."""

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

from regard.look.page import (
    AttentionMaps,
    Bars,
    BeamTree,
    Choices,
    Contributions,
    Distribution,
    Facts,
    Heatmap,
    Histogram,
    Lines,
    Logo,
    MaskMap,
    Page,
    Projector,
    Scatter,
    Sequences,
    Surprise,
    Table,
    Tagged,
    Text,
)
from regard.look.page.document import (
    PACK_ABOVE,
    SCRIPTS,
    asset,
    pack,
    pack_weights,
    rare_assets,
    to_json,
    visible,
)


@given(st.text())
def test_no_string_can_close_a_data_block(text):
    written = to_json({"token": text})
    assert json.loads(written) == {"token": text}
    assert not set("<>&\u2028\u2029") & set(written)


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
        '<tr class="highlight"><td class="left">&lt;b&gt;</td><td class="right">1,235</td>' in html
    )
    assert "<dt>seed</dt><dd>7</dd>" in html and "<p>one</p><p>two</p>" in html
    assert '<bdi>abc</bdi><span class="score">−2.5</span>' in html
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


def test_a_page_about_a_run_starts_with_its_facts():
    page = Page.about("t", [("model", "lstm"), ("steps", 1000), ("bits", 2.5), ("seed", 7)])
    assert page.subtitle == "model lstm · steps 1,000 · bits 2.5"
    (facts,) = page.components
    assert len(facts.facts) == 4 and not Page.about("t", []).components


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table(["a"], [[1, 2]]), "row 0 must have one entry per column"),
        (lambda: Table(["a"], [[1]], align=["middle"]), "align must be one of left, right"),
        (lambda: Table(["a"], [[1]], highlight=[1]), "highlight must name rows 0 to 0, got 1"),
    ],
)
def test_wrong_data_is_refused_with_its_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_no_two_scripts_declare_the_same_name():
    """All scripts share one scope: a second declaration would leave the whole page undrawn."""
    names = []
    for name in (*SCRIPTS, *rare_assets(".js")):
        for line in asset(name).splitlines():
            if match := re.match(r"(?:const|let|function) +(?:\[([^\]]+)\]|(\w+))", line):
                names += [word.strip() for word in (match[1] or match[2]).split(",")]
    assert len(names) > 100 and sorted(set(names)) == sorted(names)


def test_a_page_has_the_scripts_of_its_components_alone():
    plain, chosen = Page("plain"), Page("chosen")
    plane = Projector(
        words=["a", "b"],
        planes={"plane": [[0.0, 0.0], [1.0, 1.0]]},
        groups=["all", "all"],
        neighbours=[[1], [0]],
        similarities=[[0.5], [0.5]],
    )
    chosen.add(Choices([("map", plane), ("words", Text("a word"))]))
    assert "function canvasPlane" not in plain.render() and ".stepper" not in plain.render()
    assert "function canvasPlane" in chosen.render()
    assert rare_assets(".css") == ["steps.css"]


def test_a_page_as_json_has_its_sections_and_components_in_order():
    page = Page("Title", "below")
    page.warn("careful")
    page.section("One", "note")
    page.add(Text("a\n\nb"), Table(["x"], [[1.5]]))
    page.details("Two")
    page.add(Text("c"))
    found = json.loads(json.dumps(page.to_json(), allow_nan=False))
    assert (found["title"], found["subtitle"], found["warnings"]) == ("Title", "below", ["careful"])
    assert [(one["title"], one["folded"]) for one in found["sections"]] == [
        ("One", False), ("Two", True)
    ]  # fmt: skip
    (row,) = found["sections"][0]["rows"]
    assert row == [
        {"kind": "text", "data": {"paragraphs": ["a", "b"]}},
        {"kind": "table", "data": Table(["x"], [[1.5]]).data()},
    ]
