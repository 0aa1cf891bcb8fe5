"""Text: which tokenizer fits which texts, and how large models are by default."""

from __future__ import annotations

import pytest

from regard.data.text_files import Pairs, TextFiles
from regard.errors import UsageError, UserError
from regard.modalities.text import (
    Text,
    TextConfig,
    choose_pair_tokenizer,
    choose_tokenizer,
    inspect_pairs,
    inspect_records,
    inspect_text,
    size_classifier,
    size_seq2seq,
)
from regard.recipe import build

WORDS = ["the cat sat on the mat", "a dog and a cat"] * 20
DNA = ["ACGTACGTTA", "GGCATTACGA"] * 20
PROTEINS = ["MKTAYIAKQRQISFVKSHFSRQ", "LEERLGLIEVQAPILSRVGDGTQ"] * 20
MOLECULES = ["CC(=O)Oc1ccccc1", "C[C@@H](N)C(=O)O", "c1ccncc1"] * 20


@pytest.fixture
def facts(tmp_path):
    def facts(texts, name="a.txt", **options):
        (tmp_path / name).write_text("\n".join(texts) + "\n")
        return inspect_records(TextFiles([tmp_path / name], format="lines"), **options)

    return facts


@pytest.mark.parametrize(
    ("texts", "modality", "tokenizer"),
    [
        (WORDS, "text", "words"),
        (["anna", "bob", "carlotta"], "text", "characters"),
        (DNA, "biology", "nucleotides"),
        (PROTEINS, "biology", "residues"),
        (MOLECULES, "chemistry", "smiles"),
    ],
)
def test_the_modality_with_the_best_score_is_chosen(facts, texts, modality, tokenizer):
    table = {}
    reason = choose_tokenizer(table, facts(texts))
    assert table == {"name": modality, "tokenizer": tokenizer} and reason != "as asked"


def test_a_given_tokenizer_or_modality_is_kept(facts):
    table = {"tokenizer": "bytes"}
    assert choose_tokenizer(table, facts(DNA)) == "as asked" and table == {"tokenizer": "bytes"}
    table = {"name": "text", "tokenizer": "auto"}
    choose_tokenizer(table, facts(DNA))
    assert table == {"name": "text", "tokenizer": "characters"}
    table = {"name": "chemistry"}
    assert choose_tokenizer(table, facts(WORDS)) == "as asked" and table["tokenizer"] == "smiles"


def test_counts_over_records_and_running_text(facts, tmp_path):
    found = facts(["ab c", "d"])
    assert (found.records, found.total, found.longest, found.words) == (2, 5, 4, 2)
    assert found.sample.cells == ["ab c", "d"] and found.complete
    source = TextFiles([tmp_path / "a.txt"], format="text")
    running = inspect_text(source)
    assert (running.records, running.total) == (1, 7)  # with the line breaks
    assert found.estimated_records(source) == 2
    found.complete, found.records = False, 1
    assert found.estimated_records(source) == round(source.size / 5)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"tokenizer": "word"}, "tokenizer 'word' is not one of text; did you mean 'words'"),
        ({"name": "text", "tokenizer": "smiles"}, "'smiles' is not one of text"),
        ({"tokenizer": "points"}, "'points' is not one of text"),
        ({"vocab_size": -1}, "vocab_size must be from 0 to"),
        ({"size": 3}, r"unknown key 'output\.size'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(table, message):
    with pytest.raises(UsageError, match=message):
        build({"output": table})


def test_the_encoder_is_that_of_the_settings():
    text = Text(TextConfig(tokenizer="bpe", vocab_size=300))
    encoder = text.fit_encoder(["to be or not to be"] * 50)
    assert encoder.name == "bpe" and encoder.vocab_size <= 300
    assert text.options == {} and text.training_limit > 1e6
    with pytest.raises(UserError, match="texts are read as records"):
        text.items("a.txt", encoder)
    assert text.open_all(["a", "b"], encoder) == ["a", "b"]


def test_a_classifier_is_sized_by_its_records(facts):
    tables = {"task": {"name": "label"}, "input": {"tokenizer": "characters"}}
    tables |= {"model": {}, "train": {}}
    line = size_classifier(tables, facts(WORDS), 40)
    assert tables["model"] | {"dropout": 0} == {
        **{"name": "transformer", "max_len": 32, "n_layers": 1, "d_model": 64, "dropout": 0},
        "choose": ["transformer", "cnn", "lstm"],
    }
    assert line.startswith("model: transformer 1 × 64, for 40 records") and "context 32" in line
    more = {**tables, "model": {}, "train": {"minutes": 60}}
    size_classifier(more, facts(WORDS), 100_000)
    assert more["model"]["d_model"] > 64
    given = {**tables, "model": {"name": "logistic"}}
    assert size_classifier(given, facts(WORDS), 40) == (
        "model: logistic: fitted in one go, context 32"
    )


@pytest.fixture
def pairs(tmp_path):
    def pairs(sources, targets):
        for name, texts in (("a.en", sources), ("a.de", targets)):
            (tmp_path / name).write_text("\n".join(texts) + "\n")
        return inspect_pairs(Pairs([tmp_path / "a.en", tmp_path / "a.de"]))

    return pairs


def test_pairs_have_subwords_if_there_is_much_text(pairs):
    facts, total = pairs(["ab c"] * 10, ["cd"] * 10)
    assert (facts.records, facts.characters, facts.spaces, facts.longest) == (10, 60, 10, 4)
    assert total == 60
    tables = {"task": {}, "input": {}, "output": {}}
    line = choose_pair_tokenizer(tables, facts, total)
    assert line == "characters for both sides (short, or few)"
    assert tables["input"]["tokenizer"] == tables["output"]["tokenizer"] == "characters"
    tables = {"task": {"shared_vocab": False}, "input": {}, "output": {}}
    line = choose_pair_tokenizer(tables, facts, 400_000)
    assert line == "bpe of 1,000 for each side (sentences of words)"
    assert tables["input"] == tables["output"] == {"tokenizer": "bpe", "vocab_size": 1000}
    tables = {"task": {}, "input": {"tokenizer": "words"}, "output": {"tokenizer": "bytes"}}
    assert choose_pair_tokenizer(tables, facts, total) == "bytes for both sides (as asked)"
    assert tables["input"]["tokenizer"] == "words"


def test_a_translator_is_sized_by_its_characters(pairs):
    facts, total = pairs(["ab c"] * 10, ["cd"] * 10)
    tables = {"task": {"name": "target"}, "input": {"tokenizer": "characters"}}
    tables |= {"output": {"tokenizer": "characters"}, "model": {}, "train": {}}
    line = size_seq2seq(tables, facts, total)
    assert line.startswith("model: transformer 2 + 2 × 128, sized for 60 characters")
    assert tables["model"]["max_len"] == 64
    tables["model"] = {"name": "ibm1"}
    assert size_seq2seq(tables, facts, total) == "model: ibm1: counts; nothing to size"
