"""BLEU, chrF and exact matches against sacrebleu's own, on the whole and on resamples."""

import random
import sys

import numpy as np
import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from regard.decoding import Generated, Greedy
from regard.errors import UsageError, UserError
from regard.evaluation.bootstrap import RESAMPLES
from regard.evaluation.language_modeling import metrics_of
from regard.evaluation.translation import corpus_metrics, measure_translation

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
def test_the_figures_are_those_of_sacrebleu(tokenize, lowercase):
    translations, references = sentences(1)
    found = corpus_metrics(translations, references, tokenize=tokenize, lowercase=lowercase)
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


def test_a_resample_is_judged_as_sacrebleu_judges_its_sentences():
    translations, references = sentences(2, 40)
    found = corpus_metrics(translations, references)
    draws = np.random.default_rng(0)
    for number in range(12):
        drawn = draws.integers(0, 40, 40)
        one, two = [translations[i] for i in drawn], [references[i] for i in drawn]
        bleu, chrf = corpus_bleu(one, [two], force=True), corpus_chrf(one, [two])
        exact = 100 * np.mean([a == b for a, b in zip(one, two, strict=True)])
        for name, value in (("bleu", bleu.score), ("chrf", chrf.score), ("exact", exact)):
            assert found[name].samples[number] == pytest.approx(value, rel=1e-9), name
    for one in found.values():
        figure = one.figure()
        assert len(one.samples) == RESAMPLES
        assert figure.low < figure.value < figure.high
        assert [figure.low, figure.high] == np.quantile(one.samples, [0.025, 0.975]).tolist()


def test_groups_are_drawn_whole_so_that_copies_make_nothing_surer():
    translations, references = sentences(3, 30)
    once = corpus_metrics(translations, references)
    names = [f"{i:02d}" for i in range(30)]
    copies = {"groups": names * 7}
    seven = corpus_metrics(translations * 7, references * 7, **copies)
    for name, one in once.items():
        assert seven[name].value == pytest.approx(one.value, rel=1e-12)
        np.testing.assert_allclose(seven[name].samples, one.samples, rtol=1e-9)
        assert seven[name].data == "210 sentences in 30 groups"
    plain = corpus_metrics(translations * 7, references * 7)["chrf"]
    assert np.ptp(plain.samples) < 0.6 * np.ptp(once["chrf"].samples)


def test_nothing_in_common_is_zero_and_all_in_common_is_a_hundred():
    references = ["one two three four five", "six seven eight nine"]
    same, other = corpus_metrics(references, references), corpus_metrics(["x y z", ""], references)
    for name in ("bleu", "chrf", "exact"):
        assert same[name].value == pytest.approx(100)
        assert other[name].value == pytest.approx(0, abs=1e-9)
        assert str(same[name].figure()) == "100.00 [100.00, 100.00]"


def test_exact_matches_see_words_and_case_but_no_white_space():
    found = corpus_metrics(["a  b ", "A b", "c"], ["a b", "a b", "d"])
    assert found["exact"].value == pytest.approx(100 / 3)
    lower = corpus_metrics(["a  b ", "A b", "c"], ["a b", "a b", "d"], lowercase=True)
    assert lower["exact"].value == pytest.approx(200 / 3)


def test_two_systems_are_compared_on_the_same_sentences():
    """A pair's interval is narrower than two intervals: sentences hard for one are so for both."""
    translations, references = sentences(3, 80)
    worse = [text.rsplit(" ", 1)[0] for text in translations]
    ours, theirs = corpus_metrics(translations, references), corpus_metrics(worse, references)
    for name in ("bleu", "chrf"):
        gap = ours[name].minus(theirs[name])
        assert gap.value == pytest.approx(ours[name].value - theirs[name].value)
        assert 0 < gap.low < gap.value < gap.high
        apart = [one[name].figure() for one in (ours, theirs)]
        assert gap.high - gap.low < min(figure.high - figure.low for figure in apart)
        none = ours[name].minus(ours[name])
        assert (none.low, none.value, none.high) == (0, 0, 0)
        assert gap.negative().high < 0 and gap.negative().low == -gap.high


def test_what_cannot_be_judged_is_told(monkeypatch):
    with pytest.raises(UsageError, match="unknown tokenize '13b'; did you mean '13a'"):
        corpus_metrics(["a"], ["a"], tokenize="13b")
    with pytest.raises(ValueError, match="2 translations and 1 references"):
        corpus_metrics(["a", "b"], ["a"])
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(UserError, match=r"needs sacrebleu.*pip install 'regard\[mt\]'"):
        corpus_metrics(["a"], ["a"])
    assert set(corpus_metrics(["a"], ["a"], lenient=True)) == {"exact"}


PAIRS = [("abc", "cba"), ("a b", "b a"), ("dd", "dd"), ("fgh.", "hgf."), ("e", "e")]


def test_a_translator_is_judged_by_what_it_says_and_what_its_targets_cost(translator):
    shard = translator.pairs(*map(list, zip(*PAIRS, strict=True)))
    texts = [found[0].text for found in translator.translate([s for s, _ in PAIRS], Greedy())]
    found = measure_translation(translator, shard, Greedy())
    expected = corpus_bleu(texts, [[t for _, t in PAIRS]], force=True)
    assert found.judged["bleu"].value == pytest.approx(expected.score)
    assert found.sentences == 5
    costs = -sum(sum(record.log_probs) for record in translator.score(PAIRS))
    symbols = sum(len(target) + 1 for _, target in PAIRS)
    named = found.figures()
    assert named["nats_per_symbol"].value == pytest.approx(costs / symbols, rel=1e-5)
    assert {"bleu", "chrf", "exact", *metrics_of(found.measured)} == set(named)


def test_only_so_many_sentences_are_translated_as_are_asked_for(translator, monkeypatch):
    asked = []

    def perfect(sources, strategy, *, batch_size):
        """An oracle that knows how to reverse each word of the pairs, but for the second."""
        asked.extend(sources)
        known = dict(PAIRS) | {PAIRS[1][0]: "x"}
        texts = [known[translator.tokenizer.decode(source)] for source in sources]
        ids = [translator.tokenizer.encode(text).tolist() for text in texts]
        return [[Generated(ids=[*i, 2], log_probs=[], score=0.0, finished=True)] for i in ids]

    monkeypatch.setattr(translator, "answers", perfect)
    shard = translator.pairs(*map(list, zip(*PAIRS, strict=True)))
    for most in (3, 0, 99):
        asked.clear()
        found = measure_translation(translator, shard, most=most).figures()
        texts = [translator.tokenizer.decode(ids) for ids in asked]
        assert len(set(texts)) == len(texts) == (most if 0 < most < 5 else 5)
        right = sum(text != PAIRS[1][0] for text in texts) / len(texts)
        assert found["exact"].value == pytest.approx(100 * right)
    assert [translator.tokenizer.decode(ids) for ids in asked] == [source for source, _ in PAIRS]
