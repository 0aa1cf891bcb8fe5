"""Interventions against plain PyTorch and one at a time, and an induction head that is found."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from plain_gpt2 import GPT2, decoder, plain_gpt2
from small_models import TOKENIZER, bigram, lstm
from small_models import decoder as small_decoder
from torch import nn
from torch.nn import functional as F

from regard.errors import UserError
from regard.layers.embeddings import Inputs
from regard.layers.tap import Edit, Tap
from regard.look.interventions import (
    Change,
    Subject,
    copying_scores,
    edited_layers,
    head_effects,
    head_scores,
    log_probability,
    logit_difference,
    logit_lens,
    mean_direction,
    output_score,
    patch,
    repeat_scores,
    repeated_sequences,
    text_log_probability,
    without_heads,
)
from regard.models import encoder
from regard.models.decoder import Decoder, DecoderConfig
from regard.models.encoder import EncoderModel, MaskedLM
from regard.models.encoder_decoder import EncoderDecoder, EncoderDecoderConfig

IDS = [3, 1, 4, 1, 5, 9, 2, 6]
OTHER = [3, 1, 4, 7, 5, 9, 2, 6]


def oracle(model, ids, **changes):
    with torch.no_grad():
        return plain_gpt2(model, torch.tensor([ids]), **changes)[0].double()


@pytest.mark.parametrize("batch_tokens", [1 << 14, 20])
def test_effects_of_all_heads_in_one_batch_equal_plain_pytorch_one_at_a_time(
    monkeypatch, batch_tokens
):
    monkeypatch.setattr("regard.look.interventions.BATCH_TOKENS", batch_tokens)  # 20: two rows
    model = decoder(**GPT2)
    effects = head_effects(Subject.of_ids(model, IDS), log_probability(7, position=5))
    assert list(effects) == ["block.0.attention", "block.1.attention"]
    full = oracle(model, IDS)[5].log_softmax(-1)[7]
    for layer, values in enumerate(effects.values()):
        for head in range(3):
            without = oracle(model, IDS, heads={(layer, head)})[5].log_softmax(-1)[7]
            assert float(values[head]) == pytest.approx(float(full - without), abs=1e-6)
    assert max(float(values.abs().max()) for values in effects.values()) > 1e-3


def test_the_whole_text_can_be_measured_and_positions_chosen():
    model = decoder(**GPT2)
    targets = IDS[1:]
    whole = head_effects(Subject.of_ids(model, IDS), text_log_probability(targets))
    logs, less = (oracle(model, IDS, heads=h).log_softmax(-1) for h in ((), {(1, 2)}))
    places = range(len(targets))
    expected = float((logs - less)[places, targets].sum())
    assert float(whole["block.1.attention"][2]) == pytest.approx(expected, abs=1e-5)
    one = head_effects(Subject.of_ids(model, IDS, [5]), log_probability(7))
    again = head_effects(Subject.of_ids(model, IDS), log_probability(7, position=5))
    for name in one:
        torch.testing.assert_close(one[name], again[name])


def classifier(**settings):
    torch.manual_seed(0)
    shape = {"n_layers": 2, "d_model": 12, "n_heads": 3, "n_kv_heads": 3, "d_head": 4, "d_ff": 10}
    config = encoder.EncoderConfig(**shape, n_outputs=4, max_len=16, **settings)
    return EncoderModel(17, config).eval()


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_effects_on_the_class_of_a_predictor_equal_zeroed_columns(pooling):
    model, ids = classifier(pooling=pooling), torch.tensor([IDS])
    source = Inputs(ids, torch.ones_like(ids))
    effects = head_effects(Subject(model, source), output_score(model, 2))
    with torch.no_grad():
        full = model.predict(source).double().log_softmax(-1)[0, 2]
        for layer, block in enumerate(model.encoder.blocks):
            for head in range(3):
                weight, part = block.mixer.out.weight, slice(4 * head, 4 * head + 4)
                kept = weight[:, part].clone()
                weight[:, part] = 0
                without = model.predict(source).double().log_softmax(-1)[0, 2]
                weight[:, part] = kept
                measured = float(effects[f"block.{layer}.attention"][head])
                assert measured == pytest.approx(float(full - without), abs=1e-6)


def test_heads_of_a_translator_that_read_the_source_are_switched_off_too():
    torch.manual_seed(0)
    shape = {"n_layers": 1, "d_model": 12, "n_heads": 2, "n_kv_heads": 2, "d_head": 6, "d_ff": 10}
    config = EncoderDecoderConfig(**shape, n_encoder_layers=1, max_len=16)
    source = torch.tensor([[5, 6, 7]])
    model = EncoderDecoder(17, config).eval().condition(Inputs(source, torch.ones_like(source)))
    effects = head_effects(Subject.of_ids(model, IDS), log_probability(7))
    assert list(effects) == ["block.0.attention", "block.0.cross"]
    edit = Edit.zero("block.0.cross.heads", (slice(None), 1))
    logs = []
    for edits in ([], [edit]):
        with torch.no_grad():
            logits = model.logits(torch.tensor([IDS]), tap=Tap(edits=edits))[0, -1]
        logs.append(float(logits.double().log_softmax(-1)[7]))
    assert float(effects["block.0.cross"][1]) == pytest.approx(logs[0] - logs[1], abs=1e-6)


def test_models_without_heads_or_blocks_are_refused_with_the_reason():
    for model in (lstm(), bigram()):
        subject = Subject.of_ids(model, [TOKENIZER.start, 4, 5])
        with pytest.raises(UserError, match=r"has no attention heads"):
            head_effects(subject, log_probability(4))
    with pytest.raises(UserError, match="LSTMModel has no residual stream: each layer has a space"):
        logit_lens(Subject.of_ids(lstm(), [TOKENIZER.start, 4, 5]))


def test_patched_positions_of_the_residual_stream_equal_plain_pytorch():
    model, streams = decoder(**GPT2), []
    clean, corrupt = Subject.of_ids(model, IDS), Subject.of_ids(model, OTHER)
    measure = logit_difference(7, 2)
    shares = patch(clean, corrupt, measure)
    assert list(shares) == ["block.0.output", "block.1.output"]
    good = oracle(model, IDS, streams=streams)
    bad = oracle(model, OTHER)
    best, worst = (float(x[-1, 7] - x[-1, 2]) for x in (good, bad))
    for layer, stream in enumerate(streams):
        for position in range(len(IDS)):
            x = oracle(model, OTHER, swap=(layer, stream, position))
            expected = (float(x[-1, 7] - x[-1, 2]) - worst) / (best - worst)
            measured = float(shares[f"block.{layer}.output"][position])
            assert measured == pytest.approx(expected, abs=1e-6 / abs(best - worst))
    assert not shares["block.0.output"][:3].abs().max() > 1e-6  # equal tokens: nothing to restore
    assert float(shares["block.1.output"][-1]) == pytest.approx(1, abs=1e-6)


def test_head_outputs_are_patched_by_head_and_position():
    model = decoder(**GPT2)
    clean, corrupt = Subject.of_ids(model, IDS), Subject.of_ids(model, OTHER)
    shares = patch(clean, corrupt, logit_difference(7, 2), "*.attention.heads")
    assert {tuple(x.shape) for x in shares.values()} == {(3, len(IDS))}
    value = clean.activations("block.1.attention.heads")["block.1.attention.heads"]
    edit = Edit.replace("block.1.attention.heads", value[2, -1], (0, 2, -1))
    with torch.no_grad():
        logits = model.logits(corrupt.source.ids, tap=Tap(edits=[edit]))[0, -1].double()
    ends = [oracle(model, ids)[-1] for ids in (IDS, OTHER)]
    best, worst, patched = (float(x[7] - x[2]) for x in (*ends, logits))
    measured = float(shares["block.1.attention.heads"][2, -1])
    assert measured == pytest.approx((patched - worst) / (best - worst), abs=1e-4)


def test_inputs_that_cannot_be_patched_are_refused():
    model = decoder(**GPT2)
    clean, measure = Subject.of_ids(model, IDS), logit_difference(7, 2)
    with pytest.raises(UserError, match="equally many tokens, got 8 and 3"):
        patch(clean, Subject.of_ids(model, IDS[:3]), measure)
    with pytest.raises(UserError, match="nothing to restore"):
        patch(clean, clean, measure)
    with pytest.raises(UserError, match=r"no activation is called 'block.9.output'"):
        patch(clean, Subject.of_ids(model, OTHER), measure, "block.9.output")


def test_the_lens_reads_each_block_as_if_it_were_the_last():
    model = decoder(**GPT2)
    names, outputs = logit_lens(Subject.of_ids(model, IDS))
    assert names == ["embedding", "block.0.output", "block.1.output"]
    for blocks in range(3):
        expected = oracle(model, IDS, blocks=blocks).float()
        torch.testing.assert_close(outputs[blocks], expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("model", [classifier(), classifier(pooling="first", pooler=True)])
def test_the_lens_of_a_classifier_pools_the_stream_of_each_block(model):
    ids = torch.tensor([IDS])
    source = Inputs(ids, torch.ones_like(ids))
    names, outputs = logit_lens(Subject(model, source))
    blocks, model.encoder.blocks = model.encoder.blocks, nn.ModuleList(model.encoder.blocks[:1])
    with torch.no_grad():
        shorter = model(source, tap=Tap())  # a tap: the last block computes every position
    model.encoder.blocks = blocks
    torch.testing.assert_close(outputs[1], shorter[0], atol=1e-6, rtol=0)
    with torch.no_grad():
        torch.testing.assert_close(outputs[-1], model.predict(source)[0], atol=1e-6, rtol=0)
    assert len(names) == 3


def test_the_lens_of_a_masked_language_model_ends_with_its_own_logits():
    torch.manual_seed(0)
    model = MaskedLM(17, encoder.bert_masked(2, 32)).eval()
    ids = torch.tensor([IDS])
    source = Inputs(ids, torch.ones_like(ids))
    _, outputs = logit_lens(Subject(model, source))
    with torch.no_grad():
        torch.testing.assert_close(outputs[-1], model.predict(source)[0], atol=1e-5, rtol=0)
    assert outputs.shape == (3, 8, 17)


def test_without_heads_holds_for_every_call_and_ends_with_the_block():
    model, ids = decoder(**GPT2), torch.tensor([IDS])
    layers = [block.mixer for block in model.blocks]
    before = oracle(model, IDS)
    with without_heads(layers, [(0, 2), (1, 0), (1, 1)]), torch.no_grad():
        found = model.logits(ids)[0].double()
        scored = model.score(ids[:, :-1], ids[:, 1:])[0].double()
    expected = oracle(model, IDS, heads={(0, 2), (1, 0), (1, 1)})
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    logs = expected.log_softmax(-1)[range(7), IDS[1:]]
    torch.testing.assert_close(scored, logs, atol=1e-6, rtol=0)
    with pytest.raises(RuntimeError), edited_layers({layers[0]: [Edit.zero("heads")]}):
        raise RuntimeError
    with torch.no_grad():
        torch.testing.assert_close(model.logits(ids)[0].double(), before, atol=1e-6, rtol=0)


def test_rows_with_changes_of_different_activations_are_independent():
    model = decoder(**GPT2)
    subject = Subject.of_ids(model, IDS)
    changes = [None, Change("embedding", (2,), 0.5), Change("block.0.attention.heads", (1, 3))]
    rows = subject.record(changes, "embedding", "block.0.attention.heads")
    assert (rows["embedding"][1, 2] == 0.5).all() and (rows["embedding"][0, 2] != 0.5).all()
    assert not rows["block.0.attention.heads"][2, 1, 3].any()
    torch.testing.assert_close(rows["embedding"][2], rows["embedding"][0])


def test_copying_is_the_direct_effect_of_a_head_on_the_tokens_that_it_attends_to():
    model = decoder(**GPT2)
    streams, total = [], torch.zeros(())
    scores = copying_scores(model, IDS)["block.0.attention"]
    subject = Subject.of_ids(model, IDS)
    activations = subject.activations("block.0.attention.*")
    weights, heads = (activations[f"block.0.attention.{x}"] for x in ("weights", "heads"))
    oracle(model, IDS, streams=streams)
    with torch.no_grad():
        part = heads[1] @ model.blocks[0].mixer.out.weight[:, 8:16].T  # (T, D)
        logits = [model.head(model.norm(x)) for x in (streams[-1][0], streams[-1][0] - part)]
        raised = logits[0] - logits[1]
        for t in range(len(IDS)):
            for s in range(t + 1):
                total += weights[1, t, s] * (raised[t, IDS[s]] - raised[t].mean())
    assert float(scores[1]) == pytest.approx(float(total) / len(IDS), abs=1e-5)


def test_a_direction_between_texts_steers_towards_the_first():
    model = small_decoder()
    one, other = ["abab", "ab", "aabb"], ["cc", "ccc", "cccb"]
    name = "block.0.output"
    direction = mean_direction(model, TOKENIZER, one, other, name)
    means = []
    for texts in (one, other):
        rows = []
        for text in texts:
            ids = [TOKENIZER.start, *TOKENIZER.encode(text).tolist()]  # <E> is never read
            rows.append(Subject.of_ids(model, ids).activations(name)[name])
        means.append(torch.cat(rows).mean(0))
    torch.testing.assert_close(direction, means[0] - means[1], atol=1e-5, rtol=0)
    ids = torch.tensor([[TOKENIZER.start, *TOKENIZER.encode("b").tolist()]])
    tap = Tap([name], edits=[Edit.add(name, 2 * direction)])
    with torch.no_grad():
        model.logits(ids, tap=tap)
    plain = Subject.of_ids(model, ids[0].tolist()).activations(name)[name]
    torch.testing.assert_close(tap.activations[name][0], plain + 2 * direction)
    with pytest.raises(UserError, match=r"no activation is called 'block.7.output'"):
        mean_direction(model, TOKENIZER, one, other, "block.7.output")


@pytest.fixture(scope="module")
def copier():
    """A decoder of two layers that has learned random sequences which are repeated once."""
    torch.manual_seed(0)
    shape = {"n_layers": 2, "d_model": 32, "n_heads": 2, "n_kv_heads": 2, "d_head": 16, "d_ff": 32}
    model = Decoder(10, DecoderConfig(**shape, max_len=24))
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=0.01)
    random = np.random.default_rng(0)
    for _ in range(300):
        half = int(random.integers(4, 11))
        ids = repeated_sequences(range(10), half, 32, random)
        logits = model.logits(ids[:, :-1]).flatten(0, 1)
        optimizer.zero_grad()
        F.cross_entropy(logits, ids[:, 1:].flatten()).backward()
        optimizer.step()
    return model.eval()


def test_the_induction_head_of_a_model_of_repeated_sequences_is_found(copier):
    scores = repeat_scores(copier, range(10), 9, rows=8, seed=1)
    heads = {(n, h): s for n, layer in scores.items() for h, s in enumerate(layer)}
    found = max(heads, key=lambda site: heads[site].induction)
    assert found[0] == "block.1.attention" and heads[found].induction > 0.5
    assert heads[found].role == "induction"
    earlier = max(score.previous for score in scores["block.0.attention"])
    assert earlier > 0.4  # the head before it tells it what preceded each token
    # and without it, a repeated token is predicted no better than at random
    ids = repeated_sequences(range(10), 9, 1, np.random.default_rng(5))[0].tolist()
    subject = Subject.of_ids(copier, ids[:-1])
    effects = head_effects(subject, log_probability(ids[-1]))
    assert max(float(x.max()) for x in effects.values()) > 0.5


def test_scores_of_heads_are_those_of_the_input(copier):
    ids = [1, 2, 3, 1, 2]
    scores = head_scores(Subject.of_ids(copier, ids), causal=True)
    weights = Subject.of_ids(copier, ids).activations("block.1.attention.weights")
    w = weights["block.1.attention.weights"][0]
    expected = float((w[3, 1] + w[4, 2]) / 2)  # what followed the same token
    assert scores["block.1.attention"][0].induction == pytest.approx(expected, abs=1e-6)
    assert scores["block.1.attention"][0].same == pytest.approx(
        float((w[3, 0] + w[4, 1]) / 2), abs=1e-6
    )


def test_heads_over_patches_have_an_entropy_alone(copier):
    subject = Subject.of_ids(copier, [1, 2, 3])
    (one, _), _ = head_scores(subject, causal=False, words=False).values()
    scored = head_scores(subject, causal=True)["block.0.attention"][0]
    assert one.bits == pytest.approx(scored.bits, abs=1e-5)
    assert np.isnan([one.offset, one.previous, one.same]).all()
