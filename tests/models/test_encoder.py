"""The encoder: equal to BERT on its weights, and independent of padding and packing."""

import dataclasses

import pytest
import torch

from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models.encoder import EncoderModel, MaskedLM, bert, modern
from regard.models.supervised import POOLINGS

V, SIZES = 23, {"n_heads": 4, "n_kv_heads": 4, "d_head": 8, "max_len": 40}


def make(preset, **options):
    torch.manual_seed(0)
    model = EncoderModel(V, dataclasses.replace(preset(2, 32), **SIZES, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def sentences(count, low, high, seed=1):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(low, high, (count,), generator=draw).tolist()
    return [torch.randint(4, V, (n,), generator=draw) for n in lengths]


def padded(rows, width):
    ids, segments = torch.zeros(2, len(rows), width, dtype=torch.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], segments[i, : len(row)] = row, 1
    return Inputs(ids, segments)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("preset", [modern, bert])
@pytest.mark.parametrize("task", ["label", "position-label"])
def test_padding_and_other_rows_change_no_prediction(preset, pooling, task):
    model = make(preset, pooling=pooling, task=task, n_outputs=3)
    rows = sentences(12, 1, 20)
    with torch.no_grad():
        together = model.predict(padded(rows, 24))
        embedded = model.embed(padded(rows, 24))
        for i, row in enumerate(rows):
            alone = padded([row], len(row))
            predicted = together[i, : len(row)] if model.output.positional else together[i]
            torch.testing.assert_close(predicted, model.predict(alone)[0], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(embedded[i], model.embed(alone)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("preset", ["modern", "bert"])
def test_a_masked_language_model_reads_chosen_positions_of_each_row(preset):
    torch.manual_seed(0)
    config = dataclasses.replace(MaskedLM.PRESETS[preset](2, 32), **SIZES)
    model, source = MaskedLM(V, config).eval(), padded(sentences(3, 5, 9), 9)
    with torch.no_grad():
        chosen, whole = model.read_batch(source, positions=[3, 0, -1]), model.read_batch(source)
    torch.testing.assert_close(chosen, whole[:, [3, 0, -1]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"positions": "alibi"}, {"score": "additive"}])
@pytest.mark.parametrize("preset", [modern, bert])
def test_if_the_first_position_is_pooled_the_last_block_computes_no_other(preset, options):
    """Predictions and gradients equal those with all positions, which a tap requires."""
    model = make(preset, pooling="first", n_outputs=3, dropout=0.0, **options).double()
    source, lengths = padded(sentences(5, 1, 20), 24), []
    model.encoder.norm.register_forward_hook(lambda _m, _i, y: lengths.append(y.size(1)))
    if preset is bert:
        model.encoder.blocks[-1].feedforward.register_forward_hook(
            lambda _m, _i, y: lengths.append(y.size(1))
        )
    found = []
    for tap in (None, Tap([])):
        model.zero_grad()
        predicted = model.predict(source, tap=tap)
        predicted.square().sum().backward()
        found.append([predicted.detach(), *(p.grad.clone() for p in model.parameters())])
    assert set(lengths) == {1, 24}
    for short, full in zip(*found, strict=True):
        torch.testing.assert_close(short, full, atol=1e-10, rtol=1e-8)


def test_values_are_predicted_in_the_units_of_the_targets():
    model, source = make(modern, n_outputs=2), padded(sentences(3, 2, 9), 9)
    with torch.no_grad():
        plain = model(source)
        model.shift.copy_(torch.tensor([5.0, -1.0]))
        model.scale.copy_(torch.tensor([2.0, 10.0]))
        torch.testing.assert_close(model.predict(source)[:, 0], 5 + 2 * plain[:, 0])
        torch.testing.assert_close(model.predict(source)[:, 1], 10 * plain[:, 1] - 1)


def test_bert_is_hugging_faces():
    transformers = pytest.importorskip("transformers")
    model = make(bert, n_outputs=3)
    config = transformers.BertConfig(
        vocab_size=V,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=40,
        num_labels=3,
    )
    theirs = transformers.BertForSequenceClassification(config).eval()
    state, ours = {}, model.state_dict()
    at = "bert.embeddings."
    state[at + "word_embeddings.weight"] = ours["encoder.embedding.weight"]
    state[at + "position_embeddings.weight"] = ours["encoder.positions.embedding.weight"]
    state[at + "token_type_embeddings.weight"] = ours["encoder.types.weight"]
    for kind in ("weight", "bias"):
        state[f"{at}LayerNorm.{kind}"] = ours[f"encoder.embedding_norm.{kind}"]
        state[f"bert.pooler.dense.{kind}"] = ours[f"pooler.{kind}"]
        state[f"classifier.{kind}"] = ours[f"head.{kind}"]
        for i in range(2):
            to, of = f"bert.encoder.layer.{i}.", f"encoder.blocks.{i}."
            parts = ours[f"{of}mixer.qkv.{kind}"].chunk(3)
            for name, part in zip(("query", "key", "value"), parts, strict=True):
                state[f"{to}attention.self.{name}.{kind}"] = part
            state[f"{to}attention.output.dense.{kind}"] = ours[f"{of}mixer.out.{kind}"]
            state[f"{to}attention.output.LayerNorm.{kind}"] = ours[f"{of}mixer_norm.{kind}"]
            state[f"{to}intermediate.dense.{kind}"] = ours[f"{of}feedforward.up.{kind}"]
            state[f"{to}output.dense.{kind}"] = ours[f"{of}feedforward.down.{kind}"]
            state[f"{to}output.LayerNorm.{kind}"] = ours[f"{of}feedforward_norm.{kind}"]
    missing = theirs.load_state_dict(state, strict=False)
    assert not missing.unexpected_keys
    assert all("position_ids" in name for name in missing.missing_keys)
    source = padded(sentences(6, 3, 30), 32)
    source.ids[:3, 7] = 2  # a second sentence
    types = torch.zeros(6, 32, dtype=torch.int64)
    types[:3, 8:] = 1
    with torch.no_grad():
        expected = theirs(
            input_ids=source.ids, attention_mask=source.segments, token_type_ids=types
        ).logits
        found = model.predict(source)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("preset", ["modern", "bert"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_packing_changes_no_prediction(preset, pooling):
    torch.manual_seed(0)
    config = dataclasses.replace(
        EncoderModel.PRESETS[preset](2, 16), pooling=pooling, n_outputs=3, max_len=32
    )
    model = EncoderModel(9, config).double().eval()
    if model.pool.score is not None:
        model.pool.score.weight.data.normal_()
    one, two, three = ([1, *body, 2] for body in ([5, 6, 2, 7], [8], [4, 4, 2, 5, 6, 7]))
    alone = [
        model.predict(Inputs(torch.tensor([x]), torch.ones(1, len(x), dtype=torch.long)))
        for x in (one, two, three)
    ]
    width = len(one) + len(two)
    ids = torch.tensor([one + two, three + [0] * (width - len(three)), [0] * width])
    segments = torch.zeros_like(ids)
    segments[0] = torch.tensor([1] * len(one) + [2] * len(two))
    segments[1, : len(three)] = 1
    packed = model(Inputs(ids, segments), count=3) * model.scale + model.shift
    torch.testing.assert_close(packed, torch.cat(alone))
