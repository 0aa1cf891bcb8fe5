"""Tokenizers of others, built here by the `tokenizers` library: byte-level, WordPiece, Unigram."""

import json
from itertools import chain

import numpy as np
import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from regard.data.splits import canonical_form
from regard.errors import UsageError, UserError
from regard.modalities.text import Text, TextConfig
from regard.tokenizers import Bytes, Pretrained, load
from regard.tokenizers.text import ALPHABET

CORPUS = ["the cat sat on the mat", "the café is a cat café", "日本 the end."] * 5
END = "<|endoftext|>"


def byte_level():
    """As GPT-2's: one special for everything, which comes last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, show_progress=False, initial_alphabet=list(ALPHABET)
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(END, special=True)])
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    return tokenizer


def word_piece():
    """As BERT's: [CLS] and [SEP], lower case, ## for the rest of a word."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "##s", "mat", "."]
    vocab = {word: id for id, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(words[:4])
    return tokenizer


def unigram():
    """As Llama's and T5's: ▁ for a space, and bytes for what is unknown."""
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("▁the", -1.0), ("▁c", -2.0)]
    pieces += [("at", -2.0), ("▁", -3.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def folder(tmp_path, tokenizer, **config):
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str(pretty=True), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


def test_texts_are_compared_as_the_normalizer_leaves_them(tmp_path):
    config = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    run = folder(tmp_path, word_piece(), **config, unk_token="[UNK]")
    ours = Pretrained.from_file(run / "tokenizer.json")
    assert ours.apply_normalizer("The CAT") == "the cat"
    assert ours.encode("The CAT").tolist() == ours.encode("the cat").tolist()
    text = Text(TextConfig(tokenizer="pretrained"))
    form = canonical_form(text.canonical(str(run)), None, "lines", 10)
    assert form.of("The CAT") == form.of("the cat") != form.of("the mat")


def test_one_token_may_start_end_and_pad_and_ids_are_the_foreign_ones(tmp_path):
    reference = byte_level()
    token = {"content": END, "special": True}
    run = folder(tmp_path, reference, bos_token=token, eos_token=END, unk_token=END)
    ours = Pretrained.from_file(run / "tokenizer.json")
    last = reference.token_to_id(END)
    assert ours.start == ours.end == ours.pad == ours.unk == last == ours.vocab_size - 1
    reference.no_truncation()
    reference.no_padding()
    texts = ["the café sat on 日本 𝒳", "", " the\n"]
    ids, lengths = ours.encode_batch(texts)
    assert ids.tolist() == list(chain(*(reference.encode(text).ids for text in texts)))
    assert ids.dtype == ours.dtype == np.uint16
    assert ours.decode([last, *ids[: lengths[0]], last]) == texts[0]
    assert ours.symbols[ids].sum() == len("".join(texts))
    assert ours.byte_counts[ids].sum() == len("".join(texts).encode())
    assert ours.symbols[last] == 1 and ours.byte_counts[last] == 0 and ours.text(last) == END


@pytest.mark.parametrize(
    ("build", "specials"),
    [(byte_level, [END]), (word_piece, ["[SEP]", "[CLS]"])],
)
def test_a_special_written_out_in_a_text_stays_text(build, specials):
    ours = Pretrained(build().to_str().encode(), start=specials[0], end=specials[-1])
    for special in specials:
        ids = ours.encode(f"the {special}").tolist()
        assert len(ids) > 2 and not {ours.start, ours.end} & set(ids)


def test_bert_style_configurations_name_the_ends_of_a_record_their_own_way(tmp_path):
    path = folder(
        tmp_path, word_piece(), cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]",
        unk_token="[UNK]", bos_token=None,
    )  # fmt: skip
    ours = load(path / "tokenizer.json")
    assert isinstance(ours, Pretrained) and ours.name == "pretrained"
    assert (ours.pad, ours.unk, ours.start, ours.end) == (0, 1, 2, 3)
    ids = ours.encode("The cats mat dog.")
    assert ours.decode([2, *ids, 3, 0]) == "the cats mat [UNK]."
    assert ours.symbols[ids].tolist() == [4, 4, 1, 4, 1, 1]  # a word brings its space
    assert ours.text(6) == "s" and ours.text(3) == "[SEP]"


def test_the_space_a_piece_begins_with_counts_and_so_does_each_fallback_byte(tmp_path):
    path = folder(tmp_path, unigram(), bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    ours = Pretrained.from_file(path / "tokenizer.json")
    assert (ours.start, ours.end, ours.pad, ours.unk) == (1, 2, 2, 0)
    ids = ours.encode("the cat é")
    assert ours.decode([1, *ids, 2]) == "the cat é"
    assert ours.symbols[ids].sum() == len(" the cat é")
    assert ours.byte_counts[ids].sum() == len(" the cat é".encode())
    assert ours.text(ids[0]) == " the" and ours.text(ids[-1]) == "\\xa9"
    assert ours.symbols[:3].tolist() == [1, 0, 1]


def test_saving_keeps_the_file_byte_for_byte_and_loading_it_again_works(tmp_path):
    original = byte_level().to_str(pretty=True).encode()
    last = byte_level().get_vocab_size() - 1
    ours = Pretrained(original, start=last, end=last)
    ours.save(tmp_path / "tokenizer.json")
    assert (tmp_path / "tokenizer.json").read_bytes() == original
    again = load(tmp_path / "tokenizer.json")
    assert (again.start, again.end, again.pad, again.unk) == (last,) * 4
    assert again.encode("the cat").tolist() == ours.encode("the cat").tolist()
    with pytest.raises(UserError, match="position 4"):
        again.encode("the \ud800")


def test_ids_a_vocabulary_skips_stand_for_nothing():
    model = models.WordLevel({"a": 0, "b": 7, "<unk>": 2}, unk_token="<unk>")
    ours = Pretrained(Tokenizer(model).to_str().encode(), start=2, end=2)
    assert ours.vocab_size == 8
    assert ours.symbols[[1, 3, 4, 5, 6]].sum() == 0 == ours.byte_counts[3]


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({}, "must name the token that ends a record, eos_token"),
        ({"eos_token": 3}, "eos_token must be a token, got 3"),
        ({"eos_token": {"contents": "x"}}, "must name the token that ends a record"),
        ({"eos_token": "<eos>"}, "the end token must be in the vocabulary .* got '<eos>'"),
        ({"eos_token": END, "pad_token": "[PAD]"}, "the pad token must be in the vocabulary"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(config, complaint, tmp_path):
    run = folder(tmp_path, byte_level(), **config)
    with pytest.raises(UserError, match=complaint) as caught:
        Pretrained.from_file(run / "tokenizer.json")
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("build", [byte_level, unigram])
@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document["model"].update(type="Magic"),
        lambda document: document["model"].update(vocab={"a": -1}),
        lambda document: document.update(pre_tokenizer={"type": "Split"}),
        lambda document: document.update(added_tokens=[{"id": "x"}]),
        lambda document: document.update(decoder={"type": "Sequence", "decoders": 3}),
    ],
)
def test_what_the_tokenizers_library_refuses_is_a_user_error_naming_the_file(
    build, damage, tmp_path
):
    document = json.loads(build().to_str())
    damage(document)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "a"}))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="tokenizers library refuses it") as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_ids_too_large_to_be_meant_are_refused_before_memory_is_taken():
    document = json.loads(word_piece().to_str())
    document["model"]["vocab"]["far"] = 4_000_000_000
    with pytest.raises(UserError, match="got up to 4000000000"):
        Pretrained(json.dumps(document).encode(), start=0, end=0)


def test_specials_outside_the_vocabulary_and_training_are_refused():
    source = word_piece().to_str().encode()
    with pytest.raises(UserError, match=r"the pad token must be .* \(ids 0 to 8\), got 9"):
        Pretrained(source, start=2, end=3, pad=9)
    with pytest.raises(UsageError, match="pretrained cannot be trained"):
        Pretrained.train(["a"])


def test_published_models_may_have_unused_outputs_and_ours_may_not(tmp_path):
    run = folder(tmp_path, byte_level(), bos_token=END, eos_token=END)
    foreign, own = Pretrained.from_file(run / "tokenizer.json"), Bytes()
    for tokenizer in (foreign, own):
        assert tokenizer.fits(tokenizer.vocab_size) and not tokenizer.fits(tokenizer.vocab_size - 1)
        assert tokenizer.fits(tokenizer.vocab_size + 5) == (tokenizer is foreign)


def test_only_a_pretrained_tokenizer_can_get_another_start(tmp_path):
    run = folder(tmp_path, byte_level(), bos_token=END, eos_token=END)
    ours = Pretrained.from_file(run / "tokenizer.json")
    other = ours.with_start(5)
    assert (other.start, other.end, other.pad) == (5, ours.end, ours.pad)
    assert other.encode("a cat").tolist() == ours.encode("a cat").tolist()
    with pytest.raises(ValueError, match="bytes start with 1"):
        Bytes().with_start(5)
