"""What holds for every tokenizer, for the files they are saved in, and for unknown symbols."""

import json
import os

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import corpus, inputs
from regard.errors import UserError
from regard.interop.hugging_face import LM_TEXT, load_tokenizer
from regard.recipe import build
from regard.registry import TOKENIZERS
from regard.storage import read_json
from regard.tokenizers import load

ODD = ["<S>", "<E>", "<pad>", "<unk>", " <S>", "<<S>>", "\n<E>", "  ", "\t", "\r\n", "\0", "\x1c"]
ODD += [
    "\x85",
    "\xa0",
    "\u2028",
    "\u200b",
    "\ufeff",
    "\ufffd",
    "e\u0301",
    "日本",
    "𝒳",
    "👩‍🚀",
    "İ",
    "ﬁ",
    "'s",
]
TEXTS = st.lists(st.sampled_from(ODD) | st.text(max_size=4), max_size=8).map("".join)
SOME = settings(max_examples=60, deadline=None, database=None)
CORPUS = ["to be, or not  to be\n", "日本 café <S> the\tend <unk>", "to be to be to be"]
TEXT = ["bpe", "bytes", "characters", "words"]
PROTEINS = ["MKTAYIAKQR", "MKTAYMKTAYMKTAYX*", "mktay--AK."]
OWN = {"nucleotides": ["ACGTTNNAC-RYG", "acgtU"], "residues": PROTEINS, "protein-bpe": PROTEINS}
OWN["kmers"] = ["ACGTTGCAACGTTAG", "ACGTNNACGTACGTTT-a"]
OWN["smiles"] = OWN["smiles-bpe"] = [
    "CC(=O)Oc1ccccc1C(=O)O",
    "C[C@@H](Cl)Br.[nH]1cc1>>C%10C%10",
    "ClCCl",
]
CORPORA = dict.fromkeys(TEXT, CORPUS) | OWN
FIXED = {name: TOKENIZERS[name].train(texts) for name, texts in CORPORA.items()}
every_kind = pytest.mark.parametrize("kind", sorted(FIXED))
text_kinds = pytest.mark.parametrize("kind", TEXT)


def elsewhere(tokenizer):
    return tokenizers.Tokenizer.from_str(json.dumps(tokenizer.document()))


OPENED = {name: elsewhere(tokenizer) for name, tokenizer in FIXED.items()}


@text_kinds
@SOME
@given(text=TEXTS)
def test_every_accepted_text_comes_back_here_and_in_the_tokenizers_library(kind, text):
    learned = (
        TOKENIZERS[kind].train([text, "a"], 0) if kind in ("characters", "words") else FIXED[kind]
    )
    ids = learned.encode(text)
    assert learned.decode(ids) == text
    assert ids.size == 0 or ids.min() >= 4
    assert elsewhere(learned).decode(ids.tolist()) == text


@every_kind
@SOME
@given(text=TEXTS, data=st.data())
def test_the_saved_file_encodes_the_same_in_the_tokenizers_library(kind, text, data):
    tokenizer = FIXED[kind]
    if kind in OWN:
        some = st.sampled_from(sorted({c for known in OWN[kind] for c in known} | set("?é[]")))
        text = data.draw(st.text(alphabet=some, max_size=30)) + text
    ids = tokenizer.encode(text)
    assert ids.tolist() == OPENED[kind].encode(text).ids
    known = [id for id in ids.tolist() if id > 3]
    assert tokenizer.decode(known) == OPENED[kind].decode(known)


@text_kinds
@pytest.mark.parametrize("text", ["<S>", "<E>", "<pad>", "<unk>", "a <S>", "<S><E>"])
def test_a_special_written_out_in_a_text_stays_text(kind, text):
    learned = TOKENIZERS[kind].train([text] * 9)
    assert min(learned.encode(text)) > 3 and min(elsewhere(learned).encode(text).ids) > 3
    assert elsewhere(learned).get_added_tokens_decoder() == {}


@every_kind
@pytest.mark.parametrize("text", ["<S>", "<E>C", "<pad>", "<unk>", "A<S>A"])
def test_no_text_reaches_a_special_but_unk(kind, text):
    ids = FIXED[kind].encode(text).tolist()
    assert min(ids) >= 3 and ids == OPENED[kind].encode(text).ids


@every_kind
def test_a_saved_tokenizer_is_recognised_by_its_structure_under_any_name(kind, tmp_path):
    path = tmp_path / "tokens.bin"
    FIXED[kind].save(path)
    again = load(path)
    assert again.name == kind and again.document() == FIXED[kind].document()
    for text in (CORPUS[1], *CORPORA[kind]):
        np.testing.assert_array_equal(again.encode(text), FIXED[kind].encode(text))
    tokenizers.Tokenizer.from_file(str(path)).save(str(path))  # another tool rewrites it
    assert load(path).document() == FIXED[kind].document()


@every_kind
def test_the_specials_come_first_and_count_as_promised(kind):
    tokenizer = FIXED[kind]
    assert (tokenizer.pad, tokenizer.start, tokenizer.end, tokenizer.unk) == (0, 1, 2, 3)
    assert [tokenizer.text(id) for id in range(4)] == ["<pad>", "<S>", "<E>", "<unk>"]
    assert tokenizer.symbols[:4].tolist() == [0, 0, 1, 1]
    assert tokenizer.byte_counts[:4].tolist() == [0, 0, 0, 0]
    assert tokenizer.symbols.dtype == tokenizer.byte_counts.dtype == np.int64
    assert len(tokenizer.symbols) == len(tokenizer.byte_counts) == tokenizer.vocab_size


@every_kind
def test_specials_leave_no_text_but_unk_does(kind):
    tokenizer = FIXED[kind]
    text = OWN[kind][0] if kind in OWN else "to be"
    ids = [1, *tokenizer.encode(text).tolist(), 2, 0, 0]
    assert tokenizer.decode(ids) == tokenizer.decode(torch.tensor(ids)) == text
    assert tokenizer.decode([1, 3, 2]) == "<unk>" and tokenizer.decode([]) == ""


@pytest.mark.parametrize("kind", sorted(FIXED.keys() - {"words"}))  # a word is one symbol
def test_characters_and_bytes_of_a_text_add_up_whatever_the_tokens(kind):
    for text in CORPORA[kind]:
        ids = FIXED[kind].encode(text)
        assert FIXED[kind].symbols[ids].sum() == len(text)
        assert FIXED[kind].byte_counts[ids].sum() == len(text.encode())


@every_kind
def test_a_batch_is_its_texts_one_after_another(kind):
    texts = [*CORPUS, *CORPORA[kind], "", "ß?"]
    ids, lengths = FIXED[kind].encode_batch(texts)
    single = [FIXED[kind].encode(text) for text in texts]
    assert ids.dtype == FIXED[kind].dtype and lengths.dtype == np.int64
    assert lengths.tolist() == [len(one) for one in single]
    np.testing.assert_array_equal(ids, np.concatenate(single))


@every_kind
def test_ids_outside_the_vocabulary_are_refused(kind):
    size = FIXED[kind].vocab_size
    for bad in ([4, -1], [size, 4]):
        with pytest.raises(UserError, match=rf"ids must be from 0 to {size - 1}, got (-1|{size})"):
            FIXED[kind].decode(bad)
    with pytest.raises(UserError, match=r"one row of integers, got shape \(1, 2\)"):
        FIXED[kind].decode(np.array([[4, 5]]))
    with pytest.raises(UserError, match="float64"):
        FIXED[kind].decode([4.0])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a JSON file"),
        (b"\xff\xfe\x00", "not a JSON file"),
        (b"[" * 200_000, "not a JSON file"),
        (b"[1, 2]", "must hold a JSON object, got list"),
        (b'{"a": 1}', "no model with a vocab"),
        (b'{"model": {"vocab": 3}}', "no model with a vocab"),
        (b'{"model": {"vocab": {}}, "added_tokens": 3}', "added_tokens must be a list"),
        (b'{"model": {"vocab": {}}}', "no tokenizer_config.json beside it"),
        (None, "no such file"),
    ],
)
def test_files_that_are_no_tokenizer_are_refused_in_one_line(content, complaint, tmp_path):
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ") and complaint in message and "\n" not in message


def test_huge_files_are_refused_unread(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.touch()
    os.truncate(path, (256 << 20) + 1)  # a hole in the file, no space on the disk
    with pytest.raises(UserError, match="too large: at most 256 MB"):
        load(path)


DAMAGE = {
    "gap": lambda model: model["vocab"].update({"zz": 9_999}),
    "twice": lambda model: model["vocab"].update({"zz": 5}),
    "not a number": lambda model: model["vocab"].update({"zz": "5"}),
    "truth value": lambda model: model["vocab"].update({"<S>": True}),
    "no special": lambda model: model["vocab"].update({"<S>": 2, "<E>": 1}),
    "alien token": lambda model: model["vocab"].update({"x日y": len(model["vocab"])}),
    "surrogate": lambda model: model["vocab"].update({"\ud800": len(model["vocab"])}),
    "list": lambda model: model.update(vocab=[]),
}


@every_kind
@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_damaged_vocabularies_are_refused_in_one_line(kind, damage, tmp_path):
    path = tmp_path / "tokenizer.json"
    document = json.loads(json.dumps(FIXED[kind].document()))
    DAMAGE[damage](document["model"])
    path.write_text(json.dumps(document))
    with pytest.raises(UserError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: damaged: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["bpe", "protein-bpe", "smiles-bpe"])
@pytest.mark.parametrize("merges", [None, [["t"]], [["t", 3]], [["t", "nowhere"]], ["t o"], 5])
def test_damaged_merges_are_refused_in_one_line(kind, merges, tmp_path):
    path = tmp_path / "tokenizer.json"
    document = FIXED[kind].document()
    document["model"]["merges"] = merges
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match=r"damaged: .*merges") as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_byte_vocabulary_that_lacks_a_byte_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    document = FIXED["bpe"].document()
    vocab = document["model"]["vocab"]
    vocab.clear()
    vocab.update({token: id for id, token in enumerate(["<pad>", "<S>", "<E>", "<unk>", "a"])})
    document["model"]["merges"] = []
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="lacks 255 of the 256 bytes"):
        load(path)


@every_kind
def test_an_exported_tokenizer_is_adopted_as_what_it_was(kind, tmp_path):
    document = LM_TEXT.declare(FIXED[kind].document())
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    again = load_tokenizer(tmp_path)
    assert again.name == kind and again.document() == FIXED[kind].document()
    library = tokenizers.Tokenizer.from_str(json.dumps(document))
    library.encode_special_tokens = True
    for text in (*CORPORA[kind], "<S>"):
        assert library.encode(text).ids == [1, *FIXED[kind].encode(text).tolist()]


CHAINS = ["MKTAYIAK", "mktay", "MK?AY??", "MKTAY", "M1K"]


def prepared(folder, lines, kind, **options):
    (folder / "data.txt").write_text("\n".join(lines) + "\n")
    data = {"train": [str(folder / "data.txt")], "format": "lines"}
    data |= {"valid_fraction": 0.0, "test_fraction": 0.0}
    recipe = build({"data": data, "output": {"tokenizer": kind, **options}})
    said = []
    found = corpus.prepare(recipe, folder / "run", said.append)
    return found, said


@pytest.mark.parametrize("kind", ["residues", "protein-bpe"])
def test_unknown_symbols_are_counted_by_record_and_the_records_named(kind, tmp_path):
    found, said = prepared(tmp_path, CHAINS, kind)
    facts = found.facts["splits"]["train"]
    assert facts["unknown"] == 4 and facts["unknown_records"] == 2
    assert facts["unknown_symbols"] == {"?": 3, "1": 1}
    path = tmp_path / "data.txt"
    assert facts["unknown_places"] == [f"{path}:3 (3)", f"{path}:5 (1)"]
    assert facts["read_as_others"] == {f"{c} as {c.upper()}": 1 for c in "mktay"}
    assert f"unknown in 2 records of train: '?' × 3, '1' × 1; {path}:3 (3), {path}:5 (1)" in said
    assert any("5 symbols of train are read as others: " in line for line in said)
    assert read_json(tmp_path / "run" / "data" / "manifest.json")["facts"] == found.facts


def test_strict_names_the_first_record_and_what_is_unknown_in_it(tmp_path):
    with pytest.raises(
        UserError, match=r"data.txt:3: unknown to residues: '\?' × 3; with strict = true"
    ):
        prepared(tmp_path, CHAINS, "residues", strict=True)
    assert not list((tmp_path / "run" / "data").glob("train*"))
    found, said = prepared(tmp_path, CHAINS[:2], "residues", strict=True, case="keep")
    assert found.facts["splits"]["train"]["unknown"] == 0 and not said


def test_records_of_validation_files_are_placed_in_their_own_file(tmp_path):
    (tmp_path / "a.txt").write_text("one two\ntwo\n")
    (tmp_path / "b.txt").write_text("two\n\nthree four\n")
    data = {"train": [str(tmp_path / "a.txt")], "valid": [str(tmp_path / "b.txt")]}
    data |= {"test_fraction": 0.0, "format": "lines"}
    recipe = build({"data": data, "output": {"tokenizer": "words"}})
    facts = corpus.prepare(recipe, tmp_path / "run", print).facts["splits"]
    assert facts["valid"]["unknown_symbols"] == {"three": 1, "four": 1}
    assert facts["valid"]["unknown_places"] == [f"{tmp_path / 'b.txt'}:3 (2)"]
    assert facts["train"]["unknown_records"] == 0


def test_not_every_record_is_looked_into_but_every_one_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "LOOKED_INTO", 3)
    found, _ = prepared(tmp_path, ["AC?T"] * 9, "nucleotides")
    facts = found.facts["splits"]["train"]
    assert facts["unknown_records"] == 9 and facts["unknown_symbols"] == {"?": 3}


@pytest.mark.parametrize("kind", sorted(FIXED))
def test_what_is_called_unknown_is_as_much_as_becomes_unk(kind):
    tokenizer = TOKENIZERS[kind].train(["ACGTAC", "CC(=O)Cl", "one two"])
    for text in ("AC?GT??", "é [nH] three", "", "ACGT"):
        assert (
            tokenizer.count_unknown(text).total() == (tokenizer.encode(text) == tokenizer.unk).sum()
        )
