"""What `regard.load` returns for a language model: prompts, scores, constraints, texts."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from regard.data.inputs import InputReader
from regard.decoding import Beam, ForbiddenTransitions, Greedy, Sample
from regard.errors import UsageError, UserError
from regard.evaluation.eval_data import shard_of
from regard.models.decoder import Decoder, modern
from regard.pipelines.generator import Generator
from regard.registry import TOKENIZERS

TOKENIZER = TOKENIZERS["characters"].train(["abcdef"])
A, B = (int(TOKENIZER.encode(letter)[0]) for letter in "ab")


@pytest.fixture
def generator():
    torch.manual_seed(2)
    config = dataclasses.replace(modern(1, 16), n_heads=2, n_kv_heads=2, d_head=8, max_len=12)
    model = Decoder(TOKENIZER.vocab_size, config).eval()
    with torch.no_grad():
        model.head.weight *= 20
    return Generator(model, TOKENIZER)


def test_a_prompt_begins_with_the_start_of_a_record(generator):
    assert generator.prompt_ids("ab") == [TOKENIZER.start, A, B]
    assert generator.prompt_ids("") == [TOKENIZER.start]
    generator.text = True  # running text goes on where the prompt ends
    assert generator.prompt_ids("ab") == [A, B] and generator.prompt_ids("") == [TOKENIZER.start]


def test_one_prompt_gives_a_list_and_several_a_list_each(generator):
    one = generator.generate("ab", Beam(3, n_best=2), max_new=5)
    both = generator.generate(["ab", "c"], Beam(3, n_best=2), max_new=5)
    assert len(both) == 2 and [x.ids for x in both[0]] == [x.ids for x in one] and len(one) == 2
    assert all(len(x.ids) <= 5 for group in both for x in group)
    never = {TOKENIZER.pad, TOKENIZER.start, TOKENIZER.unk}
    for sequences in generator.generate([""] * 20, Sample(seed=1), max_new=20):
        assert not never & set(sequences[0].ids)


def test_scores_are_the_log_probabilities_of_the_model(generator):
    tokens, log_probs = generator.score("abc")
    assert tokens == ["a", "b", "c", "<E>"]
    ids = torch.tensor([[*generator.prompt_ids("abc")]])
    with torch.no_grad():
        logs = generator.model.logits(ids).log_softmax(-1)[0]
    expected = [float(logs[t, i]) for t, i in enumerate([*ids[0, 1:].tolist(), TOKENIZER.end])]
    assert log_probs == pytest.approx(expected, abs=1e-4)
    assert generator.score(["abc"]) == [(tokens, log_probs)]
    losses = generator.measure(shard_of(["abc"], TOKENIZER))
    assert float(losses.nats.sum()) == pytest.approx(-sum(expected), abs=1e-3)


def test_forbidden_transitions_are_never_generated(generator):
    size = TOKENIZER.vocab_size
    pairs = [(A, other) for other in range(size) if other != B]  # after a comes b
    forbidden = ForbiddenTransitions.from_pairs(pairs, size)
    found = generator.continuations("a", Sample(seed=0), copies=20, max_new=6, forbidden=forbidden)
    assert len(found) == 20 and all(one.input == "a" for one in found)
    for one in found:
        assert one.text.startswith("ab") and "aa" not in one.text and "ac" not in one.text
        assert one.text == "a" + "".join(t for t in one.tokens if t != "<E>")


def test_a_continuation_is_plain_json(generator):
    (one,) = generator.continuations("ab", Greedy(), max_new=3)
    document = one.to_json()
    assert document.keys() == {"input", "text", "tokens", "score", "finished"}
    assert document["input"] == "ab" and math.isfinite(document["score"])
    impossible = dataclasses.replace(one, score=-math.inf)
    assert impossible.to_json()["score"] is None


def test_a_long_prompt_keeps_its_end(generator):
    assert (generator.context.tokens, generator.context.used) == (11, 6)
    assert generator.context.end == "last"
    long = "abcdef" * 9
    (sequence,) = generator.generate(long, Greedy(), max_new=4)
    assert len(sequence.ids) <= 4


def test_activations_are_recorded_by_name(generator):
    found = generator.activations("abc", ["logits"])
    assert found["logits"].shape == (1, 4, TOKENIZER.vocab_size)


def test_a_language_model_has_no_targets(generator, tmp_path):
    (tmp_path / "t.csv").write_text("text,y\nab,1\n")
    reader = InputReader(format="csv", inputs=("text",)).asked(input="", target="y", format="auto")
    for call in (generator.read, lambda *a: generator.score_files(*a, print)):
        with pytest.raises(UsageError, match="it has no"):
            call([tmp_path / "t.csv"], reader)
    (tmp_path / "long.txt").write_text("abc " * 300)
    with pytest.raises(UserError, match="regard evaluate measures it"):
        generator.score_files([tmp_path / "long.txt"], InputReader(format="text"), print)
