"""What the studio reads, against `score`, direct forward passes and full attention maps."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from regard.data.targets import Targets
from regard.decoding import ForbiddenTransitions, Sample
from regard.errors import UsageError
from regard.evaluation.eval_data import shard_of
from regard.evaluation.masked_tokens import pseudo_log_likelihood
from regard.layers.embeddings import Inputs
from regard.layers.tap import Edit, Tap
from regard.models.encoder import EncoderModel, MaskedLM
from regard.models.ngrams import CountingModel
from regard.pipelines.generator import Generator
from regard.pipelines.masked_predictor import MaskedPredictor
from regard.pipelines.predictor import Predictor
from regard.registry import MODELS
from regard.studio.pipeline_reading import open_reader
from regard.studio.reading import ALL_LAYERS, Cut, Given
from regard.tokenizers import Characters

TEXTS = ["abba", "cab", "bac", "abc", "baab", "ccab", "acca"]
TOKENIZER = Characters.train(TEXTS)
LONG = "abbacabcabbaacbcbaabcabacbbcacabba" * 2  # several windows of eleven tokens
HEADS = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8}


@pytest.fixture(autouse=True)
def one_thread():
    """Models this small only wait for a second thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def generator(name="transformer", **options):
    torch.manual_seed(0)
    cls = MODELS.get(name)
    config = next(iter(cls.PRESETS.values()))(2, 16)
    known = {field.name for field in dataclasses.fields(config)}
    wanted = {"max_len": 11, "dropout": 0.0, **(HEADS if "n_heads" in known else {}), **options}
    config = dataclasses.replace(config, **{k: v for k, v in wanted.items() if k in known})
    model = cls(TOKENIZER.vocab_size, config)
    if isinstance(model, CountingModel):
        model.fit(shard_of(TEXTS, TOKENIZER), None, print)
    return Generator(model.eval(), TOKENIZER)


@pytest.fixture(scope="module")
def masked():
    torch.manual_seed(0)
    config = dataclasses.replace(MaskedLM.PRESETS["modern"](2, 16), max_len=12, **HEADS)
    model = MaskedLM(TOKENIZER.vocab_size, config).eval()
    return MaskedPredictor(model, TOKENIZER, Targets("masked", (), ()))


def predictor(task, targets):
    torch.manual_seed(0)
    config = dataclasses.replace(
        EncoderModel.PRESETS["modern"](2, 16),
        max_len=12,
        task=task,
        n_outputs=targets.n_outputs,
        **HEADS,
    )
    return Predictor(EncoderModel(TOKENIZER.vocab_size, config).eval(), TOKENIZER, targets)


LABELS = Targets("label", ("kind",), (("high", "low", "middle"),))


@pytest.mark.parametrize("text", ["abba", LONG, ""])
@pytest.mark.parametrize("name", MODELS.names("next"))
def test_bits_are_those_of_score_in_every_family_at_every_place(name, text):
    pipeline = generator(name)
    reader = open_reader(pipeline)
    tokens, log_probs = pipeline.score(text)
    given = Given(text)
    assert reader.tokens(given).names() == tokens
    expected = np.array(log_probs) / -math.log(2)
    scores = reader.scores(given, 0, len(tokens))
    np.testing.assert_allclose(scores.bits, expected, atol=1e-4, rtol=1e-4)
    for first, last in ((3, 7), (len(tokens) - 2, len(tokens) + 9)):  # a part gives the same
        part = reader.scores(given, max(0, first), last)
        np.testing.assert_allclose(part.bits, expected[max(0, first) : last], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["transformer", "lstm", "kneser-ney"])
def test_ranks_and_expected_tokens_are_those_of_the_logits(name):
    pipeline = generator(name)
    reader, given = open_reader(pipeline), Given("abca")
    row = torch.tensor([pipeline.prompt_ids("abca")])
    with torch.inference_mode():
        logits = pipeline.model.logits(row)[0].float()  # (5, V)
    ids = reader.tokens(given).ids
    scores = reader.scores(given, 0, 5)
    for at in range(5):
        assert scores.ranks[at] == 1 + int((logits[at] > logits[at, ids[at]]).sum())
        expected = reader.expected(given, at)
        p = logits[at].softmax(-1)
        assert expected.probabilities.tolist() == sorted(expected.probabilities, reverse=True)
        np.testing.assert_allclose(expected.probabilities, p[expected.ids], atol=1e-5)
        assert expected.names == [TOKENIZER.text(i) for i in expected.ids]


def test_the_cuts_are_those_of_sampling():
    pipeline = generator()
    reader, given, cut = open_reader(pipeline), Given("abc"), Cut(0.7, 3, 0.9)
    expected = reader.expected(given, 2, cut)
    logits = reader.logits(given, 2).clone()
    logits[TOKENIZER.never_produced(len(logits))] = -math.inf
    weights, ids = Sample(0.7, 3, 0.9).weights(logits[None])
    by_id = dict(zip(ids[0].tolist(), (weights / weights.sum())[0].tolist(), strict=True))
    for i, p in zip(expected.ids, expected.after, strict=True):
        assert p == pytest.approx(by_id.get(i, 0.0), abs=1e-6)
    assert expected.remaining == int((weights > 0).sum())


def test_running_text_begins_without_a_score_and_goes_on_after_its_end():
    pipeline = generator()
    pipeline.__dict__["text"] = True
    reader, given = open_reader(pipeline), Given("abba")
    assert reader.tokens(given).names() == list("abba")
    assert np.isnan(reader.scores(given, 0, 4).bits).tolist() == [True, False, False, False]
    assert reader.expected(given, 0) is None
    with torch.inference_mode():
        logits = pipeline.model.logits(torch.tensor([pipeline.prompt_ids("abba")]))[0]
    torch.testing.assert_close(reader.logits(given, 4), logits[3], atol=1e-5, rtol=1e-5)
    assert reader.logits(given, 5) is None


def test_forbidden_transitions_have_no_probability():
    a, b = (int(TOKENIZER.encode(c)[0]) for c in "ab")
    forbidden = ForbiddenTransitions.from_pairs([(a, b)], TOKENIZER.vocab_size)
    plain = generator()
    pipeline = Generator(plain.model, TOKENIZER, forbidden=forbidden)
    scores = open_reader(pipeline).scores(Given("cab"), 0, 4)
    assert np.isinf(scores.bits).tolist() == [False, False, True, False]
    expected = np.array(pipeline.score("cab")[1]) / -math.log(2)
    np.testing.assert_allclose(scores.bits, expected, atol=1e-5)


def test_attention_rows_are_those_of_the_full_map():
    pipeline = generator(max_len=64)
    reader, given = open_reader(pipeline), Given(LONG[:40])
    tap = Tap(["*.weights"])
    with torch.inference_mode():
        pipeline.model.logits(torch.tensor([pipeline.prompt_ids(LONG[:40])]), tap=tap)
    names = [layer.name for layer in reader.layers]
    assert names == ["block.0.attention", "block.1.attention"]
    for name in names:
        attention = reader.attention(given, 17, name)
        full = tap.activations[f"{name}.weights"][0].numpy()  # (H, T, T)
        np.testing.assert_allclose(attention.weights, full, atol=1e-6)
        assert (attention.frame.row, attention.first) == (17, -1)  # row 17 predicts token 17
    mean = np.stack([x[0].numpy() for x in tap.activations.values()]).mean((0, 1))
    np.testing.assert_allclose(reader.attention(given, 0, ALL_LAYERS).weights[0], mean, atol=1e-6)
    tile = reader.pyramid(given, 17, names[0], 1).tile(0, 0, 0)[0]
    np.testing.assert_allclose(tile, tap.activations[f"{names[0]}.weights"][0, 1][:64, :64])


def test_a_long_text_is_read_in_the_window_of_the_position():
    pipeline = generator()
    reader, given = open_reader(pipeline), Given(LONG)
    frame = reader.frame(given, 40)
    assert frame.stop - frame.start == 11
    ids = reader.inputs(given)[frame.start : frame.stop]
    tap = Tap(["block.1.attention.weights"])
    with torch.inference_mode():
        logits = pipeline.model.logits(torch.from_numpy(ids)[None], tap=tap)[0]
    attention = reader.attention(given, 40, "block.1.attention")
    (full,) = tap.activations.values()
    np.testing.assert_allclose(attention.weights, full[0].numpy(), atol=1e-6)
    torch.testing.assert_close(reader.logits(given, 40), logits[frame.row], atol=1e-5, rtol=1e-5)
    # column j is input start + j, whose token is shown at first + j
    shown = reader.tokens(given).ids
    assert shown[attention.first + 3] == ids[3]
    assert "11 at once" in reader.notes(given)[0]


def test_a_head_that_is_off_is_zeroed():
    pipeline = generator(max_len=32)
    reader = open_reader(pipeline)
    given = Given("abcab", off=("block.1.attention:1",))
    tap = Tap(edits=[Edit.zero("block.1.attention.heads", (slice(None), 1))])
    with torch.inference_mode():
        logits = pipeline.model.logits(torch.tensor([pipeline.prompt_ids("abcab")]), tap=tap)[0]
    torch.testing.assert_close(reader.logits(given, 3), logits[3], atol=1e-5, rtol=1e-5)
    whole = reader.logits(Given("abcab"), 3)
    assert not torch.allclose(whole, logits[3], atol=1e-3)  # and the results are kept apart
    with pytest.raises(UsageError, match="LAYER:HEAD"):
        reader.logits(Given("abcab", off=("block.1.attention:9",)), 3)


def test_a_layer_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="layer must be one of"):
        open_reader(generator()).attention(Given("ab"), 0, "block.7.attention")
    assert open_reader(generator("lstm")).attention(Given("ab"), 0, "any") is None


def test_masked_tokens_are_scored_alone(masked):
    reader = open_reader(masked)
    for text in ("abcab", LONG):  # the second one in pieces
        record = pseudo_log_likelihood(masked.model, text, TOKENIZER)
        count = len(reader.tokens(Given(text)).ids)
        bits = [reader.scores(Given(text), i, i + 32).bits for i in range(0, count, 32)]
        expected = np.array(record.log_probs) / -math.log(2)
        np.testing.assert_allclose(np.concatenate(bits), expected, atol=1e-5)
    filled = masked.fill("ab<mask>b", num=3)[0]
    expected = reader.expected(Given("ab<mask>b"), 2)
    by_name = dict(zip(expected.names, expected.probabilities, strict=True))
    for candidate in filled.candidates:
        assert by_name[candidate.token] == pytest.approx(candidate.probability, rel=1e-5)
    spans = reader.tokens(Given("ab<mask>b")).spans
    assert spans.tolist() == [[0, 1], [1, 2], [2, 8], [8, 9]]
    assert reader.tokens(Given("ab<mask>b")).names() == ["a", "b", "<mask>", "b"]
    attention = reader.attention(Given("ab<mask>b"), 2, "block.0.attention")
    assert reader.columns(Given("ab<mask>b"), attention)[3] == "<mask>"


def masked_logs(model, ids, at, off=()):
    """Return log P (V,) at a masked position while heads are off: their columns of the output
    projection are zero.
    """
    row = torch.tensor([list(ids)])
    row[0, at] = TOKENIZER.mask
    weights = [block.mixer.out.weight for block in model.encoder.blocks]
    kept = [weight.detach().clone() for weight in weights]
    with torch.no_grad():
        for layer, head in off:
            weights[layer][:, 8 * head : 8 * head + 8] = 0
        logits = model(Inputs(row, torch.ones_like(row)))[0, at]
        for weight, before in zip(weights, kept, strict=True):
            weight.copy_(before)
    return logits.double().log_softmax(-1)


@pytest.fixture(scope="module", params=["modern", "bert"])
def filler(request):
    """A masked language model whose heads matter."""
    torch.manual_seed(1)
    config = dataclasses.replace(MaskedLM.PRESETS[request.param](2, 16), max_len=12, **HEADS)
    model = MaskedLM(TOKENIZER.vocab_size, config).eval()
    with torch.no_grad():
        for block in model.encoder.blocks:
            block.mixer.out.weight.mul_(4)
    return MaskedPredictor(model, TOKENIZER, Targets("masked", (), ()))


@pytest.mark.parametrize(("text", "at"), [("abcab", 0), ("abcab", 4), (LONG, 17)])
def test_what_heads_give_to_a_masked_token_is_that_of_plain_pytorch(filler, text, at):
    reader, model, given = open_reader(filler), filler.model, Given(text)
    ids = reader.ids(given)
    start, piece = reader.piece(ids, at + 1)
    place, token = at + 1 - start, ids[at + 1]
    full = masked_logs(model, piece, place)[token]
    effects = reader.effects(given, at)
    assert list(effects) == ["block.0.attention", "block.1.attention"]
    for layer, values in enumerate(effects.values()):
        for head, value in enumerate(values):
            less = masked_logs(model, piece, place, [(layer, head)])[token] - full
            assert value == pytest.approx(float(less) / math.log(2), abs=1e-6)
    assert max(abs(values).max() for values in effects.values()) > 1e-3


def test_a_mask_is_measured_by_what_is_expected_most_there(filler):
    reader, given = open_reader(filler), Given("ab<mask>b<mask>")
    full = masked_logs(filler.model, reader.ids(given), 3)
    expected = max(set(range(len(full))) - set(TOKENIZER.names), key=lambda i: float(full[i]))
    less = masked_logs(filler.model, reader.ids(given), 3, [(1, 0)])[expected] - full[expected]
    effect = reader.effects(given, 2)["block.1.attention"][0]
    assert effect == pytest.approx(float(less) / math.log(2), abs=1e-6)
    assert reader.effects(given, 5) is None  # <E>


def test_masked_tokens_are_scored_without_the_heads_that_are_off(filler):
    reader = open_reader(filler)
    assert all(layer.switchable for layer in reader.layers) and reader.measures
    off = Given("abcab", off=("block.0.attention:1", "block.1.attention:0"))
    bits, expected = reader.scores(off, 0, 5).bits, reader.expected(off, 2)
    ids = reader.ids(off)
    for at in range(5):
        logs = masked_logs(filler.model, ids, at + 1, [(0, 1), (1, 0)])
        assert bits[at] == pytest.approx(-float(logs[ids[at + 1]]) / math.log(2), abs=1e-5)
        if at == 2:
            best = logs.exp().sort(descending=True).values[: len(expected.ids)]
            np.testing.assert_allclose(expected.probabilities, best, atol=1e-6)
    assert abs(bits - reader.scores(Given("abcab"), 0, 5).bits).max() > 1e-3


def test_the_lens_and_patches_of_a_masked_token_end_with_the_model(filler):
    reader, given = open_reader(filler), Given("abcab")
    ids = reader.ids(given)
    logs = masked_logs(filler.model, ids, 3)
    rows = reader.lens(given, 2)
    assert [name for name, _, _ in rows] == ["embedding", "layer 1", "layer 2"]
    assert rows[-1][2] == pytest.approx(-float(logs[ids[3]]) / math.log(2), abs=1e-6)
    (name, p), *_ = rows[-1][1]
    assert (name, p) == (TOKENIZER.text(int(logs.argmax())), pytest.approx(float(logs.exp().max())))
    shares = np.asarray(reader.patch(given, 2, "bbcab").values)
    assert shares.shape == (2, 7)
    assert shares[-1, 3] == pytest.approx(1, abs=1e-4)  # the last block at the position is all
    assert np.delete(shares[-1], 3) == pytest.approx(0, abs=1e-4)


def test_a_classifier_shows_what_tokens_add_and_where_its_heads_look():
    pipeline = predictor("label", LABELS)
    reader, given = open_reader(pipeline), Given("abcab")
    name, values = reader.added(given)
    assert name.startswith("gradient × input for ")
    assert len(values) == len(reader.tokens(given).ids) == 5
    (answer,) = reader.answer(given)
    assert answer.headline == pipeline.predictions("abcab").label
    tap = Tap(["*.attention.weights"])
    with torch.inference_mode():
        pipeline.model.predict(reader.context(given).source, tap=tap)
    attention = reader.attention(given, 2, "block.0.attention")
    np.testing.assert_allclose(
        attention.weights, tap.activations["block.0.attention.weights"][0].numpy(), atol=1e-6
    )
    assert (attention.frame.row, attention.first) == (3, -1)  # after <S>
    off = Given("abcab", off=("block.0.attention:0", "block.0.attention:1"))
    assert not np.allclose(reader.probabilities(off), reader.probabilities(given))
    assert reader.scores(given, 0, 5) is None


def test_positions_have_probabilities_of_classes():
    pipeline = predictor("position-label", Targets("position-label", ("where",), (("X", "Y"),)))
    reader = open_reader(pipeline)
    names, rows = reader.classes(Given("abcab"))
    expected = pipeline.predict_proba("abcab")
    assert names == ["X", "Y"]
    np.testing.assert_allclose(rows, expected, atol=1e-5)


def test_a_translation_is_read_given_its_source(translator):
    reader = open_reader(translator)
    given = Given("abc de", "fgh")
    scored = translator.score(("abc de", "fgh"))
    scores = reader.scores(given, 0, 9)
    assert reader.tokens(given).names() == scored.tokens
    np.testing.assert_allclose(scores.bits, np.array(scored.log_probs) / -math.log(2), atol=1e-4)
    assert reader.source_tokens(given).names() == [*"abc de", "<E>"]
    cross = next(layer.name for layer in reader.layers if layer.source)
    attention = reader.attention(given, 1, cross)
    assert attention.weights.shape[-1] == 7 and attention.first == 0
    np.testing.assert_allclose(attention.weights.sum(-1), 1, atol=1e-5)
    off = Given("abc de", "fgh", off=(f"{cross}:0",))
    assert not np.allclose(reader.scores(off, 0, 9).bits, scores.bits, atol=1e-3)


def test_items_that_are_no_texts_have_no_reader(translator):
    class Images:
        reads_text = False

    class Other(Generator):
        source_tokenizer = Images()

    assert open_reader(Other(generator().model, TOKENIZER)) is None
    assert open_reader(translator) is not None
