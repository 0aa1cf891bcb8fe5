"""BLEU, chrF and exact matches against sacrebleu's own, on the whole and on resamples."""

from __future__ import annotations

import dataclasses
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sacrebleu import corpus_bleu, corpus_chrf

from regard.data.shards import Shard
from regard.decoding import Generated, Greedy
from regard.errors import UsageError, UserError
from regard.evaluation import translation
from regard.evaluation.bootstrap import RESAMPLES
from regard.evaluation.translation import (
    HeadAlignment,
    count_agreements,
    diagonal_weights,
    fit_model_1,
    load_translations,
    measure_head_alignment,
    measure_recall,
    measure_translation,
    recall_from_scores,
    score_captions,
    score_translations,
)
from regard.models.encoder_decoder import Captioner, EncoderDecoder, modern, modern_captioner
from regard.models.ibm_model1 import NULL, IBM1Config, IBM1Translator
from regard.models.recurrent import AttentiveSeq2Seq, RecurrentSeq2Seq
from regard.pipelines.translator import Translator
from regard.registry import TOKENIZERS
from regard.tokenizers import Patches

WORDS = ["the", "a", "Cat", "dog", "sat,", "mat.", "(red)", "it's", "3.5", "ÜBER", "naïve", "-"]


def sentences(seed, count=60):
    """References, and translations of which about one in four words is another, or missing."""
    source = random.Random(seed)
    references = [" ".join(source.choices(WORDS, k=source.randint(1, 14))) for _ in range(count)]
    translations = []
    for reference in references:
        words = [source.choice(WORDS) if source.random() < 0.2 else w for w in reference.split()]
        translations.append(" ".join(w for w in words if source.random() > 0.05))
    return translations, references


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenize", ["13a", "none", "intl", "char"])
def test_the_metrics_are_those_of_sacrebleu(tokenize, lowercase):
    translations, references = sentences(1)
    found = score_translations(translations, references, tokenize=tokenize, lowercase=lowercase)
    bleu = corpus_bleu(
        translations, [references], tokenize=tokenize, lowercase=lowercase, force=True
    )
    chrf = corpus_chrf(translations, [references])
    assert found["bleu"].value == pytest.approx(bleu.score, rel=1e-12)
    if not lowercase:
        assert found["chrf"].value == pytest.approx(chrf.score, rel=1e-12)
    case = "lc" if lowercase else "mixed"
    assert found["bleu"].signature.startswith(f"nrefs:1|case:{case}|eff:no|tok:{tokenize}|")
    assert f"case:{case}" in found["chrf"].signature and "nc:6" in found["chrf"].signature


def test_a_resample_is_scored_as_sacrebleu_scores_its_sentences():
    translations, references = sentences(2, 40)
    found = score_translations(translations, references)
    draws = np.random.default_rng(0)
    for number in range(12):
        drawn = draws.integers(0, 40, 40)
        one, two = [translations[i] for i in drawn], [references[i] for i in drawn]
        bleu, chrf = corpus_bleu(one, [two], force=True), corpus_chrf(one, [two])
        exact = 100 * np.mean([a == b for a, b in zip(one, two, strict=True)])
        for name, value in (("bleu", bleu.score), ("chrf", chrf.score), ("exact", exact)):
            assert found[name].samples[number] == pytest.approx(value, rel=1e-9), name
    for one in found.values():
        metric = one.metric()
        assert len(one.samples) == RESAMPLES
        assert metric.low < metric.value < metric.high
        assert [metric.low, metric.high] == np.quantile(one.samples, [0.025, 0.975]).tolist()


def test_groups_are_drawn_whole_so_that_copies_make_nothing_surer():
    translations, references = sentences(3, 30)
    once = score_translations(translations, references)
    names = [f"{i:02d}" for i in range(30)]
    copies = {"groups": names * 7}
    seven = score_translations(translations * 7, references * 7, **copies)
    for name, one in once.items():
        assert seven[name].value == pytest.approx(one.value, rel=1e-12)
        np.testing.assert_allclose(seven[name].samples, one.samples, rtol=1e-9)
        assert seven[name].data == "210 sentences in 30 groups"
    plain = score_translations(translations * 7, references * 7)["chrf"]
    assert np.ptp(plain.samples) < 0.6 * np.ptp(once["chrf"].samples)


def test_nothing_in_common_is_zero_and_all_in_common_is_a_hundred():
    references = ["one two three four five", "six seven eight nine"]
    same, other = (
        score_translations(references, references),
        score_translations(["x y z", ""], references),
    )
    for name in ("bleu", "chrf", "exact"):
        assert same[name].value == pytest.approx(100)
        assert other[name].value == pytest.approx(0, abs=1e-9)
        assert str(same[name].metric()) == "100.00 [100.00, 100.00]"


def test_exact_matches_see_words_and_case_but_no_white_space():
    found = score_translations(["a  b ", "A b", "c"], ["a b", "a b", "d"])
    assert found["exact"].value == pytest.approx(100 / 3)
    lower = score_translations(["a  b ", "A b", "c"], ["a b", "a b", "d"], lowercase=True)
    assert lower["exact"].value == pytest.approx(200 / 3)


def test_two_systems_are_compared_on_the_same_sentences():
    """A pair's interval is narrower than two intervals: sentences hard for one are so for both."""
    translations, references = sentences(3, 80)
    worse = [text.rsplit(" ", 1)[0] for text in translations]
    ours, theirs = (
        score_translations(translations, references),
        score_translations(worse, references),
    )
    for name in ("bleu", "chrf"):
        gap = ours[name].minus(theirs[name])
        assert gap.value == pytest.approx(ours[name].value - theirs[name].value)
        assert 0 < gap.low < gap.value < gap.high
        apart = [one[name].metric() for one in (ours, theirs)]
        assert gap.high - gap.low < min(metric.high - metric.low for metric in apart)
        none = ours[name].minus(ours[name])
        assert (none.low, none.value, none.high) == (0, 0, 0)
        assert ours[name].verdict(theirs[name]) == "better"


def test_mistakes_are_named(monkeypatch):
    with pytest.raises(UsageError, match="unknown tokenize '13b'; did you mean '13a'"):
        score_translations(["a"], ["a"], tokenize="13b")
    with pytest.raises(ValueError, match="2 translations and 1 references"):
        score_translations(["a", "b"], ["a"])
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(UserError, match=r"needs sacrebleu.*pip install 'regard\[mt\]'"):
        score_translations(["a"], ["a"])
    assert set(score_translations(["a"], ["a"], lenient=True)) == {"exact"}


PAIRS = [("abc", "cba"), ("a b", "b a"), ("dd", "dd"), ("fgh.", "hgf."), ("e", "e")]


def test_a_translator_is_measured_by_its_translations_and_the_loss_of_its_targets(translator):
    shard = translator.pairs(*map(list, zip(*PAIRS, strict=True)))
    texts = [found[0].text for found in translator.translate([s for s, _ in PAIRS], Greedy())]
    found = measure_translation(translator, shard, Greedy())
    expected = corpus_bleu(texts, [[t for _, t in PAIRS]], force=True)
    assert found.quality["bleu"].value == pytest.approx(expected.score)
    assert len(found.sentences) == 5 and found.ranked_by == "bleu"
    nats = -sum(sum(record.log_probs) for record in translator.score(PAIRS))
    symbols = sum(len(target) + 1 for _, target in PAIRS)
    metrics = found.metrics()
    assert metrics["nats_per_symbol"].value == pytest.approx(nats / symbols, rel=1e-5)
    assert {"bleu", "chrf", "exact", *found.losses.metrics()} == set(metrics)


def test_at_most_max_sentences_are_translated(translator, monkeypatch):
    seen = []

    def perfect(sources, strategy, *, batch_size):
        """An oracle that knows how to reverse each word of the pairs, but for the second."""
        seen.extend(sources)
        known = dict(PAIRS) | {PAIRS[1][0]: "x"}
        texts = [known[translator.tokenizer.decode(source)] for source in sources]
        ids = [translator.tokenizer.encode(text).tolist() for text in texts]
        return [[Generated(ids=[*i, 2], log_probs=[], score=0.0, finished=True)] for i in ids]

    monkeypatch.setattr(translator, "translate_ids", perfect)
    shard = translator.pairs(*map(list, zip(*PAIRS, strict=True)))
    for most in (3, 0, 99):
        seen.clear()
        found = measure_translation(translator, shard, max_sentences=most).metrics()
        texts = [translator.tokenizer.decode(ids) for ids in seen]
        assert len(set(texts)) == len(texts) == (most if 0 < most < 5 else 5)
        right = sum(text != PAIRS[1][0] for text in texts) / len(texts)
        assert found["exact"].value == pytest.approx(100 * right)
    assert [translator.tokenizer.decode(ids) for ids in seen] == [source for source, _ in PAIRS]


def test_translations_are_stored_and_read_again(translator, tmp_path):
    shard = translator.pairs(*map(list, zip(*PAIRS, strict=True)))
    report = measure_translation(translator, shard, Greedy())
    report.store(tmp_path, "test")
    sentences, seconds = load_translations(tmp_path)
    assert tuple(sentences) == report.sentences and seconds == round(report.seconds, 3)


def test_the_deadline_limits_the_number_of_sentences(translator):
    shard = translator.pairs(*map(list, zip(*PAIRS, strict=True)))
    report = measure_translation(translator, shard, Greedy(), deadline=0.0, batch_size=2)
    assert len(report.sentences) == 2  # one batch, whatever the time


CAPTIONS = ["ab", "c", "abcabc", "c", "bb", "caa"]


@pytest.fixture(scope="module")
def captioner():
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 1), dtype=np.uint8)
    letters, patches = TOKENIZERS["characters"].train(CAPTIONS), Patches.train(images, patch=4)
    torch.manual_seed(0)
    own = {"source_vocab": patches.vocab_size, "max_len": 8, "dropout": 0.0, **patches.model_config}
    model = Captioner(
        letters.vocab_size, dataclasses.replace(modern_captioner(1, 16), **own)
    ).eval()
    found = Translator(model, letters, patches)
    return found, found.pairs(list(images), CAPTIONS), images


def test_pairs_are_scored_together_as_alone(captioner):
    model, pairs, images = captioner
    logs, captions = score_captions(model.model, model.tokenizer, pairs)
    assert logs.shape == (6, 5) and len(captions) == 5  # two are equal
    for i, image in enumerate(images):
        for j, caption in enumerate(captions):
            text = model.tokenizer.decode(caption)
            (one,) = model.score([(image, text)])
            assert abs(one.total - logs[i, j]) <= 1e-4


def test_recall_is_that_counted_by_hand():
    random = np.random.default_rng(3)
    logs = random.normal(size=(12, 9)) - 5 * random.random(9)  # some captions are rarer
    right = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 1])
    logs[np.arange(12), right] += 1.5
    found = {name: one.value for name, one in recall_from_scores(logs, right).items()}
    by_hand = dict.fromkeys(found, 0)
    prior = np.log(np.exp(logs).mean(0))
    for i in range(12):
        order = sorted(range(9), key=lambda c: prior[c] - logs[i, c])
        images = sorted(range(12), key=lambda p: -logs[p, right[i]])
        others = [p for p in images if right[p] != right[i] or p == i]
        for k in (1, 5):
            by_hand[f"caption_{k}"] += (right[i] in order[:k]) / 12 * 100
            by_hand[f"image_{k}"] += (i in others[:k]) / 12 * 100
    assert found == pytest.approx(by_hand) and 0 < found["caption_1"] < 100


def test_a_model_that_ignores_the_image_has_no_recall(captioner):
    """Ties count against it."""
    found = recall_from_scores(np.tile(np.linspace(-3, -1, 40), (40, 1)), np.arange(40))
    assert all(one.value == 0 for one in found.values())
    model, pairs, _ = captioner
    assert set(measure_recall(model.model, model.tokenizer, pairs)) == set(found)


START, END, IGNORE = 1, 2, -1
V, LONGEST = 24, 8  # tokens, words of a sentence


def shard(records):
    whole = [[START, *record, END] for record in records]
    ids = np.array([i for record in whole for i in record])
    offsets = np.cumsum([0, *map(len, whole)])
    sizes = {"records": len(whole), "tokens": len(ids), "symbols": 0, "bytes": 0}
    return Shard(Path("memory"), "records", ids, offsets, V, **sizes)


def ciphered(seed, count):
    """Pairs in which word w of the source becomes w + 10 at the same place."""
    draw = random.Random(seed)
    sources = [draw.sample(range(3, 13), draw.randint(3, LONGEST - 1)) for _ in range(count)]
    return shard([[w + 10 for w in source] for source in sources]).paired(shard(sources))


def planted(layer, head):
    """A translator of positions alone, in which one head looks from place t to place t and all
    others look everywhere alike.
    """
    torch.manual_seed(0)
    config = dataclasses.replace(modern(3, 32), n_heads=4, n_kv_heads=4, d_head=8, dropout=0.0)
    config = dataclasses.replace(config, positions="learned", max_len=LONGEST + 1)
    model = EncoderDecoder(V, config).eval()
    with torch.no_grad():
        model.decoder.embedding.weight.zero_()
        for stack in (model.encoder, model.decoder):
            stack.positions.embedding.weight.copy_(torch.eye(LONGEST + 1, 32))
            for block in stack.blocks:  # nothing is ever added to the positions
                for part in (
                    block.mixer.out,
                    block.feedforward.down,
                    block.cross and block.cross.out,
                ):
                    if part is not None:
                        part.weight.zero_()
        for block in model.decoder.blocks:
            block.cross.q.weight.zero_()
        cross, rows = model.decoder.blocks[layer].cross, slice(8 * head, 8 * head + 8)
        cross.q.weight[rows] = torch.eye(8, 32)
        cross.kv.weight[rows] = torch.eye(8, 32)
    return model


@pytest.mark.parametrize(("layer", "head"), [(0, 3), (2, 1)])
def test_the_planted_head_is_found_and_agrees_on_every_link(layer, head):
    train, valid = ciphered(1, 300), ciphered(2, 40)
    found = measure_head_alignment(planted(layer, head), train, valid)
    assert found.best == (layer, head)
    assert found.per_head[layer][head] == 1.0
    assert found.links == valid.tokens - 2 * valid.records  # a bijection leaves nothing to NULL
    others = np.delete(np.ravel(found.per_head), layer * 4 + head)
    assert (others < 0.5).all()  # they look at the first word as much as at any


def test_pairs_may_be_missing_or_too_long(monkeypatch):
    train = ciphered(1, 200)
    monkeypatch.setattr(translation, "TEST_PAIRS", 30)
    assert measure_head_alignment(planted(1, 2), train).best == (1, 2)  # on the training pairs
    long = shard([[13] * 40]).paired(shard([[3] * 40]))
    assert measure_head_alignment(planted(1, 2), train, long) is None


def test_model_1_is_fitted_to_a_limited_number_of_pairs(monkeypatch):
    train, model = ciphered(1, 200), planted(0, 0)
    seen = []
    monkeypatch.setattr(
        translation, "fit_table", lambda pairs, *_, **__: seen.append(pairs.records)
    )
    cells = np.cumsum((np.diff(train.offsets) - 1) * (np.diff(train.source.offsets) - 1))
    for most in (1, int(cells[49]) + 1, int(cells[-1]) + 1):
        monkeypatch.setattr(translation, "FIT_CELLS", most)
        fit_model_1(model, train)
    monkeypatch.setattr(translation, "FIT_PAIRS", 7)
    fit_model_1(model, train)
    assert seen == [1, 50, 200, 7]


def test_agreements_are_those_counted_by_hand():
    generator = torch.Generator().manual_seed(3)
    weights = torch.rand(2, 3, 4, 5, 7, generator=generator)  # (L, B, H, T, S)
    sizes = [6, 3, 1]  # words; then <E>, then nothing
    sources = torch.full((3, 7), IGNORE)
    for row, size in enumerate(sizes):
        sources[row, : size + 1] = torch.tensor([*([3, 4, 3, 5, 6, 4][:size]), END])
    links = torch.tensor([[0, 2, NULL, 5, 4], [2, 1, 0, NULL, NULL], [NULL, 0, NULL, NULL, NULL]])
    expected = torch.zeros(2, 4)
    for row, size in enumerate(sizes):
        for t in range(5):
            link = int(links[row, t])
            for layer in range(2):
                for head in range(4):
                    looked = int(weights[layer, row, head, t, :size].argmax())
                    same = link != NULL and sources[row, looked] == sources[row, link]
                    expected[layer, head] += bool(same)
    assert (count_agreements(weights, sources, links) == expected).all()
    assert expected.sum() > 10


def test_a_head_that_looks_where_the_links_are_agrees_wholly():
    links = torch.tensor([[2, 0, NULL, 1]])
    sources = torch.tensor([[7, 8, 9, END]])
    weights = torch.full((1, 1, 2, 4, 4), 0.1)
    weights[..., 3] = 5.0  # <E> draws the most, and is no word
    for t, link in enumerate(links[0].tolist()):
        weights[0, 0, 1, t, link if link != NULL else 0] = 0.9
    assert count_agreements(weights, sources, links).tolist() == [
        [1, 3]
    ]  # the first word is one of them


@pytest.mark.parametrize("family", [AttentiveSeq2Seq, RecurrentSeq2Seq, IBM1Translator])
def test_a_recurrence_has_one_head_and_others_have_none(family):
    torch.manual_seed(0)
    train = ciphered(1, 60)
    if family is IBM1Translator:
        model = IBM1Translator(V, IBM1Config(max_len=LONGEST + 1))
        model.fit(train, None, print)
    else:
        preset = next(iter(family.PRESETS.values()))
        model = family(V, dataclasses.replace(preset(1, 12), max_len=LONGEST + 1))
    begun = []
    found = measure_head_alignment(model, train, on_start=lambda: begun.append(1))
    if family is not AttentiveSeq2Seq:
        assert found is None and begun == []
    else:
        assert np.shape(found.per_head) == (1, 1) and found.best == (0, 0)
        assert model.training  # as it was


def test_it_is_read_from_json_and_damage_is_an_error():
    found = HeadAlignment([[0.125, 0.5], [0.25, 0.5]], 40)
    stored = found.to_json()
    assert stored["layer"] == 0 and stored["head"] == 1 and stored["agreement"] == 0.5
    assert HeadAlignment.from_json(stored) == found
    heads = ([], [[0.5], []], [[2.0]], [["x"]])
    for wrong in ({}, [], *({"per_head": one, "links": 3} for one in heads)):
        with pytest.raises(ValueError):
            HeadAlignment.from_json(wrong)


def test_the_diagonal_links_words_at_the_same_fraction_of_their_sentences():
    sources = torch.tensor([[5, 6, 7, 8, 2], [5, 6, 2, IGNORE, IGNORE]])
    targets = torch.tensor([[9, 9, 2, IGNORE], [9, 9, 9, 2]])
    weights = diagonal_weights(sources, targets)
    assert weights.shape == (1, 2, 1, 4, 5)
    positions = weights[0, :, 0].argmax(-1)
    assert positions[0, :2].tolist() == [0, 3]  # two words against four
    assert positions[1, :3].tolist()[::2] == [0, 1]


def test_a_head_that_beats_no_diagonal_is_told_from_one_that_does():
    assert HeadAlignment([[0.1, 0.4]], 10, diagonal=0.3).beats_diagonal
    assert not HeadAlignment([[0.1, 0.3]], 10, diagonal=0.3).beats_diagonal
