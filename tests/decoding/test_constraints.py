"""Forbidden transitions: the relation itself, its file, its data, and that decoding obeys it."""

from __future__ import annotations

import math
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch.nn import functional as F

from regard.decoding import Beam, ForbiddenTransitions, Greedy, Sample, constraints, generate
from regard.errors import UserError
from regard.tokenizers import Bytes, Characters

V, END = 6, 2
pair_sets = st.sets(st.tuples(st.integers(0, V - 1), st.integers(0, V - 1)), max_size=V * V)


@pytest.fixture(params=["dense", "sparse"])
def lookup(request, monkeypatch):
    """Both ways of looking successors up."""
    monkeypatch.setattr(constraints, "DENSE", V if request.param == "dense" else 0)
    return request.param


def table(relation: ForbiddenTransitions) -> np.ndarray:
    """What the relation forbids, one token at a time."""
    return relation.forbidden_after(torch.arange(relation.vocab_size)).numpy()


def flat(records) -> list[int]:
    return list(chain.from_iterable(records))


def table_of(pairs) -> np.ndarray:
    out = np.zeros((V, V), dtype=bool)
    for a, b in pairs:
        out[a, b] = True
    return out


@given(pairs=pair_sets)
@settings(max_examples=40, deadline=None)
def test_a_relation_forbids_exactly_its_pairs_however_it_is_stored(pairs):
    expected = table_of(pairs)
    allowed = np.flatnonzero(~expected.ravel())
    a, b = (grid.ravel() for grid in np.indices((V, V)))
    for dense in (V, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(constraints, "DENSE", dense)
            listed = ForbiddenTransitions.from_pairs(pairs, V)
            complement = ForbiddenTransitions._from_codes(allowed, V, complement=True)
            for relation in (listed, complement):
                assert (table(relation) == expected).all()
                assert (relation.forbids(a, b) == expected.ravel()).all()


@given(left=pair_sets, right=pair_sets, kinds=st.tuples(st.booleans(), st.booleans()))
@settings(max_examples=40, deadline=None)
def test_either_of_two_relations_forbids(left, right, kinds):
    def build(pairs, complement):
        codes = np.flatnonzero(table_of(pairs).ravel() ^ complement)
        return ForbiddenTransitions._from_codes(codes, V, complement=complement)

    joined = build(left, kinds[0]) | build(right, kinds[1])
    assert (table(joined) == table_of(left | right)).all()


def test_logits_get_minus_infinity_and_nothing_else_changes(lookup):
    relation = ForbiddenTransitions.from_pairs([(1, 3), (1, 5), (4, 0)], V)
    logits = torch.randn(4, V, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    out = relation(logits, torch.tensor([1, 2, 4, 1]))
    expected = before.clone()
    expected[0, [3, 5]] = expected[3, [3, 5]] = expected[2, 0] = -math.inf
    assert torch.equal(out, expected)
    assert torch.equal(logits, before)


def test_a_table_made_while_decoding_serves_training_and_a_dead_row_has_no_nan_gradient(lookup):
    """Tables made under inference mode cannot be saved for backward; 0 · NaN poisons weights."""
    relation = ForbiddenTransitions.from_pairs([(3, b) for b in range(V)] + [(1, 4)], V)
    with torch.inference_mode():
        relation(torch.zeros(1, V), torch.tensor([1]))
    logits = torch.zeros(2, V, requires_grad=True)
    loss = F.cross_entropy(
        relation(logits, torch.tensor([1, 3])), torch.tensor([0, -1]), ignore_index=-1
    )
    loss.backward()
    assert loss.item() == pytest.approx(math.log(V - 1))
    assert torch.isfinite(logits.grad).all() and logits.grad[0, 4] == 0


MODES = st.sampled_from(
    [
        Greedy(),
        Greedy(log_probs=False),
        Sample(seed=1),
        Sample(temperature=3.0, top_k=4, top_p=0.9, seed=2),
        Beam(width=1),
        Beam(width=4, n_best=4, length_penalty=0.5),
    ]
)


@given(
    pairs=pair_sets,
    strategy=MODES,
    seed=st.integers(0, 99),
    context=st.sampled_from([None, 3]),
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the fixture is a class: it has no state
def test_no_strategy_ever_makes_a_forbidden_transition(markov, pairs, strategy, seed, context):
    prompts = [[1], [1, 3, 5], [4, 4]]
    found = generate(
        markov(V, seed),
        prompts,
        strategy,
        max_new=6,
        end=END,
        banned=(0, 1),
        constraint=ForbiddenTransitions.from_pairs(pairs, V),
        context=context,
    )
    for prompt, sequences in zip(prompts, found, strict=True):
        assert sequences
        for one in sequences:
            tokens = [prompt[-1], *one.ids]
            assert not pairs & set(pairwise(tokens))
            assert not {0, 1} & set(one.ids)
            assert math.isfinite(one.score) and all(math.isfinite(p) for p in one.log_probs)
            stuck = all((tokens[-1], b) in pairs for b in range(2, V))
            assert one.dead_end == (stuck and not one.finished and len(one.ids) < 6)


def test_unseen_forbids_what_the_data_never_does(lookup):
    records = [[1, 3, 4, 2], [1, 4, 4, 2], [1, 5, 2]]
    stream = np.array(flat(records), dtype=np.uint8)
    occurring = {(a, b) for r in records for a, b in pairwise(r)}
    relation = ForbiddenTransitions.unseen([stream], V, start=1, end=2)
    expected = ~table_of(occurring)
    expected[2] = False  # nothing is asked after the end
    assert (table(relation) == expected).all()
    assert relation.complement


@pytest.mark.parametrize("size", [1, 2, 3])
def test_unseen_streams_records_that_go_on_in_the_next_piece(lookup, size, monkeypatch):
    stream = np.array([1, 3, 4, 2, 1, 4, 4, 5, 2, 1, 2], dtype=np.uint16)
    monkeypatch.setattr(constraints, "CHUNK", 4)
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    pieces.insert(2, stream[:0])
    expected = ForbiddenTransitions.unseen([stream], V, start=1, end=2)
    assert (
        table(ForbiddenTransitions.unseen(iter(pieces), V, start=1, end=2)) == table(expected)
    ).all()


def test_unseen_knows_a_vocabulary_whose_start_is_its_end():
    relation = ForbiddenTransitions.unseen([np.array([2, 3, 4, 2, 2, 5, 2])], V, start=2, end=2)
    assert np.flatnonzero(~table(relation)[2]).tolist() == [3, 5]


def test_violations_name_the_records_and_do_not_cross_their_borders(monkeypatch):
    relation = ForbiddenTransitions.from_pairs([(3, 4), (2, 1), (5, 5)], V)
    records = [[1, 3, 2], [1, 3, 4, 2], [], [1, 2], [5], [5], [1, 5, 5, 3, 4], [5, 5]]
    ids = np.array(flat(records), dtype=np.uint8)
    offsets = np.cumsum([0, *map(len, records)])
    for chunk in (1, 3, 1000):
        monkeypatch.setattr(constraints, "CHUNK", chunk)
        assert relation.violations(ids, offsets) == [1, 6, 7]
    assert relation.violations(ids[:0], [0]) == []


def test_what_was_seen_violates_nothing():
    noise = np.random.default_rng(0)
    records = [[1, *noise.integers(3, V, size=n).tolist(), 2] for n in (0, 3, 5, 2)]
    ids, offsets = np.array(flat(records)), np.cumsum([0, *map(len, records)])
    assert ForbiddenTransitions.unseen([ids], V, start=1, end=2).violations(ids, offsets) == []


@pytest.fixture
def tokenizer():
    return Characters.train(["ab #*\té"])


def write(tmp_path, text):
    path = tmp_path / "forbidden.txt"
    path.write_text(text, encoding="utf-8")
    return path


def named_pairs(relation, tokenizer):
    size = relation.vocab_size
    return {(tokenizer.text(a), tokenizer.text(b)) for a, b in np.argwhere(table(relation))}, size


def test_a_file_names_transitions_by_their_tokens(tmp_path, tokenizer):
    path = write(
        tmp_path,
        "# after a never b\na b\n\n<S>\t \r\nb <E>\na\té\n" + r"\# \*" + "\n<unk> a\n",
    )
    found, size = named_pairs(ForbiddenTransitions.from_file(path, tokenizer), tokenizer)
    assert size == tokenizer.vocab_size
    assert found == {
        ("a", "b"), ("<S>", " "), ("b", "<E>"), ("a", "é"), ("#", "*"), ("<unk>", "a")
    }  # fmt: skip


def test_a_star_stands_for_every_token(tmp_path, tokenizer):
    relation = ForbiddenTransitions.from_file(write(tmp_path, "* a\nb *\n"), tokenizer)
    a, b = int(tokenizer.encode("a")[0]), int(tokenizer.encode("b")[0])
    expected = np.zeros((tokenizer.vocab_size,) * 2, dtype=bool)
    expected[:, a] = expected[b] = True
    assert (table(relation) == expected).all()


def test_a_byte_that_is_no_character_is_named_as_it_is_displayed(tmp_path):
    tokenizer = Bytes.train([])
    relation = ForbiddenTransitions.from_file(write(tmp_path, r"\xc3 a" + "\n"), tokenizer)
    assert named_pairs(relation, tokenizer)[0] == {(r"\xc3", "a")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b\na\n", r"forbidden.txt:2: expected two tokens with a TAB or one space.*got 'a'"),
        ("a  b\n", r"forbidden.txt:1: expected two tokens .* got 'a  b'"),
        ("a b a\n", r"forbidden.txt:1: expected two tokens"),
        ("a\tb\ta\n", r"forbidden.txt:1: expected two tokens"),
        ("#\n\nab a\n", r"forbidden.txt:3: 'ab' is not one token of this vocabulary, but 'a' 'b'"),
        ("a z\n", r"forbidden.txt:1: 'z' is not one token of this vocabulary, but '<unk>'"),
        ("* *\n", r"forbidden.txt:1: '\* \*' would forbid every transition"),
    ],
)
def test_a_line_that_is_not_understood_is_named(tmp_path, tokenizer, text, message):
    with pytest.raises(UserError, match=message):
        ForbiddenTransitions.from_file(write(tmp_path, text), tokenizer)


def test_a_file_that_cannot_be_read_is_named(tmp_path, tokenizer):
    with pytest.raises(UserError, match=r"nowhere.txt: cannot read"):
        ForbiddenTransitions.from_file(tmp_path / "nowhere.txt", tokenizer)
    (tmp_path / "latin.txt").write_bytes(b"a \xe9\n")
    with pytest.raises(UserError, match=r"latin.txt: cannot read"):
        ForbiddenTransitions.from_file(tmp_path / "latin.txt", tokenizer)


@pytest.mark.parametrize("complement", [False, True])
@pytest.mark.parametrize("pairs", [[], [(1, 3), (5, 0), (1, 2)]])
def test_saved_and_loaded_is_the_same_relation(tmp_path, pairs, complement):
    codes = np.sort(np.array([a * V + b for a, b in pairs], dtype=np.int64))
    relation = ForbiddenTransitions._from_codes(codes, V, complement=complement)
    relation.save(tmp_path / "forbidden.safetensors")
    loaded = ForbiddenTransitions.load(tmp_path / "forbidden.safetensors")
    assert (table(loaded) == table(relation)).all()
    assert loaded.complement == complement


@pytest.mark.parametrize(
    ("start", "next", "lists"),
    [
        ([0, 1, 2], [1], "forbidden"),
        ([0, 2, 1], [1], "forbidden"),
        ([0, 1, 1], [2], "forbidden"),
        ([0, 1, 1], [-1], "forbidden"),
        ([0, 2, 2], [1, 1], "forbidden"),
        ([0, 2, 2], [1, 0], "forbidden"),
        ([0], [], "forbidden"),
        ([0, 0, 0], [], "nothing"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path, start, next, lists):
    path = tmp_path / "damaged.safetensors"
    tensors = {"start": torch.tensor(start), "next": torch.tensor(next, dtype=torch.int64)}
    save_file(tensors, path, {"lists": lists})
    with pytest.raises(UserError, match=r"damaged.safetensors: cannot read"):
        ForbiddenTransitions.load(path)


def test_a_file_that_is_no_safetensors_is_refused_by_name(tmp_path):
    (tmp_path / "text.safetensors").write_text("hello, this is text")
    with pytest.raises(UserError, match=r"text.safetensors: cannot read"):
        ForbiddenTransitions.load(tmp_path / "text.safetensors")
    with pytest.raises(UserError, match=r"none.safetensors: cannot read"):
        ForbiddenTransitions.load(tmp_path / "none.safetensors")


def test_a_pair_outside_the_vocabulary_is_named():
    with pytest.raises(ValueError, match=r"pairs holds \(2, 6\); ids go from 0 to 5"):
        ForbiddenTransitions.from_pairs([(1, 1), (2, 6)], V)
    with pytest.raises(ValueError, match="6 and 7 tokens do not combine"):
        ForbiddenTransitions.from_pairs([], 6) | ForbiddenTransitions.from_pairs([], 7)
