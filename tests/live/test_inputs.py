"""Tokenizers in Node against Python's, and drawings that are made like images of training."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_digits import DIGITS, images
from hypothesis import given, settings
from hypothesis import strategies as st
from live_scripts import run_script

from regard.errors import UserError
from regard.live.inputs import MNIST, center_of_mass, ink_box, measure_ink, stroke_width
from regard.live.parts import live_part
from regard.pipelines.predictor import Predictor
from regard.tokenizers import BPE, Bytes, Characters, Patches, Words
from regard.tokenizers.biology import Kmers, Nucleotides, ProteinBPE, Residues
from regard.tokenizers.smiles import Smiles

PROSE = [
    "the king's ships can't sail, they'll wait; it's 12,345 o'clock  on  a\ttab\nnew line",
    "Ünïcödé größe — “quotes” … 数字 和 字母 नमस्ते emoji 👩‍🚀 <S> is text, <pad> too, <3",
    "a" * 40 + " b" * 20,
    "",
    " leading and trailing ",
    "\u00a0nbsp\u2003em\u3000wide \ufeffbom \x85nel",
]
TOKENIZERS = {
    "characters": (Characters.train(["abc ABC.,é数"]), PROSE),
    "bytes": (Bytes(), PROSE),
    "words": (Words.train(["the king the ships a b on wait leading"]), PROSE),
    "bpe": (BPE.train([*PROSE, "the king the king the kingdom wait waiting " * 5], 400), PROSE),
    "nucleotides": (Nucleotides.train(["ACGT"]), ["acgtuNRYx-ACGU", "UUU", "ACGT ACGT"]),
    "nucleotides, case kept": (Nucleotides.train(["ACGT"], case="keep"), ["acgtuNRYx-ACGU"]),
    "rna": (Nucleotides.train(["ACGU"]), ["ACGTUacgtu"]),
    "kmers": (Kmers.train(["ACGT"], k=3), ["ACGTACGTAnACGTtt-A", "acg", "x"]),
    "smiles": (
        Smiles.train(["C[C@@H](N)C(=O)O", "c1cc[nH]c1"]),
        ["C[C@@H]Cl%12[nH][Fe+2] é", "[[a b]"],
    ),
    "residues": (Residues.train(["MKV"]), ["mkvXBZ*-1", "MKVLA"]),
}
ENCODE = """
const reader = readers[given.program](given.config);
return given.texts.map((text) => {
  const ids = reader.encode(text);
  return [ids, reader.decode(ids)];
});
"""


def tokenize(tokenizer, texts):
    """Return the ids and the decoded text of each text, as the script makes them."""
    part = live_part(tokenizer, None)
    fields = {"program": part.program, "config": part.config, "texts": texts}
    return run_script(part.scripts, ENCODE, fields)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_have_the_ids_that_they_have_in_python(name):
    tokenizer, texts = TOKENIZERS[name]
    for text, (ids, decoded) in zip(texts, tokenize(tokenizer, texts), strict=True):
        assert ids == tokenizer.encode(text).tolist(), text
        assert decoded == tokenizer.decode(ids), text


@settings(max_examples=3, deadline=None)
@given(st.lists(st.text(max_size=30), min_size=60, max_size=60))
def test_any_text_has_the_ids_that_it_has_in_python(texts):
    tokenizer = TOKENIZERS["bpe"][0]
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    for text, (ids, _) in zip(texts, tokenize(tokenizer, texts), strict=True):
        assert ids == tokenizer.encode(text).tolist()


def test_a_lone_surrogate_is_left_out():
    """A browser may hold half a pair while it is typed."""
    assert tokenize(TOKENIZERS["characters"][0], ["a\ud83db"]) == tokenize(
        TOKENIZERS["characters"][0], ["ab"]
    )


def test_what_no_script_reads_is_refused():
    with pytest.raises(UserError, match="live pages do not support protein-bpe"):
        live_part(ProteinBPE.train(["MKVLA"]), None)
    with pytest.raises(UserError, match="side by side"):
        live_part(Kmers.train(["ACGT"], k=3, stride=1), None)


def test_images_in_color_are_refused():
    color = Patches(4, 8, 8, [0.5] * 3, [0.5] * 3)
    with pytest.raises(UserError, match="images of 3 channels"):
        live_part(color, Predictor(None, color, None))


def square(side=20, at=(4, 6), size=8, value=200.0):
    image = np.zeros((side, side))
    image[at[0] : at[0] + size, at[1] : at[1] + size] = value
    return image


def test_ink_is_measured_by_its_box_mass_and_stroke():
    assert ink_box(square()) == (4, 12, 6, 14)
    assert center_of_mass(square()) == pytest.approx((8, 10))
    line = np.zeros((40, 40))
    line[5:35, 10:13] = 1
    assert stroke_width(line) == pytest.approx(3, rel=0.15)  # its ends count as outline too


def test_dark_ink_on_light_paper_is_recognized():
    ink = measure_ink([255 - square(), 255 - square(at=(6, 6))])
    assert (ink["inverted"], ink["dark"], ink["box"]) == (True, 200.0, 0.4)


def test_digits_of_eight_pixels_fill_their_frame_and_without_images_those_of_mnist_count():
    pixels, _ = images()
    ink = measure_ink([image[..., 0].astype(float) for image in pixels[:200]])
    assert ink["box"] == 1.0 and not ink["mass"] and not ink["inverted"] and ink["dark"] == 255
    assert measure_ink([]) == MNIST


CENTRED = "return given.drawings.map((strokes) => Array.from(centred(strokes, given)));"


@pytest.mark.parametrize("mass", [True, False])
def test_drawings_are_scaled_and_put_in_the_middle(mass):
    """Whatever its place and size on the board, a drawing becomes the same image."""
    moved = [[(5 + x / 3, 40 + y / 3) for x, y in stroke] for stroke in DIGITS[4]]
    ink = MNIST | {"mass": mass}
    given = {"width": 28, "height": 28, "ink": ink, "drawings": [DIGITS[4], moved]}
    rows = run_script([("regard.live", "drawing.js")], CENTRED, given)
    first, second = (np.array(row).reshape(28, 28) for row in rows)
    assert np.abs(first - second).max() < 0.07
    top, bottom, left, right = ink_box(first)
    assert max(bottom - top, right - left) == pytest.approx(20, abs=1)
    middle = center_of_mass(first) if mass else ((top + bottom) / 2, (left + right) / 2)
    assert middle == pytest.approx((14, 14), abs=0.6)
    assert stroke_width(first) == pytest.approx(2.8, abs=0.6)
