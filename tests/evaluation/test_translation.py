"""BLEU, chrF and exact matches against sacrebleu's own, on the whole and on resamples."""

import random
import sys

import numpy as np
import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from regard.decoding import Generated, Greedy
from regard.errors import UsageError, UserError
from regard.evaluation.bootstrap import RESAMPLES
from regard.evaluation.translation import load_translations, measure_translation, score_translations

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
