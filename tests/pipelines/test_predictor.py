"""Labels of words: where words stand, and the spans that tags make up."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors

import regard.cli
from regard.api import load
from regard.interop.hugging_face import import_hf
from regard.pipelines.predictor import Span, merge_spans, tag_words
from regard.registry import TOKENIZERS

TEXT = "Ángela Merkel, of Berlin-Mitte,  met UN's Ban."
WORDS = ["Ángela", "Merkel", ",", "of", "Berlin", "-", "Mitte", ",", "met", "UN", "'", "s", "Ban"]
WORDS += ["."]
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


def span(label, start, score=0.5):
    return Span("x", start, start + 1, label, {"any": score}, score)


@pytest.mark.parametrize(
    "labels, expected",
    [
        ("O B-PER I-PER O", ["O 0:1", "PER 1:3", "O 3:4"]),
        ("B-PER B-PER I-PER", ["PER 0:1", "PER 1:3"]),
        ("I-PER I-PER I-LOC", ["PER 0:2", "LOC 2:3"]),  # IOB1, where B- is left out
        ("B-PER I-LOC O O", ["PER 0:1", "LOC 1:2", "O 2:3", "O 3:4"]),
        ("S-LOC B-LOC I-LOC E-LOC S-LOC", ["LOC 0:1", "LOC 1:4", "LOC 4:5"]),
        ("U-LOC B-LOC L-LOC I-LOC", ["LOC 0:1", "LOC 1:3", "LOC 3:4"]),
        ("", []),
    ],
)
def test_tags_make_up_spans(labels, expected):
    words = [span(label, i) for i, label in enumerate(labels.split())]
    found = merge_spans("abcdefgh", words)
    assert [f"{one.label} {one.start}:{one.end}" for one in found] == expected
    assert [one.text for one in found] == ["abcdefgh"[one.start : one.end] for one in found]


def test_a_span_is_as_sure_as_its_words_on_average():
    words = [
        Span("a", 0, 1, "B-PER", {"B-PER": 0.9, "I-PER": 0.1}, 0.9),
        Span("b", 2, 3, "I-PER", {"B-PER": 0.3, "I-PER": 0.7}, 0.7),
    ]
    (one,) = merge_spans("a b", words)
    assert one.text == "a b" and one.score == pytest.approx(0.8)
    assert one.scores == pytest.approx({"B-PER": 0.6, "I-PER": 0.4})


def test_tags_are_told_from_other_labels():
    assert tag_words(TAGS) and tag_words(("I-DNA", "O"))
    assert (
        not tag_words(("O", "LABEL_1")) and not tag_words(("B", "I", "O")) and not tag_words(("O",))
    )


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_own_tokenizers_know_where_words_stand(kind):
    text = " two  words\tand more "
    tokenizer = TOKENIZERS[kind].train([text] * 3)
    found = tokenizer.word_spans(text)
    assert [text[start:end] for start, end, _ in found] == text.split()
    ids = tokenizer.encode(text)
    for start, _, token in found:  # what is before the token is what is before the word
        assert tokenizer.decode(ids[:token]).rstrip() == text[:start].rstrip()
    assert TOKENIZERS["characters"].train(["abc"]).word_spans("abc") is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny BERT that tags words, in Hugging Face's files, and the run imported from it."""
    transformers = pytest.importorskip("transformers")
    root = tmp_path_factory.mktemp("ner")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "an", "##gel", "##a", "mer", "##kel"]
    pieces += [",", "of", "berlin", "-", "mitte", "met", "un", "'", "s", "ban", "."]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    specials = {
        f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")
    }
    transformers.PreTrainedTokenizerFast(tokenizer_object=library, **specials).save_pretrained(
        root / "hf"
    )
    torch.manual_seed(2)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(
        vocab_size=len(pieces),
        intermediate_size=32,
        max_position_embeddings=40,
        id2label=dict(enumerate(TAGS)),
        label2id={name: i for i, name in enumerate(TAGS)},
        **sizes,
    )
    model = transformers.BertForTokenClassification(config).eval()
    with torch.no_grad():
        model.classifier.weight *= 40
    model.save_pretrained(root / "hf")
    import_hf(root / "hf", root / "run")
    return root


def expected_words(transformers, folder):
    """Hugging Face's own answer: the label of each word's first token."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "hf")
    model = transformers.AutoModelForTokenClassification.from_pretrained(folder / "hf").eval()
    given = tokenizer(TEXT, return_tensors="pt", return_offsets_mapping=True)
    offsets = given.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        likely = model(**given).logits[0].softmax(-1)
    found, before = [], None
    for place, word in enumerate(given.word_ids()):
        if word is not None and word != before:
            best = int(likely[place].argmax())
            found.append([*offsets[place], TAGS[best], float(likely[place, best])])
        elif word is not None:
            found[-1][1] = offsets[place][1]
        before = word
    return found


def test_every_word_has_the_label_hugging_face_gives_its_first_token(folder):
    transformers = pytest.importorskip("transformers")
    expected = expected_words(transformers, folder)
    (answer, empty) = load(folder / "run").predictions([TEXT, " "])
    assert [word.text for word in answer.words] == WORDS
    found = [[word.start, word.end, word.label] for word in answer.words]
    assert found == [one[:3] for one in expected]
    np.testing.assert_allclose([w.score for w in answer.words], [e[3] for e in expected], atol=1e-5)
    assert len({word.label for word in answer.words}) > 1  # not all the same
    assert empty.words == () and empty.label == ""


def test_predict_prints_a_line_for_each_word_or_name(folder, capsys, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text(f"{TEXT}\n\nof Berlin\n", encoding="utf-8")

    def printed(*options):
        assert regard.cli.run(["predict", str(folder / "run"), str(path), *options]) in (0, None)
        return capsys.readouterr().out

    records = json.loads(printed("--json"))["predictions"]
    assert [record["text"] for record in records] == [TEXT, "", "of Berlin"]
    first = records[0]
    assert [TEXT[word["start"] : word["end"]] for word in first["words"]] == [
        word["text"] for word in first["words"]
    ]
    assert first["prediction"] == " ".join(word["label"] for word in first["words"])
    assert len(first["spans"]) < len(first["words"]) and records[1]["words"] == []
    lines = printed().splitlines()
    rows = [line.split("\t") for line in lines]
    assert rows[: lines.index("")] == [
        [one["label"], f"{one['score']:.4f}", str(one["start"]), str(one["end"]), one["text"]]
        for one in first["spans"]
    ]
    assert lines.count("") == 3 and lines[-1] == ""  # one after each text, the empty one too
    every = printed("--scores").splitlines()
    assert every[0].startswith("O=") and every[0].count("=") == len(TAGS)
    assert every.index("") == len(WORDS)
