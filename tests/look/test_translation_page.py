"""The page about a translator: its numbers against those of the models."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from regard import api
from regard.decoding import Beam
from regard.errors import UsageError, UserError
from regard.evaluation.translation import HeadAlignment
from regard.look import internals, translation_page
from regard.look.attribution import maps_over
from regard.look.figures import DRAWINGS, save
from regard.look.language_page import BeamResult, SourceTarget, search, trace_targets
from regard.look.page import (
    AttentionMaps,
    BeamTree,
    Facts,
    Heatmap,
    ImageMaps,
    MaskMap,
    Reading,
    Ribbons,
    Sequences,
    Table,
)
from regard.look.translation_page import caption_page, covered_bits, cross_attention
from regard.models.encoder_decoder import Captioner, modern_captioner
from regard.models.ibm_model1 import IBM1Config, IBM1Translator
from regard.models.recurrent import AttentiveSeq2Seq, RecurrentSeq2Seq
from regard.pipelines.translator import Translator
from regard.planning import plan_recipe
from regard.registry import TOKENIZERS
from regard.run import METADATA, WEIGHTS, weights, write_config
from regard.storage import read_json, write_json, write_tensors
from regard.tasks import seq2seq
from regard.tokenizers import Patches, Words

SOURCE, TARGET = "fab dc", "bca"
WORDS = [("the red house", "das rote haus"), ("the house", "das haus"), ("the tree", "der baum"),
         ("a red tree", "ein roter baum"), ("a house", "ein haus")]  # fmt: skip


def ids_of(translator, text):
    return translator.tokenizer.encode(text).tolist()


def view(translator, source=SOURCE, target=TARGET, **options):
    pair = SourceTarget(ids_of(translator, source), target and ids_of(translator, target))
    return translation_page.translation_page(
        translator, pair, title="a view", **{"beams": 3} | options
    )


def of(page, kind):
    return [c for c in page.components if type(c) is kind]


def worded(family):
    """A translator of words that is not a Transformer."""
    torch.manual_seed(0)
    tokenizer = Words.train([text for pair in WORDS for text in pair])
    maker = Translator(None, tokenizer)
    if family is IBM1Translator:
        model = IBM1Translator(tokenizer.vocab_size, IBM1Config(max_len=9))
        model.fit(maker.pairs(*zip(*WORDS, strict=True)), None, print)
    else:
        preset = next(iter(family.PRESETS.values()))
        model = family(tokenizer.vocab_size, dataclasses.replace(preset(1, 12), max_len=9))
    return Translator(model.eval(), tokenizer)


def softmax_of_products(model, source, said):
    """(L, H, T, S) softmax(Q Kᵀ / √d) of the model's own products, spied on as they are made."""
    seen, hooks = {}, []
    for i, block in enumerate(model.decoder.blocks):
        for name in ("q", "kv"):
            part = getattr(block.cross, name)
            key = (i, name)
            hooks.append(part.register_forward_hook(lambda m, _, y, key=key: seen.update({key: y})))
    row = torch.tensor([source])
    with torch.no_grad():
        model(torch.tensor([said]), None, api_source(row))
    for hook in hooks:
        hook.remove()
    found = []
    for i, block in enumerate(model.decoder.blocks):
        heads, width = block.cross.n_heads, model.config.d_model // block.cross.n_heads
        q = seen[i, "q"][0].view(len(said), heads, width)
        k = seen[i, "kv"][0, :, : heads * width].view(len(source), heads, width)
        scores = torch.einsum("thk,shk->hts", q, k) / math.sqrt(width)
        found.append(torch.exp(scores) / torch.exp(scores).sum(-1, keepdim=True))
    return torch.stack(found).numpy()


def api_source(row):
    from regard.layers.embeddings import Inputs as Source

    return Source(row, torch.ones_like(row))


def test_the_weights_are_the_softmax_of_the_models_own_products(translator):
    tokenizer = translator.tokenizer
    page = view(translator)
    cross, own, source = of(page, AttentionMaps)
    said = [tokenizer.start, *ids_of(translator, TARGET)]
    read = [*ids_of(translator, SOURCE), tokenizer.end]
    expected = softmax_of_products(translator.model, read, said)
    assert cross.array() == pytest.approx(expected, abs=1e-5)
    assert list(cross.tokens) == [*TARGET, "<E>"]  # what the rows say, not what they read
    assert cross.keys() == [*SOURCE, "<E>"]
    assert list(own.tokens) == own.keys() == ["<S>", *TARGET]
    assert np.triu(own.array(), k=1).max() == 0 and not of(page, MaskMap)
    assert list(source.tokens) == source.keys() == [*SOURCE, "<E>"]
    assert np.triu(source.array(), k=1).max() > 0.01  # the encoder looks ahead
    for shown in (cross, own, source):
        assert shown.array().sum(-1) == pytest.approx(np.ones(shown.array().shape[:3]), abs=1e-5)
        scores = np.exp(np.asarray(shown.scores))
        assert scores / scores.sum(-1, keepdims=True) == pytest.approx(shown.array(), abs=1e-5)


def test_the_alignment_is_that_of_the_chosen_head_with_its_greatest_word_outlined(translator):
    alignment = HeadAlignment([[0.1, 0.2], [0.75, 0.3]], 400)
    page = view(translator, alignment=alignment)
    matrix, heads, *_ = of(page, Heatmap)
    (cross, *_) = of(page, AttentionMaps)
    assert cross.chosen == (1, 0)
    assert matrix.array() == pytest.approx(cross.array()[1, 0], abs=1e-6)
    words = matrix.array()[:-1, : len(SOURCE)]  # neither row nor column of <E>
    assert list(matrix.marks) == list(enumerate(words.argmax(1).tolist()))
    assert heads.array().tolist() == alignment.per_head and heads.marks == [(1, 0)]
    html = page.render()
    assert "layer 2, head 1 agrees most with IBM model 1" in html and "75% of 400 links" in html


def test_without_a_chosen_head_the_last_layer_is_averaged_and_says_so(translator):
    page = view(translator)
    (matrix, *_), (cross, *_) = of(page, Heatmap), of(page, AttentionMaps)
    assert matrix.array() == pytest.approx(cross.array()[-1].mean(0), abs=1e-6)
    assert "no data to tell which head aligns" in page.render()


def test_bits_translations_and_tree_are_the_interpreters(translator):
    page = view(translator, target=None)
    several = translator.translate([SOURCE], Beam(width=3, length_penalty=1.0, n_best=3))[0]
    (listed,) = of(page, Sequences)
    assert [text for text, _ in listed.samples] == [
        one.text + ("" if one.finished else " …") for one in several
    ]
    bits = [one.score / math.log(2) for one in several]
    assert [score for _, score in listed.samples] == pytest.approx(bits)
    (tree,) = of(page, BeamTree)
    nodes = {node["id"]: node for node in tree.nodes}
    assert [nodes[i]["token"] for i in tree.best_path()] == ["<S>", *several[0].tokens]
    (bits,) = of(page, Reading)
    (scored,) = translator.score([(SOURCE, several[0].text)])
    count = len(several[0].tokens)
    assert list(bits.tokens) == several[0].tokens
    expected = [-x / math.log(2) for x in scored.log_probs[:count]]
    assert bits.bits == pytest.approx(expected, abs=1e-4)
    (table,) = of(page, Table)
    assert [row[:2] for row in table.rows] == [
        ["source", SOURCE],
        ["its translation", several[0].text],
    ]


def test_a_target_given_is_looked_at_and_a_reference_stands_beside(translator):
    page = view(translator)
    (table,), (bits,) = of(page, Table), of(page, Reading)
    (scored,) = translator.score([(SOURCE, TARGET)])
    assert table.rows[1][:2] == ["the translation given", TARGET]
    expected = [-x / math.log(2) for x in scored.log_probs]
    assert table.rows[1][2] == pytest.approx(np.mean(expected), abs=1e-5)
    assert bits.bits == pytest.approx(expected, abs=1e-4)
    ids = ids_of(translator, TARGET)
    pair = SourceTarget(ids_of(translator, SOURCE), reference=ids)
    page = translation_page.translation_page(translator, pair, title="a view", beams=2)
    assert of(page, Table)[0].rows[2][:2] == ["the reference", TARGET]
    assert list(of(page, Reading)[1].tokens) == [*TARGET, "<E>"]


def test_a_long_pair_is_cut_and_few_rows_are_drawn(translator, monkeypatch):
    most = translator.model.config.max_len
    page = view(translator, "ab" * most, "cd" * most)
    (bits,) = of(page, Reading)
    assert len(bits.tokens) == most - 1  # <S> and they fill it; there is no <E>
    monkeypatch.setattr(internals, "MOST_WEIGHTS", 4 * 5 * most)
    cross, own, source = of(view(translator, "ab" * most, "cd" * most), AttentionMaps)
    assert cross.array().shape == (2, 2, 5, most) and "first 5 of 15 rows" in cross.title
    assert own.array().shape == (2, 2, 8, 8) and source.array().shape == (2, 2, 5, most)


def test_a_recurrence_with_attention_has_one_matrix(translator):
    maker = worded(AttentiveSeq2Seq)
    page = view(maker, "the red tree", "ein baum", alignment=HeadAlignment([[0.25]], 8))
    assert "on 25% of links as IBM model 1" in page.render()
    matrix, *states = of(page, Heatmap)
    assert list(matrix.rows) == [" ein", " baum", "<E>"]
    assert matrix.array().sum(1) == pytest.approx(np.ones(3), abs=1e-5)
    assert not of(page, AttentionMaps)
    assert states[0].array().shape == (12, 3)  # what the decoder carries


def test_the_bottleneck_has_nothing_to_align(translator):
    page = view(worded(RecurrentSeq2Seq), "the red tree", "ein baum")
    assert not of(page, AttentionMaps) and of(page, Heatmap)
    assert "Alignment" not in page.render().split("<main>")[0]


def test_a_table_of_words_aligns_by_bayes():
    maker = worded(IBM1Translator)
    page = view(maker, "the red tree", "der baum")
    (matrix,) = of(page, Heatmap)
    model, (source, target) = (
        maker.model,
        (ids_of(maker, "the red tree"), ids_of(maker, "der baum")),
    )
    lexicon, null = model.lexicon, model.vocab_size
    for t, word in enumerate(target):
        joint = []
        for j, other in enumerate([null, *source]):
            distance = 1 if j == 0 else abs(min(t, len(source) - 1) - (j - 1))
            p = float(lexicon.probability(torch.tensor(other), torch.tensor(word)))
            joint.append(model.config.decay**distance * p)
        expected = np.array([*joint, 0.0]) / sum(joint)  # <E> is no word
        assert matrix.array()[t] == pytest.approx(expected, abs=1e-9)
    assert matrix.columns[0] == "NULL" and len(matrix.marks) == 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of a tiny translator that says words backwards, and hardly that."""
    place = tmp_path_factory.mktemp("pairs")
    words = [a + b + c + d for a in "abc" for b in "de" for c in "fgh" for d in "abcde"]
    (place / "there.en").write_text("\n".join(words) + "\n")
    (place / "there.de").write_text("\n".join(word[::-1] for word in words) + "\n")
    small = ["model.n_layers=1", "model.d_model=64", "train.steps=2", "train.batch_tokens=256"]
    recipe, _ = plan_recipe([place / "there.en", place / "there.de"], assignments=small)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seq2seq, "MAX_TRANSLATED", 4)
        yield api.train_recipe(recipe, place / "run").run
    torch.set_num_threads(threads)


def said_of_heads(stored):
    """What a page says of the heads: their agreement counts where it beats the diagonal."""
    if stored["agreement"] > stored["diagonal"]:
        return f"layer 1, head {stored['head'] + 1} agrees most"
    return f"linking words of the same position alone on {stored['diagonal']:.0%}"


def test_no_head_is_called_aligned_that_the_diagonal_beats(translator):
    alignment = HeadAlignment([[0.1, 0.2], [0.15, 0.05]], 400, diagonal=0.3)
    page = view(translator, alignment=alignment)
    matrix, *others = of(page, Heatmap)
    (cross, *_), (ribbons,) = of(page, AttentionMaps), of(page, Ribbons)
    assert matrix.array() == pytest.approx(cross.array()[-1].mean(0), abs=1e-6)
    assert cross.chosen == (0, 0) and not any("IBM" in other.title for other in others)
    assert list(ribbons.source) == [*SOURCE] and list(ribbons.target) == [*TARGET]
    linked = matrix.array()[: len(TARGET), : len(SOURCE)]
    assert np.asarray(ribbons.weights) == pytest.approx(linked)
    html = page.render()
    assert "agrees with IBM model 1 on 20% of links" in html
    assert "linking words of the same position alone on 30%" in html


def test_training_leaves_the_head_in_the_facts_and_the_page_takes_it(look, trained, tmp_path):
    stored = read_json(trained / METADATA)["alignment"]
    assert np.shape(stored["per_head"]) == (1, 2) and stored["links"] > 0
    page = tmp_path / "look.html"
    result = look(trained, "--out", page, "--beams", 2)
    assert result.exit_code == 0, result.output
    assert result.stdout.split() == [str(page)]
    assert result.stderr == "no text given: reading the first pair of the test split of the run\n"
    opened = api.load(trained)
    _, shard = opened.held_out()
    tokenizer = opened.tokenizer
    html = page.read_text()
    assert f"How run translates “{tokenizer.decode(shard.source.record(0)[1:-1])}”" in html
    assert "the reference" in html and "chrF, test" in html and "encoder layers" in html
    assert said_of_heads(stored) in html


def test_an_older_run_is_judged_when_it_is_looked_at(look, trained, tmp_path, monkeypatch):
    stored = read_json(trained / METADATA)
    page = tmp_path / "look.html"
    try:
        write_json(trained / METADATA, {k: v for k, v in stored.items() if k != "alignment"})
        result = look(trained, "adfa", "--target", "afda", "--out", page)
        assert result.exit_code == 0, result.output
        assert "measuring it now" in result.stderr
        assert said_of_heads(stored["alignment"]) in page.read_text()
        for wrong in ({"per_head": [[0.5]] * 3, "links": 1}, "damaged"):
            write_json(trained / METADATA, stored | {"alignment": wrong})
            result = look(trained, "adfa", "--out", page)
            assert isinstance(result.exception, UserError)
            assert "regard.json is damaged" in str(result.exception)
    finally:
        write_json(trained / METADATA, stored)


def test_a_run_without_data_is_looked_at_and_mistakes_are_told(look, translator, tmp_path):
    folder, page = tmp_path / "letters", tmp_path / "look.html"
    folder.mkdir()
    write_config(folder, "transformer", translator.model)
    write_tensors(folder / WEIGHTS, weights(translator.model))
    translator.tokenizer.save(folder / translator.tokenizer.file)
    result = look(folder, "abc é", "--target", "cb", "--out", page)
    assert result.exit_code == 0, result.output
    assert result.stderr == "1 symbols are not in the vocabulary and are read as <unk>\n"
    assert "no data to tell which head aligns" in page.read_text()
    result = look(folder, "--out", page)
    assert isinstance(result.exception, UserError) and "no text given, and" in str(result.exception)
    result = look(folder, "--target", "cb", "--out", page)
    assert isinstance(result.exception, UsageError)
    assert "--target needs the text" in str(result.exception)


def test_a_page_is_plain_json_and_leaves_the_model_as_it_was(translator):
    model = translator.model.train()
    try:
        page = view(translator, target=None, facts=[("model", "transformer")])
        assert model.training and len(of(page, Facts)) == 2
        assert {type(c) for c in page.components} - {Facts, Table, Sequences} <= set(DRAWINGS)
    finally:
        model.eval()
    again = view(translator, target=None)
    assert of(page, Reading)[0].bits == of(again, Reading)[0].bits
    for part in page.render().split('<script type="application/json">')[1:]:
        json.loads(part.split("</script>")[0], parse_constant=lambda name: pytest.fail(name))


def test_a_search_that_finds_nothing_still_makes_a_page(translator, monkeypatch):
    nothing = BeamResult([], [], 3)
    monkeypatch.setattr(translation_page, "search", lambda *_: nothing)
    page = view(translator, target=None)
    assert "The search found nothing" in page.render()
    assert list(of(page, Reading)) == []  # no token was said


IMAGE = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def captioner():
    words, patches = TOKENIZERS["words"].train(["a b c d e"]), Patches.train([IMAGE], patch=4)
    torch.manual_seed(0)
    shape = {
        "source_vocab": patches.vocab_size,
        "max_len": 8,
        "dropout": 0.0,
        **patches.model_config,
    }
    shape |= {"n_heads": 2, "n_kv_heads": 2, "d_head": 16}
    model = Captioner(
        words.vocab_size, dataclasses.replace(modern_captioner(2, 32), **shape)
    ).eval()
    with torch.no_grad():
        for block in model.decoder.blocks:
            block.cross.out.weight *= 6
        # a patch of the mean colour is nothing but the bias: a norm of zeros would be anywhere
        torch.nn.init.normal_(model.encoder.embedding.project.bias)
    return Translator(model, words, patches)


def trace_caption(captioner, text):
    tokens = captioner.source_tokenizer.encode_batch([IMAGE])[0]
    pair = SourceTarget(tokens, captioner.tokenizer.encode(text).tolist())
    (trace,) = trace_targets(captioner, pair, search(captioner, tokens, 2)).values()
    return pair, trace


def test_covering_a_patch_is_painting_it_over_and_scoring_again(captioner):
    tokenizer = captioner.source_tokenizer
    pair, trace = trace_caption(captioner, "b a c")
    bits = covered_bits(trace, maps_over(tokenizer, pair.source))
    assert bits.shape == (4, 6)  # three words and <E>, 2 × 3 patches
    painted = IMAGE.copy()
    painted[4:8, 8:12] = np.round(255 * np.array(tokenizer.mean))  # row 2, column 3
    one, two = captioner.score([(IMAGE, "b a c"), (painted, "b a c")])
    expected = (np.array(one.log_probs) - np.array(two.log_probs)) / math.log(2)
    assert np.abs(bits[:, 5].numpy() - expected).max() < 0.02  # of half a byte's rounding
    assert np.abs(expected).max() > 0.05


def test_the_page_has_a_map_for_every_word(captioner, tmp_path):
    pair, trace = trace_caption(captioner, "b a c")
    weights = cross_attention(trace)
    assert weights.shape == (2, 2, 4, 7) and (weights.sum(-1) - 1).abs().max() < 1e-5
    page = caption_page(captioner, pair, title="t", facts=[("model", "x")], beams=2)
    second, first, heads, *_ = [c for c in page.components if isinstance(c, ImageMaps)]
    assert list(first.names) == ["b", "a", "c", "<E>"] == list(second.over)
    assert np.allclose(first.array()[:, 0], weights.mean((0, 1))[:, 1:], atol=1e-6)
    assert heads.array().shape == (2 * 2 * 4, 1, 6)
    assert heads.names[5] == "a: layer 1, head 2"
    assert save(first, tmp_path / "page.png").stat().st_size > 5_000
