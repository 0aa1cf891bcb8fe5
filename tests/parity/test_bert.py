"""Our encoder against Hugging Face's BERT, both ways: equal numbers from equal weights, and equal
answers to the same texts.
"""

import dataclasses
import warnings

import pytest
import torch

from regard.api import load
from regard.interop.hugging_face import export_hf, import_hf
from regard.layers.embeddings import Inputs
from regard.models import encoder
from regard.models import encoder as masked
from regard.models.encoder import EncoderModel, MaskedLM
from regard.run import Run, weights, write_config
from regard.storage import read_tensors, write_json, write_tensors
from regard.tokenizers import Characters, Words

SIZES = {"n_heads": 3, "n_kv_heads": 3, "d_head": 10, "d_ff": 44, "max_len": 40}
TEXTS = ["the cat sat", "a mat", "the dog the dog sat on a mat", "dog", "cat zebra mat"]
ASKED = {
    "label": (("kind",), (("fine", "poor", "so-so"),)),
    "labels": (("red", "green"), (("0", "1"), ("0", "1"))),
    "value": (("weight", "size"), ()),
    "position-label": (("tags",), (("N", "V"),)),
}
CLASSES = {
    "masked": "BertForMaskedLM",
    "label": "BertForSequenceClassification",
    "labels": "BertForSequenceClassification",
    "value": "BertForSequenceClassification",
    "position-label": "BertForTokenClassification",
}


def make_run(folder, task, tokenizer):
    """A run folder with a model whose every tensor, norms and units too, is random."""
    torch.manual_seed(5)
    names, classes = ASKED.get(task, ((), ()))
    if task == "masked":
        config = dataclasses.replace(masked.bert_masked(2, 30), **SIZES)
        model = MaskedLM(tokenizer.vocab_size, config)
    else:
        outputs = len(names) if task in ("labels", "value") else len(classes[0])
        config = dataclasses.replace(encoder.bert(2, 30), task=task, n_outputs=outputs, **SIZES)
        model = EncoderModel(tokenizer.vocab_size, config)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.2)
        if task == "value":
            model.shift.copy_(torch.tensor([70.0, -2.0]))
            model.scale.copy_(torch.tensor([8.0, 0.5]))
    folder.mkdir()
    write_config(folder, "transformer", model)
    write_tensors(folder / "model.safetensors", weights(model))
    tokenizer.save(folder / "tokenizer.json")
    told = {"task": task, "names": list(names), "classes": [list(c) for c in classes]}
    write_json(folder / "regard.json", {"data": {"targets": told}})
    return model.eval()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Runs and their exports by task."""
    root = tmp_path_factory.mktemp("bert")
    for task, name in CLASSES.items():
        make_run(root / task, task, Words.train(["the cat sat on a mat dog"]))
        report = export_hf(root / task, root / f"{task}.hf")
        assert report["class"] == name and not report["warnings"]
    return root


def theirs(transformers, folder, name):
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.eval()


def rows(size, pairs=True):
    """Ragged rows of random ids, some with a second text, and what both sides are told of them."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(4, size, (6, 20), generator=draw)
    segments = torch.ones(6, 20, dtype=torch.int64)
    segments[2, 9:] = segments[4, 15:] = 0
    ids[segments == 0], types = 0, torch.zeros_like(ids)
    if pairs:
        ids[:2, 7], types[:2, 8:] = 2, 1
    return Inputs(ids, segments), {
        "input_ids": ids,
        "attention_mask": segments,
        "token_type_ids": types,
    }


@pytest.mark.parametrize("task", CLASSES)
def test_exported_models_give_the_same_numbers(transformers, exported, task):
    ours = Run(exported / task).model()
    other = theirs(transformers, exported / f"{task}.hf", CLASSES[task])
    source, asked = rows(ours.vocab_size)
    with torch.no_grad():
        found, expected = ours.predict(source), other(**asked).logits
    there = source.segments > 0
    if found.dim() == 3:
        found, expected = found[there], expected[there]
    assert found.std() > 0.1  # a model that says the same of everything proves nothing
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("task", CLASSES)
def test_what_is_exported_comes_back(exported, tmp_path, task):
    report = import_hf(exported / f"{task}.hf", tmp_path / "back")
    assert report["class"] == CLASSES[task]
    before, after = Run(exported / task).model(), Run(tmp_path / "back").model()
    source, _ = rows(before.vocab_size)
    with torch.no_grad():
        torch.testing.assert_close(after.predict(source), before.predict(source))
    assert after.task == task
    one, two = load(exported / task), load(tmp_path / "back")
    assert one.tokenizer.raw == two.tokenizer.raw
    assert one.targets.task == two.targets.task
    if task == "label":  # only the name of the column is not theirs to keep
        assert one.targets.classes == two.targets.classes
    elif task != "position-label":
        assert one.targets == two.targets


@pytest.mark.parametrize("task", ["label", "labels", "value"])
def test_a_pipeline_says_what_classify_says(transformers, exported, task):
    predictor = load(exported / task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ask = transformers.pipeline(
            "text-classification", model=str(exported / f"{task}.hf"), device="cpu"
        )
        said = ask(TEXTS, top_k=None, batch_size=3)
    for answer, scores in zip(predictor.predictions(TEXTS), said, strict=True):
        assert {one["label"]: one["score"] for one in scores} == pytest.approx(
            answer.scores, abs=1e-5, rel=1e-5
        )


def test_a_pipeline_reads_pairs_of_texts_alike(transformers, exported):
    ask = transformers.AutoTokenizer.from_pretrained(exported / "label.hf")
    model = theirs(transformers, exported / "label.hf", CLASSES["label"])
    predictor = load(exported / "label")
    one, two = TEXTS[:3], TEXTS[2:]
    with torch.no_grad():
        found = model(**ask(one, two, padding=True, return_tensors="pt")).logits.softmax(-1)
    for row, answer in zip(found.tolist(), predictor.predictions(one, two), strict=True):
        assert row == pytest.approx(list(answer.scores.values()), abs=1e-5)


def test_a_pipeline_fills_in_what_the_model_does(transformers, exported):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ask = transformers.pipeline("fill-mask", model=str(exported / "masked.hf"), device="cpu")
        said = ask(f"the {ask.tokenizer.mask_token} sat", top_k=3)
    run = load(exported / "masked")
    t = run.tokenizer
    ids = torch.tensor([[t.start, *t.encode("the"), t.mask, *t.encode("sat"), t.end]])
    with torch.no_grad():
        likely = run.model.predict(Inputs(ids, torch.ones_like(ids)))[0, 2].softmax(-1)
    best = likely.topk(3)
    assert [one["token"] for one in said] == best.indices.tolist()
    assert [one["score"] for one in said] == pytest.approx(best.values.tolist(), abs=1e-5)


@pytest.mark.parametrize("name", sorted(set(CLASSES.values())))
@pytest.mark.parametrize("older", [False, True])
def test_their_folders_are_read(transformers, tmp_path, name, older):
    """Random weights of theirs, also as the first uploads spell and fill their files."""
    torch.manual_seed(2)
    tokenizer = Characters.train(["abcdefgh"])
    config = transformers.BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=36,
        max_position_embeddings=33,
        num_labels=5,
    )
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.2)
    model.save_pretrained(tmp_path / "hf")
    make_run(tmp_path / "lender", "label", tokenizer)
    export_hf(tmp_path / "lender", tmp_path / "lent")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "hf" / file).write_bytes((tmp_path / "lent" / file).read_bytes())
    if older:
        path = tmp_path / "hf" / "model.safetensors"
        found = read_tensors(path)
        found = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ): tensor
            for name, tensor in found.items()
        }
        found["bert.embeddings.position_ids"] = torch.arange(33.0)[None]
        if name == "BertForMaskedLM":
            found["cls.predictions.decoder.bias"] = found["cls.predictions.bias"].clone()
            found["cls.seq_relationship.weight"] = torch.zeros(2, 24)
        write_tensors(path, found, {"format": "pt"})
    import_hf(tmp_path / "hf", tmp_path / "run")
    ours = Run(tmp_path / "run").model()
    source, asked = rows(tokenizer.vocab_size)
    with torch.no_grad():
        found, expected = ours.predict(source), model(**asked).logits
    there = source.segments > 0
    if found.dim() == 3:
        found, expected = found[there], expected[there]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
