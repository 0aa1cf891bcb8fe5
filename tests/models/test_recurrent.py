"""Recurrent models against torch's cells, the cells' equations, and loops in NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from regard.decoding import Beam, Greedy, generate
from regard.layers.embeddings import Inputs
from regard.layers.tap import Tap
from regard.models.language_model import IGNORE
from regard.models.recurrent import (
    AttentiveSeq2SeqConfig,
    GRUModel,
    LSTMModel,
    RecurrentConfig,
    RecurrentSeq2SeqConfig,
    RecurrentStack,
    RNNModel,
)
from regard.recipe import check
from regard.registry import MODELS
from regard.run import Run, weights, write_config
from regard.storage import write_tensors
from regard.training.optimizer import block_matrices


def test_the_recurrence_carries_its_state_over_ragged_prompts():
    torch.manual_seed(2)
    stack = RecurrentStack(nn.LSTM, 5, 2, 0.0).eval()
    x, lengths = torch.randn(3, 6, 5), torch.tensor([2, 6, 4])
    state = stack.new_state(3, x)
    last = stack.advance(x, lengths, state)
    more = stack.advance(x[:, :2], None, state)
    for row, n in enumerate(lengths.tolist()):
        alone = torch.cat([x[row, :n], x[row, :2]])[None]
        out, (hidden, cell) = stack.cells(alone)
        torch.testing.assert_close(last[row], out[0, n - 1], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(more[row], out[0, -1], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(state.vectors[0][:, row], hidden[:, 0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(state.vectors[1][:, row], cell[:, 0], atol=1e-6, rtol=1e-5)


V, D, LAYERS = 11, 7, 2
FAMILIES = {"rnn": RNNModel, "gru": GRUModel, "lstm": LSTMModel}
TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


@pytest.fixture(params=FAMILIES)
def name(request):
    return request.param


def make(name, **options):
    torch.manual_seed(4)
    config = RecurrentConfig(**{"n_layers": LAYERS, "d_model": D, "max_len": 20, **options})
    model = FAMILIES[name](V, config).double().eval()
    for key, parameter in model.cells.named_parameters():
        if "bias" in key:  # zeros at first, which would hide them
            nn.init.normal_(parameter)
    return model


def ids(*shape, seed=0):
    return torch.randint(0, V, shape, generator=torch.Generator().manual_seed(seed))


def rnn(x, memory, w, u, a, b):
    h = torch.tanh(w @ x + a + u @ memory[0] + b)
    return (h,)


def gru(x, memory, w, u, a, b):
    """Cho et al. 2014, the state reset after its product with U (torch's and cuDNN's variant)."""
    (h,) = memory
    r, z, n = (w @ x + a).chunk(3)
    ru, zu, nu = (u @ h + b).chunk(3)
    r, z = torch.sigmoid(r + ru), torch.sigmoid(z + zu)
    return ((1 - z) * torch.tanh(n + r * nu) + z * h,)


def lstm(x, memory, w, u, a, b):
    """Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000."""
    h, c = memory
    i, f, g, o = (w @ x + a + u @ h + b).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


EQUATIONS = {"rnn": rnn, "gru": gru, "lstm": lstm}


@torch.no_grad()
def test_the_logits_are_those_of_the_equations(name):
    model, x = make(name), ids(2, 6)
    cells = model.cells.cells
    logits = model.logits(x)
    for row in range(2):
        memories = [tuple(torch.zeros(D).double() for _ in range(1 + (name == "lstm")))] * LAYERS
        for t in range(6):
            h = model.embedding.weight[x[row, t]]
            for layer in range(LAYERS):
                matrices = [
                    getattr(cells, f"{key}_l{layer}")
                    for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
                ]
                memories[layer] = EQUATIONS[name](h, memories[layer], *matrices)
                h = memories[layer][0]
            torch.testing.assert_close(logits[row, t], model.head.weight @ h)


@torch.no_grad()
def test_the_cells_are_torchs_on_the_same_weights(name):
    model, x = make(name), ids(3, 8)
    theirs = TORCH[name](D, D, LAYERS, batch_first=True).double()
    theirs.load_state_dict(model.cells.cells.state_dict())
    torch.testing.assert_close(model.hidden(x), theirs(model.embedding(x))[0], rtol=0, atol=0)


@torch.no_grad()
def test_a_state_is_carried_over_ragged_pieces(name):
    model, x = make(name), ids(3, 9)
    whole, state = model.logits(x), model.init_state(3, 9)
    lengths = torch.tensor([2, 6, 4])
    rows = torch.arange(3)
    torch.testing.assert_close(model.step(x[:, :6], lengths, state), whole[rows, lengths - 1])
    more = x.gather(1, lengths[:, None] + torch.arange(2))
    torch.testing.assert_close(model.step(more, None, state), whole[rows, lengths + 1])
    assert len(state.layers[0].vectors) == (2 if name == "lstm" else 1)


def test_muon_takes_each_gate_by_itself(name):
    model = make(name)
    matrices, parts = block_matrices(model)
    assert len(matrices) == 2 * LAYERS  # input and recurrent; embedding and head stay outside
    for matrix in matrices:
        assert parts[matrix] == (D,) * GATES[name]


def test_an_lstm_remembers_at_first(name):
    torch.manual_seed(0)
    model = FAMILIES[name](V, RecurrentConfig(n_layers=1, d_model=D))
    biases = torch.cat([p for n, p in model.cells.named_parameters() if "bias" in n])
    ones = biases == 1
    assert int(ones.sum()) == (D if name == "lstm" else 0) and not biases[~ones].any()
    if name == "lstm":
        assert bool(model.cells.cells.bias_ih_l0[D : 2 * D].eq(1).all())  # i, f, g, o


def test_packed_records_are_refused(name):
    with pytest.raises(ValueError, match="cannot separate packed records"):
        make(name).hidden(ids(1, 4), torch.ones(1, 4, dtype=torch.long))


@pytest.mark.parametrize("change", [{"n_layers": 0}, {"d_model": 0}, {"dropout": 1.0}])
def test_a_wrong_config_names_the_field(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        RecurrentConfig(**change)


# Encoder–decoders

WORDS, WIDTH = 29, 6
CASES = [
    ("rnn", "cho", {}),
    ("rnn", "sutskever", {"tied": False, "source_vocab": 41}),
    ("rnn-attention", "bahdanau", {}),
    ("rnn-attention", "bahdanau", {"n_layers": 1, "source_vocab": 41}),
    ("rnn-attention", "luong", {"tied": False}),
    ("rnn-attention", "bilinear", {}),
    ("rnn-attention", "luong", {"score": "scaled_dot"}),
]


def make_seq2seq(name, preset, options=None):
    torch.manual_seed(3)
    cls = MODELS.get(name, "target")
    config = dataclasses.replace(
        cls.PRESETS[preset](2, WIDTH), **{"dropout": 0.0, **(options or {})}
    )
    model = cls(WORDS, config).double().eval()
    for key, parameter in model.named_parameters():
        if "bias" in key:  # zeros at first, which would hide them
            nn.init.normal_(parameter)
    return model


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Models this small are slower on several threads than on one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=CASES, ids=lambda case: " ".join(map(str, case)))
def model(request):
    return make_seq2seq(*request.param)


def padded(rows, fill=0):
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def source_of(rows, fill=0):
    return Inputs(padded(rows, fill), padded([[1] * len(row) for row in rows]))


def sentences(seed, count, low=1, high=8):
    generator = np.random.default_rng(seed)
    return [generator.integers(3, WORDS, n).tolist() for n in generator.integers(low, high, count)]


# An independent implementation in NumPy: one sentence, one position after another.


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def cell_step(kind, x, state, w):
    """One step of a cell; gates as torch orders them."""
    if kind == "gru":
        (h,) = state
        r, z, n = np.split(w["ih"] @ x + w["b_ih"], 3)
        ru, zu, nu = np.split(w["hh"] @ h + w["b_hh"], 3)
        z = sigmoid(z + zu)
        return ((1 - z) * np.tanh(n + sigmoid(r + ru) * nu) + z * h,)
    h, c = state
    i, f, g, o = np.split(w["ih"] @ x + w["b_ih"] + w["hh"] @ h + w["b_hh"], 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def cell_weights(stack, layer):
    names = {"ih": "weight_ih", "hh": "weight_hh", "b_ih": "bias_ih", "b_hh": "bias_hh"}
    return {k: getattr(stack.cells, f"{n}_l{layer}").detach().numpy() for k, n in names.items()}


def read_by_hand(model, sentence):
    """The encoder's vectors and, for each layer of the decoder, the state it begins with."""
    kind, many = model.config.cell, 2 if model.config.cell == "lstm" else 1
    table = model.source_embedding.weight.detach().numpy()
    xs = [table[i] * (WIDTH**0.5 if model.config.tied else 1) for i in sentence]
    begins = []
    for i, layer in enumerate(model.encoder.layers):
        found = []
        for stack, order in ((layer.onward, xs), (layer.backward, xs[::-1])):
            state, seen = (np.zeros(WIDTH),) * many, []
            for x in order:
                state = cell_step(kind, x, state, cell_weights(stack, 0))
                seen.append(state[0])
            found.append(seen)
        bridge = model.encoder.bridges[i]
        end = np.concatenate((found[0][-1], found[1][-1]))
        begin = np.tanh(bridge.weight.detach().numpy() @ end + bridge.bias.detach().numpy())
        begins.append(tuple(np.split(begin, many)))
        both = [np.concatenate(pair) for pair in zip(found[0], found[1][::-1], strict=True)]
        if i < len(model.encoder.joins):
            join = model.encoder.joins[i]
            w, b = join.weight.detach().numpy(), join.bias.detach().numpy()
            xs = [w @ x + b for x in both]
    return xs, begins


def score_by_hand(model, q, k):
    name = model.config.score
    if name == "additive":
        w, u, v = (getattr(model.score, n)[0].detach().numpy() for n in ("query", "key", "value"))
        return float(np.tanh(q @ w + k @ u) @ v[:, 0])
    if name == "bilinear":
        return float(q @ model.score.weight[0].detach().numpy() @ k)
    return float(q @ k) / (WIDTH**0.5 if name == "scaled_dot" else 1)


def logits_by_hand(model, sentence, target):
    """(T, WORDS) logits and (T, S) attention."""
    keys, states = read_by_hand(model, sentence)
    embedding, head = (m.weight.detach().numpy() for m in (model.embedding, model.head))
    logits, maps = [], []
    for token in target:
        x = embedding[token] * (WIDTH**0.5 if model.config.tied else 1)
        for layer, before in enumerate(states):
            states[layer] = cell_step(
                model.config.cell, x, before, cell_weights(model.cells, layer)
            )
            x = states[layer][0]
        if model.attentive:
            e = np.exp([score_by_hand(model, x, key) for key in keys])
            maps.append(e / e.sum())
            context = sum(w * key for w, key in zip(maps[-1], keys, strict=True))
            x = np.tanh(model.combine.weight.detach().numpy() @ np.concatenate((context, x)))
        logits.append(head @ x)
    return np.array(logits), np.array(maps)


@torch.no_grad()
def test_it_is_what_loops_over_single_sentences_compute(model):
    sources, targets = sentences(1, 4), sentences(2, 4)
    tap = Tap(["*.cross.weights", "logits"])
    model.condition(source_of(sources)).logits(padded(targets), tap=tap)
    trained = model.head(model(padded(targets), None, source_of(sources)))
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        logits, maps = logits_by_hand(model, source, target)
        np.testing.assert_allclose(
            tap.activations["logits"][row, : len(target)], logits, atol=1e-10
        )
        np.testing.assert_allclose(trained[row, : len(target)], logits, atol=1e-10)
        if model.attentive:
            seen = tap.activations["decoder.cross.weights"][row, 0, : len(target)]  # (T, S)
            np.testing.assert_allclose(seen[:, : len(source)], maps, atol=1e-10)
            assert not seen[:, len(source) :].any()  # nothing is padding's
            np.testing.assert_allclose(seen.sum(-1), 1.0)


@torch.no_grad()
def test_what_stands_in_the_padding_does_not_matter(model):
    sources, ids = sentences(3, 3), padded(sentences(4, 3))
    first = model.condition(source_of(sources)).logits(ids)
    wider = source_of([*sources, [5] * 11], fill=7)
    other = model.condition(Inputs(wider.ids[:3], wider.segments[:3])).logits(ids)
    torch.testing.assert_close(first, other)


@torch.no_grad()
def test_steps_give_the_logits_of_the_whole_and_ragged_prompts_are_read_at_once(model):
    given = model.condition(source_of(sentences(5, 3)))
    ids, lengths = torch.randint(3, WORDS, (3, 7)), torch.tensor([3, 1, 4])
    whole = given.logits(ids)  # (B, T, WORDS)
    state = given.init_state(3, 7)
    for t in range(7):
        step = given.step(ids[:, t : t + 1], None, state)
        torch.testing.assert_close(step, whole[:, t])
    state = given.init_state(3, 7)
    torch.testing.assert_close(given.step(ids[:, :4], lengths, state), whole[range(3), lengths - 1])
    state.reset()
    torch.testing.assert_close(given.step(ids[:, :2], None, state), whole[:, 1])
    with pytest.raises(ValueError, match="capacity"):
        given.step(ids, None, state)


@torch.no_grad()
def test_scores_are_those_of_the_logits(model):
    given = model.condition(source_of(sentences(6, 3)))
    ids, targets = torch.randint(3, WORDS, (2, 3, 5))
    targets[1, 2:] = IGNORE
    logs = given.logits(ids).log_softmax(-1)
    expected = logs.gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    found = given.score(ids, targets)
    torch.testing.assert_close(
        found.double(), expected.masked_fill(targets == IGNORE, 0), atol=1e-5, rtol=1e-5
    )


@torch.no_grad()
def test_beams_share_the_memory_of_their_source(model):
    sources = sentences(7, 2)
    given = model.condition(source_of(sources))
    ids = torch.randint(3, WORDS, (6, 4))  # three beams each
    twice = model.condition(source_of([s for s in sources for _ in range(3)]))
    expected = twice.logits(ids)
    torch.testing.assert_close(given.logits(ids), expected)
    state, reference = given.init_state(2, 4), twice.init_state(6, 4)
    given.step(ids[::3, :1], None, state)
    twice.step(
        ids[:1, :1].expand(6, 1).where(torch.arange(6)[:, None] < 3, ids[3, 0]), None, reference
    )
    state.expand(3)
    parents = torch.tensor([2, 0, 0, 5, 3, 4])
    for both in (state, reference):
        both.select(parents)
    torch.testing.assert_close(
        given.step(ids[:, 1:2], None, state), twice.step(ids[:, 1:2], None, reference)
    )


@pytest.mark.parametrize("strategy", [Greedy(), Beam(width=3, n_best=3)], ids=["greedy", "beam"])
@torch.no_grad()
def test_a_sentence_is_translated_alone_as_among_others(model, strategy):
    sources = sentences(8, 5)
    options = {"max_new": 8, "end": 2, "banned": [0, 1], "batch_size": 64}
    together = generate(model.condition(source_of(sources)), [[1]] * 5, strategy, **options)
    for source, found in zip(sources, together, strict=True):
        alone = generate(model.condition(source_of([source])), [[1]], strategy, **options)[0]
        assert [one.ids for one in found] == [one.ids for one in alone]
        assert [one.score for one in found] == pytest.approx([one.score for one in alone])


@torch.no_grad()
def test_one_memory_reads_one_source_after_another(model):
    given, ids = model.condition(source_of([[5, 6, 7, 2], [4, 2]])), torch.randint(3, WORDS, (2, 5))
    state = given.init_state(2, 5)
    for rows in ([[9, 8, 2, 4], [3, 2, 2]], [[3, 2], [4, 5, 9, 2]]):
        source, tap = source_of(rows), Tap(["encoder.output"])
        given.set_source(source, tap=tap)
        expected = model.condition(source).logits(ids)
        torch.testing.assert_close(given.logits(ids), expected)
        state.reset()  # begins where the new sources end
        torch.testing.assert_close(given.step(ids, None, state), expected[:, -1])
        assert tap.activations["encoder.output"].shape[:2] == (2, 4)


def test_everything_is_learned_and_no_later_word_helps(model):
    source, ids = source_of([[3, 4, 5, 2], [7, 2]]), torch.tensor([[1, 4, 9], [1, 8, 9]])
    model.train()
    model(ids, None, source)[:, 1].square().sum().backward()
    used = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert {name for name, _ in model.named_parameters()} - used <= {"head.weight"}
    x = torch.nn.functional.one_hot(ids, WORDS).double().requires_grad_()
    model.zero_grad()
    out = model.attend(
        model.cells(x @ model.embedding.weight, model.encode(source).init_recurrence(2)),
        model.encode(source).memory,
    )
    out[:, 1].sum().backward()
    assert x.grad[:, :2].abs().sum() > 0 and not x.grad[:, 2:].any()


@pytest.mark.parametrize("name", ["rnn", "rnn-attention"])
@torch.no_grad()
def test_without_attention_only_the_ends_of_the_source_get_through(name, monkeypatch):
    model = make_seq2seq(name, next(iter(MODELS.get(name, "target").PRESETS)), {"n_layers": 1})
    source, ids = source_of([[3, 4, 5, 6, 2], [7, 8, 2]]), torch.tensor([[1, 4], [1, 8]])
    before = model.condition(source).logits(ids)
    layer, plain = model.encoder.layers[0], type(model.encoder.layers[0]).forward

    def disturbed(x, lengths):
        both, ends = plain(layer, x, lengths)
        return both + torch.randn_like(both), ends

    monkeypatch.setattr(layer, "forward", disturbed)
    same = torch.allclose(model.condition(source).logits(ids), before)
    assert same == (name == "rnn")

    def other_ends(x, lengths):
        both, ends = plain(layer, x, lengths)
        return both, ends + torch.randn_like(ends)

    monkeypatch.setattr(layer, "forward", other_ends)
    assert not torch.allclose(model.condition(source).logits(ids), before)


@torch.no_grad()
def test_it_comes_back_from_a_file(model, tmp_path):
    name = "rnn-attention" if model.attentive else "rnn"
    model = model.float()
    write_config(tmp_path, name, model)
    write_tensors(tmp_path / "model.safetensors", weights(model))
    again = Run(tmp_path).model()
    source, ids = source_of([[3, 4, 2], [5, 2]]), torch.tensor([[1, 4], [1, 8]])
    torch.testing.assert_close(
        again.condition(source).logits(ids), model.condition(source).logits(ids)
    )


def test_it_learns_to_turn_sequences_round():
    torch.manual_seed(0)
    model = MODELS.get("rnn-attention", "target")(
        12, AttentiveSeq2SeqConfig(n_layers=1, d_model=32, dropout=0.0)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    lengths = torch.randint(2, 6, (64,))
    rows = [torch.randint(3, 12, (int(n),)).tolist() for n in lengths]
    source = source_of([[*row, 2] for row in rows])
    ids, targets = (
        padded([[1, *row[::-1]] for row in rows]),
        padded([[*row[::-1], 2] for row in rows], IGNORE),
    )
    for _ in range(120):
        loss = nn.functional.cross_entropy(
            model.head(model(ids, None, source)).flatten(0, 1),
            targets.flatten(),
            ignore_index=IGNORE,
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2
    said = generate(model.eval().condition(source), [[1]] * 64, Greedy(), max_new=8, end=2)
    right = [one[0].ids == [*row[::-1], 2] for one, row in zip(said, rows, strict=True)]
    assert np.mean(right) > 0.9


@pytest.mark.parametrize(
    ("config", "options", "said"),
    [
        (RecurrentSeq2SeqConfig, {"cell": "elman"}, "cell must be one of gru, lstm"),
        (RecurrentSeq2SeqConfig, {"source_vocab": -1}, "source_vocab must be from 0"),
        (RecurrentSeq2SeqConfig, {"d_model": 0}, "d_model must be from 1"),
        (RecurrentSeq2SeqConfig, {"score": "dot"}, "model.score"),
        (AttentiveSeq2SeqConfig, {"score": "loud"}, "score must be one of scaled_dot, dot"),
    ],
)
def test_a_wrong_key_is_named(config, options, said):
    with pytest.raises(ValueError, match=said):
        check("model", config, options)


def test_packed_rows_are_refused():
    model = make_seq2seq("rnn", "cho")
    ids, source = torch.tensor([[1, 4]]), source_of([[3, 2]])
    for call in (lambda: model(ids, ids, source), lambda: model.condition(source).hidden(ids, ids)):
        with pytest.raises(ValueError, match="length buckets"):
            call()
