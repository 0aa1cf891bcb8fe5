"""One loaded model used by several threads: every call gives what it gives alone.

The oracle is the same call made in one thread, with an object of its own that has made no other
call. On a GPU: pytest -m "slow or not slow" tests/test_threads.py
"""

from __future__ import annotations

import dataclasses
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch

from regard.data.targets import Targets
from regard.decoding import Beam, ForbiddenTransitions, Greedy, MinimumBayesRisk, Sample
from regard.evaluation.eval_data import shard_of
from regard.models.decoder import Decoder, modern
from regard.models.encoder import EncoderModel
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.encoder_decoder import modern as modern_pair
from regard.models.ngrams import KneserNey, KneserNeyConfig
from regard.models.recurrent import LSTMModel, RecurrentConfig
from regard.models.seq2seq import Ensemble
from regard.models.word2vec import SkipGram, Vocabulary, Word2VecConfig
from regard.pipelines.generator import Generator
from regard.pipelines.predictor import Predictor
from regard.pipelines.translator import Translator
from regard.pipelines.word_vectors import WordVectors
from regard.registry import MODELS, TOKENIZERS
from regard.tokenizers.text import Words

LETTERS = "abcdefghij klmnop."
THREADS = 8
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def interleaved():
    """Threads take turns as often as they can; each computes alone."""
    threads, interval = torch.get_num_threads(), sys.getswitchinterval()
    torch.set_num_threads(1)
    sys.setswitchinterval(1e-5)
    yield
    torch.set_num_threads(threads)
    sys.setswitchinterval(interval)


def sure(model):
    """Random weights, far from ties."""
    with torch.no_grad():
        model.head.weight *= 5
    return model.eval()


def language_model(name, tokenizer, context=96):
    size = tokenizer.vocab_size
    torch.manual_seed(3)
    if name == "transformer":
        shape = {"n_heads": 2, "n_kv_heads": 2, "d_head": 16, "tied": False, "max_len": context}
        return sure(Decoder(size, dataclasses.replace(modern(2, 32), **shape)))
    if name == "lstm":
        return sure(LSTMModel(size, RecurrentConfig(n_layers=1, d_model=24, max_len=context)))
    if name == "hyena":
        made = MODELS.get("hyena")
        config = next(iter(made.PRESETS.values()))(1, 16)
        return sure(made(size, dataclasses.replace(config, max_len=context)))
    model = KneserNey(size, KneserNeyConfig(order=3))
    texts = ["abc hij", "fed cab", "ponm. lk", "aabbccdd"] * 3
    model.fit(shard_of(texts, tokenizer), None, print)
    return model


def translator(tokenizer, seed):
    torch.manual_seed(seed)
    shape = {"n_heads": 2, "n_kv_heads": 2, "d_head": 16, "tied": False, "max_len": 64}
    config = dataclasses.replace(modern_pair(2, 32), dropout=0.0, **shape)
    model = sure(EncoderDecoder(tokenizer.vocab_size, config))
    with torch.no_grad():
        for block in model.decoder.blocks:
            block.cross.q.weight *= 8
            block.cross.out.weight *= 12
    return model


def classifier(tokenizer, task):
    torch.manual_seed(5)
    shape = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8, "task": task, "n_outputs": 3}
    preset = next(iter(EncoderModel.PRESETS.values()))
    config = dataclasses.replace(preset(2, 16), max_len=64, **shape)
    return sure(EncoderModel(tokenizer.vocab_size, config))


class Pipelines:
    """What `regard.load` returns, one of each kind, made afresh from the same weights."""

    def __init__(self, device="cpu"):
        letters = TOKENIZERS["characters"].train([LETTERS])
        size = letters.vocab_size
        forbidden = ForbiddenTransitions.from_pairs([(5, 6), (7, 8), (6, 6)], size)
        self.models = {
            name: Generator(language_model(name, letters).to(device), letters, None, rule)
            for name, rule in [
                ("transformer", forbidden),
                ("lstm", None),
                ("hyena", None),
                ("kneser-ney", None),
            ]
            if device == "cpu" or name != "kneser-ney"
        }
        one, two = (translator(letters, seed).to(device) for seed in (1, 2))
        both = Ensemble([one, two]).eval()
        self.translators = [Translator(one, letters), Translator(both, letters)]
        classes = ("high", "low", "middle")
        self.predictors = [
            Predictor(model.to(device), letters, Targets(task, ("kind",), (classes,)))
            for task in ("label", "position-label")
            for model in [classifier(letters, task)]
        ]
        words = ["one", "two", "three", "four"]
        spelt = Words([f" {word}" for word in words])
        vectors = SkipGram(spelt.vocab_size, Word2VecConfig(d_model=6, n_words=4))
        rows = np.concatenate([np.full(4, -1), np.arange(4)]).astype(np.int64)
        vectors.set_vocabulary(Vocabulary(rows, np.arange(4, 0, -1)))
        self.word_vectors = WordVectors(vectors, spelt)

    def generate(self, name, prompts, strategy, max_new):
        found = self.models[name].generate(prompts, strategy, max_new=max_new)
        return [[one.ids for one in each] for each in found], [
            one.score for each in found for one in each
        ]

    def score(self, name, texts):
        found = self.models[name].score(texts)
        return [tokens for tokens, _ in found], [x for _, logs in found for x in logs]

    def translate(self, which, texts, strategy):
        found = self.translators[which].translate(texts, strategy)
        exact = [[(one.tokens, one.text, one.finished) for one in each] for each in found]
        return exact, [one.score for each in found for one in each]

    def score_pairs(self, which, texts):
        found = self.translators[which].score(list(zip(texts, texts[::-1], strict=True)))
        return [one.tokens for one in found], [x for one in found for x in one.log_probs]

    def predict(self, which, texts):
        found = self.predictors[which].predictions(texts)
        return [one.label for one in found], [x for one in found for x in one.scores.values()]

    def embed(self, which, texts):
        found = self.predictors[which].embed(texts, positions=bool(which))
        return [vector.shape for vector in found], np.concatenate(found, None).tolist()

    def look_up(self, texts):
        near = [one.word for one in self.word_vectors.nearest("one", 3)]
        return near, np.concatenate(self.word_vectors.embed(texts), None).tolist()


def drawn(count, device="cpu", seed=0):
    """Calls of every kind, as (method, arguments)."""
    chance = random.Random(seed)
    letters = TOKENIZERS["characters"].train([LETTERS])

    def texts(most, longest):
        lengths = [chance.randint(1, longest) for _ in range(chance.randint(1, most))]
        return ["".join(chance.choices(LETTERS.strip(), k=n)) for n in lengths]

    def strategy():
        return chance.choice(
            [
                Greedy(),
                Sample(seed=chance.randrange(3)),
                Sample(0.8, top_k=5, seed=4),
                Sample(top_p=0.9, seed=1),
                Beam(width=3, n_best=2),
                Beam(width=4, length_penalty=1.0),
                MinimumBayesRisk(letters.decode, width=4),
            ]
        )

    names = ["transformer"] * 4 + ["lstm", "hyena"] + (["kneser-ney"] if device == "cpu" else [])
    kinds = ["generate"] * 8 + ["translate"] * 5
    kinds += ["score", "score_pairs", "predict", "embed", "look_up"]
    calls = []
    for number in range(count):
        kind = kinds[number % len(kinds)] if number < len(kinds) else chance.choice(kinds)
        if kind == "generate":
            prompts = ["", *texts(3, 60)][chance.randrange(2) :]
            calls.append((kind, chance.choice(names), prompts, strategy(), chance.choice([4, 40])))
        elif kind == "translate":
            calls.append((kind, chance.randrange(2), texts(3, 30), strategy()))
        elif kind == "score":
            calls.append((kind, chance.choice(names), texts(4, 80)))
        elif kind == "look_up":
            calls.append((kind, ["one two", "three"]))
        else:
            calls.append((kind, chance.randrange(2), texts(4, 40)))
    return calls


def check(calls, repeats, device="cpu"):
    """Eight threads make all calls, each in an order of its own, `repeats` times over."""
    alone = []
    for kind, *arguments in calls:
        alone.append(getattr(Pipelines(device), kind)(*arguments))
    shared, begin = Pipelines(device), Barrier(THREADS)

    def work(thread):
        order = list(range(len(calls))) * repeats
        random.Random(thread).shuffle(order)
        begin.wait()
        found = []
        for number in order:
            kind, *arguments = calls[number]
            try:
                found.append((number, getattr(shared, kind)(*arguments)))
            except Exception as error:  # every wrong call is counted
                found.append((number, ([repr(error)], [])))
        return found

    with ThreadPoolExecutor(THREADS) as pool:
        made = [one for each in pool.map(work, range(THREADS)) for one in each]
    assert len(made) == THREADS * repeats * len(calls)
    wrong = [(calls[n], alone[n][0], exact) for n, (exact, _) in made if exact != alone[n][0]]
    assert not wrong, f"{len(wrong)} of {len(made)} calls differ, the first: {wrong[0]}"
    for number, (_, floats) in made:
        np.testing.assert_allclose(floats, alone[number][1], atol=1e-3, rtol=1e-4)


def test_calls_from_eight_threads_give_what_they_give_alone():
    check(drawn(18), 1)


@pytest.mark.slow
def test_sixteen_hundred_calls_from_eight_threads_give_what_they_give_alone():
    check(drawn(100), 2)


@gpu
def test_calls_from_eight_threads_give_what_they_give_alone_on_a_gpu():
    check(drawn(18, "cuda"), 1, "cuda")


@gpu
@pytest.mark.slow
def test_sixteen_hundred_calls_give_what_they_give_alone_on_a_gpu():
    check(drawn(100, "cuda"), 2, "cuda")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu)])
def test_searches_of_other_widths_in_between_change_nothing(device):
    letters = TOKENIZERS["characters"].train([LETTERS])
    strategies = [
        MinimumBayesRisk(letters.decode, width=4),
        Beam(width=3),
        Sample(seed=1),
        Beam(width=4),
    ]
    shared = Pipelines(device)
    for strategy in (*strategies, *strategies, *strategies[::-1]):
        for call in ("generate", "transformer", ["abc"], strategy, 40), (
            "translate", 0, ["abc def ghi jkl mno"], strategy,
        ):  # fmt: skip
            kind, *arguments = call
            alone = getattr(Pipelines(device), kind)(*arguments)
            assert getattr(shared, kind)(*arguments)[0] == alone[0]
