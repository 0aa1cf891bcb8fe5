"""Components as figures: the right format, the right marks, tokens that are only text."""

from __future__ import annotations

import builtins
import math
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from regard.errors import UsageError, UserError
from regard.look.figures import (
    DOUBLE,
    SINGLE,
    colours,
    layout_tree,
    letter_bits,
    motif_logo,
    save,
    save_all,
    wrap_tokens,
)
from regard.look.page import (
    AttentionMaps,
    Bars,
    BeamTree,
    Contributions,
    Distribution,
    Heatmap,
    Histogram,
    Intervals,
    Lines,
    Logo,
    MaskMap,
    Scatter,
    Surprise,
    Tagged,
    Text,
)
from regard.models.motifs import (
    DNA,
    PROTEIN,
    Background,
    MarkovMotif,
    MotifAlphabet,
    PositionWeightMatrix,
)

EVIL = "$\\frac{</svg><script>-->"  # neither a formula nor markup


def beam_nodes():
    rows = [(0, None, 0.0, 0), (1, 0, -1.0, 1), (2, 0, -3.0, 1), (3, 1, -2.0, 2), (4, 1, -4.0, 2)]
    return [
        {
            "id": at,
            "parent": parent,
            "token": EVIL if at == 2 else "a",
            "score": score,
            "kept": at != 4,
            "finished": at == 3,
            "step": step,
        }
        for at, parent, score, step in rows
    ]


def everything():
    tokens = [EVIL, " ", "\n", "語"]
    bits = [0.5, 2.0, math.inf, math.nan]
    return [
        Text("left out"),
        Heatmap([[1.0, math.nan, -2.0]], [EVIL], list("abc"), scale="diverging", title=EVIL),
        Heatmap([[0.0, 1.0, 20.0]], ["x"], list("abc"), scale="logarithmic"),
        Heatmap([[0.0, 1.0, 0.5]], ["x"], list("abc"), scale="weights", marks=[(0, 1)]),
        MaskMap(np.tril(np.ones((4, 4), bool)), tokens),
        AttentionMaps(np.full((2, 3, 4, 4), 0.25), tokens, title=EVIL),
        Surprise(tokens, [(EVIL, bits), ("second", bits)]),
        Tagged(tokens, [None, EVIL, "state 2", EVIL], title=EVIL),
        Distribution(tokens, [0.0, -1.0, -2.0, -math.inf], top_p=0.8),
        BeamTree(beam_nodes()),
        Lines([(EVIL, [1, 10, 100], [1.0, 0.0, 3.0])], EVIL, log_x=True, log_y=True),
        Bars([EVIL, "b"], [1.0, math.nan], [0.5, 1.0], [1.5, 2.0], highlight=[0]),
        Intervals([EVIL, "b"], [1.0, math.inf], [0.5, math.nan], [1.5, math.nan], title=EVIL),
        Histogram([0, 1, 3], [4, 5]),
        Contributions(tokens, [(EVIL, [0.5, -2.0, 0.0, 1.0])], unit=EVIL),
        Logo([EVIL, "b"], [[0.9, 0.1]], [0, 1], 1.0, title=EVIL),
        Scatter(np.eye(2), groups=[EVIL, "b"], marks={0: EVIL}, title=EVIL, diagonal=True),
        Scatter(np.eye(2), values=[1.0, math.nan], unit=EVIL),
        Scatter(np.eye(2)[[0] * 9], groups=[EVIL, *"abcdefgh"], outline=[(0.0, 0.0, EVIL)]),
    ]


def test_every_component_becomes_a_file_of_its_own_at_the_width_of_a_paper(tmp_path):
    paths = save_all(everything(), tmp_path / "figures", "svg", prefix="run")
    assert len(paths) == len(everything()) - 1  # words have no figure
    assert [path.name[:6] for path in paths[:3]] == ["run-01", "run-02", "run-03"]
    for path in paths:
        root = ElementTree.parse(path).getroot()
        assert not [e for e in root.iter() if e.tag.endswith("script")]
        width = float(root.get("width").removesuffix("pt")) / 72
        assert round(width, 3) in (SINGLE, DOUBLE)
    with pytest.raises(UsageError, match="figures go into a folder, a file each"):
        save_all(everything(), tmp_path / "all.svg", "svg")


def texts_of(path):
    """The texts of an SVG that keeps them, as matplotlib does on request."""
    root = ElementTree.parse(path).getroot()
    return ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("}text")]


def test_attention_keeps_its_tokens_however_many_heads_there_are(tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    attention = AttentionMaps(np.full((2, 8, 3, 3), 1 / 3), ["one", "two", "three"])
    texts = texts_of(save(attention, tmp_path / "heads.svg"))
    assert texts.count("two") == 2 + 8  # at the left of both layers, on top of all eight heads


def test_an_infinite_value_has_its_row(tmp_path, monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    rows = Intervals(["a", "b"], [2.0, math.inf], [1.9, math.nan], [2.1, math.nan], unit="bits")
    texts = texts_of(save(rows, tmp_path / "rows.svg"))
    assert {"a", "b", "∞", "bits"} <= set(texts)


def test_a_png_is_a_png_and_nothing_else_is_left_behind(tmp_path):
    path = save(Histogram([0, 1], [4]), tmp_path / "one.png", width=3, dpi=40)
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert [p.name for p in tmp_path.iterdir()] == ["one.png"]


def test_the_same_components_give_the_same_bytes(tmp_path):
    bars = Bars(["a", "b"], [1.0, 2.0])
    first, second = save(bars, tmp_path / "1.svg"), save(bars, tmp_path / "2.svg")
    assert first.read_bytes() == second.read_bytes()


def test_kept_bars_are_coloured_and_cut_bars_are_not(tmp_path):
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    text = save(Distribution(list("abcd"), logits, top_k=3), tmp_path / "d.svg").read_text()
    assert text.count(f"fill: {colours('accent')[0]}") == 3
    assert text.count(f"fill: {colours('line')[0]}") == 1


def test_a_marked_cell_is_outlined(tmp_path):
    plain = Heatmap([[0.0, 1.0], [0.5, 0.5]], ["x", "y"], list("ab"), scale="weights")
    marked = Heatmap(plain.values, plain.rows, plain.columns, scale="weights", marks=[(1, 0)])
    stroke = f"stroke: {colours('mark')[0]}"
    for heatmap, count in ((plain, 0), (marked, 1)):
        assert save(heatmap, tmp_path / "h.svg").read_text().count(stroke) == count


def test_the_best_path_is_a_straight_line_at_the_top():
    tree = BeamTree(beam_nodes())
    heights = layout_tree(tree)
    assert heights == {0: 0.0, 1: 0.0, 3: 0.0, 4: 1.0, 2: 2.0}
    late = BeamTree(beam_nodes(), best=2)  # a winner that was behind at first
    assert layout_tree(late) == {0: 0.0, 2: 0.0, 1: 1.0, 3: 1.0, 4: 2.0}


def test_text_wraps_at_the_line_and_after_a_newline():
    lines = wrap_tokens(["x" * 50, "y" * 40, "\n", "語"])
    assert lines == [[(0, 0, 50)], [(1, 0, 40), (2, 40, 1)], [(3, 0, 2)]]


def test_another_format_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf, got 'a.gif'"):
        save(Histogram([0, 1], [4]), tmp_path / "a.gif")


def test_words_alone_have_no_figure(tmp_path):
    with pytest.raises(UserError, match="nothing to draw"):
        save(Text("words"), tmp_path / "a.png")


def test_without_matplotlib_the_install_command_is_named(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install 'regard\[plots\]'"):
        save(Histogram([0, 1], [4]), tmp_path / "a.png")


def entropy_by_hand(row):
    return -sum(p * math.log2(p) for p in row if p)


@pytest.mark.parametrize("order", [0, 1])
def test_stacks_are_as_tall_as_their_information(order):
    motif = MarkovMotif.fit(["ACGT", "ACCT", "ATGT", "ACGA"], order=order, beta=0.5)
    logo = motif_logo(motif)
    assert logo.most == 2 and logo.title == f"motif {motif.consensus}"
    stacks = logo.stacks(1e-9)
    assert len(stacks) == 4
    for stack, row in zip(stacks, motif.probabilities, strict=True):
        information = 2 - entropy_by_hand(row)
        assert sum(bits for _, bits, _ in stack) == pytest.approx(information, abs=2e-3)
        for letter, bits, _ in stack:
            assert bits == pytest.approx(row[DNA.letters.index(letter)] * information, rel=1e-4)
        assert stack[-1] == max(stack, key=lambda entry: entry[1])  # the tallest is on top
    np.testing.assert_allclose(letter_bits(motif).sum(axis=1), motif.information())


def test_against_a_background_a_stack_is_relative_entropy():
    shares = [0.4, 0.3, 0.2, 0.1]
    motif = PositionWeightMatrix.fit(["ACT", "AGT"], background=Background.of(shares))
    by_hand = [
        sum(p * math.log2(p / b) for p, b in zip(row, shares, strict=True))
        for row in motif.probabilities
    ]
    logo = motif_logo(motif, against_background=True)
    np.testing.assert_allclose(logo.array().sum(1), by_hand)
    assert logo.most == pytest.approx(max(by_hand))


def test_a_flat_motif_has_no_letters_and_colours_are_those_of_the_series():
    flat = motif_logo(PositionWeightMatrix.of_counts(np.ones((3, 4))))
    assert flat.stacks(1e-9) == [[], [], []]
    for alphabet in (DNA, PROTEIN, MotifAlphabet("xyz")):
        motif = PositionWeightMatrix.of_counts(np.eye(alphabet.size), alphabet, pseudocount=0)
        used = {colour for stack in motif_logo(motif).stacks(1e-9) for _, _, colour in stack}
        assert len(used) >= 3 and used <= set(range(len(colours("series"))))


def test_a_logo_can_be_saved_as_svg(tmp_path):
    path = save(motif_logo(PositionWeightMatrix.fit(["ACGT"]), "AP-1 <1>"), tmp_path / "logo.svg")
    ElementTree.parse(path)
    drawn = set(re.findall(r"fill: (#\w+)", path.read_text()))
    assert {colours("series")[i] for i in (0, 1, 2, 4)} <= drawn  # C, T, A and G
