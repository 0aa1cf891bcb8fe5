"""Our decoder against stock Hugging Face classes: equal numbers from equal weights, both ways."""

import json

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from regard.api import load
from regard.decoding import Greedy
from regard.interop.hugging_face import export_hf, import_hf
from regard.models.decoder import Decoder, DecoderConfig
from regard.run import Run, weights, write_config
from regard.storage import read_tensors, write_json, write_tensors
from regard.tokenizers import BPE, Bytes, Characters, Words
from regard.tokenizers.text import ALPHABET

TEXTS = ["a cab", "bad dad", "ecb  <S> <E>x", "über 😀\n\tab", "", "<pad><unk> a"]
GPT2 = {
    "norm": "layer",
    "positions": "learned",
    "feedforward": "gelu",
    "bias": True,
    "qk_norm": False,
    "n_kv_heads": 3,
    "n_heads": 3,
    "d_head": 8,
    "norm_eps": 1e-4,
    "dropout": 0.25,
}
LLAMA = {"qk_norm": False, "rope_theta": 500.0, "norm_eps": 1e-5}
QWEN3 = {"qk_norm": True, "rope_theta": 700.0, "norm_eps": 1e-3}
MODELS = {
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gpt2-tied": ("GPT2LMHeadModel", {**GPT2, "tied": True}),
    "llama": ("LlamaForCausalLM", LLAMA),
    "llama-tied-biased": ("LlamaForCausalLM", {**LLAMA, "tied": True, "bias": True}),
    "qwen3": ("Qwen3ForCausalLM", QWEN3),
    "qwen3-tied": ("Qwen3ForCausalLM", {**QWEN3, "tied": True}),
}


def tokenizers():
    text = "a cab bad dad ecb <S> ab" * 3
    return {
        "characters": Characters.train([text]),
        "bytes": Bytes.train([text]),
        "words": Words.train([text]),
        "bpe": BPE.train([text], 270),
    }


def make_run(folder, options, tokenizer):
    """A run folder with a model whose every tensor, norms and biases too, is random."""
    torch.manual_seed(5)
    sizes = {"n_layers": 2, "d_model": 24, "n_heads": 6, "n_kv_heads": 2, "d_head": 10, "d_ff": 36}
    config = DecoderConfig(**{**sizes, "max_len": 40, **options})
    model = Decoder(tokenizer.vocab_size, config)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.3)
    folder.mkdir()
    write_config(folder, "transformer", model)
    write_tensors(folder / "model.safetensors", weights(model))
    tokenizer.save(folder / "tokenizer.json")
    return model.eval()


def load_theirs(transformers, name, folder):
    """A stock class with every weight found and none left over."""
    model, info = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.eval()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Runs and their exports by the names in MODELS."""
    root = tmp_path_factory.mktemp("exported")
    tokenizer = tokenizers()["characters"]
    for name, (_, options) in MODELS.items():
        make_run(root / name, options, tokenizer)
        export_hf(root / name, root / f"{name}.hf")
    return root


@pytest.mark.parametrize("name", MODELS)
def test_stock_classes_give_our_logits(name, exported, transformers):
    theirs = load_theirs(transformers, MODELS[name][0], exported / f"{name}.hf")
    ours = Run(exported / name).model()
    ids = torch.randint(ours.vocab_size, (3, 17), generator=torch.Generator().manual_seed(2))
    ids[0, :4] = torch.arange(4)  # the specials too: padding has no row of zeros
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, ours.logits(ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_export_then_import_is_the_identity(name, exported, tmp_path):
    report = import_hf(exported / f"{name}.hf", tmp_path / "back")
    assert report["class"] == MODELS[name][0]
    before = read_tensors(exported / name / "model.safetensors")
    after = read_tensors(tmp_path / "back" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert Run(tmp_path / "back").description[1:4] == Run(exported / name).description[1:4]
    for file in ("config.json", "tokenizer.json"):
        assert (tmp_path / "back" / file).read_bytes() == (exported / name / file).read_bytes()


def continued(model, ids, end):
    """Twenty greedy tokens after `ids`, never `end`, by our own cached steps."""
    state = model.init_state(1, 40)
    ids, made = torch.tensor([ids]), []
    for _ in range(20):
        with torch.no_grad():
            logits = model.step(ids, None, state)
        logits[:, end] = -torch.inf
        ids = logits.argmax(-1, keepdim=True)
        made.append(int(ids))
    return made


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3"])
def test_their_greedy_generation_gives_our_tokens(name, exported, transformers):
    folder = exported / f"{name}.hf"
    theirs = load_theirs(transformers, MODELS[name][0], folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ours, own = Run(exported / name).model(), tokenizers()["characters"]
    prompts = ["bad c", "a"]
    batch = tokenizer(prompts, return_tensors="pt", padding=True)  # ragged: the second is padded
    made = theirs.generate(**batch, max_new_tokens=20, do_sample=False, suppress_tokens=[own.end])
    for row, prompt in zip(made, prompts, strict=True):
        expected = continued(ours, [own.start, *own.encode(prompt).tolist()], own.end)
        assert len(set(expected)) > 1, "a constant answer would prove little"
        assert row[-20:].tolist() == expected


def test_their_generation_ends_where_a_record_ends(exported, transformers):
    folder = exported / "qwen3.hf"
    theirs = load_theirs(transformers, "Qwen3ForCausalLM", folder)
    with torch.no_grad():
        theirs.lm_head.weight.zero_()  # all tokens alike, so the first id, <pad>, but for ...
    prompt = transformers.AutoTokenizer.from_pretrained(folder)("ab", return_tensors="pt")
    options = {"max_new_tokens": 6, "do_sample": False}
    assert theirs.generate(**prompt, **options)[0, 3:].tolist() == [0] * 6
    assert theirs.generate(**prompt, **options, suppress_tokens=[0, 1])[0, 3:].tolist() == [2]


ROTARY = {
    "hidden_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 28,
    "max_position_embeddings": 50,
}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 900.0}}
BIASED = {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
FOREIGN = {
    "gpt2": ("GPT2", {"n_embd": 20, "n_layer": 3, "n_head": 4, "n_inner": 28, "n_positions": 50}),
    "gpt2-untied": (
        "GPT2",
        {"n_embd": 20, "n_layer": 1, "n_head": 5, "n_positions": 50, "tie_word_embeddings": False},
    ),
    "llama": ("Llama", ROTARY),
    "llama-tied-biased": ("Llama", {**ROTARY, **ROPE, **BIASED}),
    "qwen3": ("Qwen3", {**ROTARY, **ROPE, "rms_norm_eps": 1e-3}),
    "qwen3-tied": ("Qwen3", {**ROTARY, "tie_word_embeddings": True}),
}


def make_theirs(transformers, name):
    """A stock model of FOREIGN whose every tensor, norms and biases too, is random."""
    torch.manual_seed(3)
    family, options = FOREIGN[name]
    config = getattr(transformers, f"{family}Config")(
        **options, vocab_size=23, bos_token_id=1, eos_token_id=2, pad_token_id=0
    )
    head = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
    model = getattr(transformers, family + head)(config).eval()
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.3)
    return model


@pytest.mark.parametrize("shard", ["1GB", "4KB"])
@pytest.mark.parametrize("name", FOREIGN)
def test_imported_models_give_their_logits(name, shard, transformers, tmp_path):
    theirs = make_theirs(transformers, name)
    theirs.save_pretrained(tmp_path / "hf", max_shard_size=shard)
    assert (tmp_path / "hf" / "model.safetensors.index.json").exists() == (shard == "4KB")
    Characters.train(["abcdefgh"]).save(tmp_path / "hf" / "tokenizer.json")
    report = import_hf(tmp_path / "hf", tmp_path / "run")
    assert report["class"] == type(theirs).__name__
    assert report["parameters"] == theirs.num_parameters()
    ours = Run(tmp_path / "run").model()
    ids = torch.randint(23, (2, 19), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        torch.testing.assert_close(ours.logits(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)


MARKERS = {
    "qwen3": {"bos_token": None, "eos_token": "<|im_end|>"},
    "gpt2": {"bos_token": "<|end|>", "eos_token": "<|end|>"},
    "llama": {"bos_token": "<s>", "eos_token": "</s>"},
}


def byte_level(name):
    """A byte-level vocabulary that puts before a text what that of Qwen, GPT-2 or Llama 3 does."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = {"show_progress": False, "initial_alphabet": list(ALPHABET)}
    text = ["the cat sat on the mat, and the dog sat on the cat"] * 4
    library.train_from_iterator(text, trainers.BpeTrainer(vocab_size=280, **alphabet))
    library.add_special_tokens(sorted({token for token in MARKERS[name].values() if token}))
    if name == "llama":
        library.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", library.token_to_id("<s>"))]
        )
    return library


@pytest.mark.parametrize("name", MARKERS)
def test_an_imported_model_continues_a_prompt_as_they_do(name, transformers, tmp_path):
    library = byte_level(name)
    config = {**MARKERS[name], "tokenizer_class": "PreTrainedTokenizerFast"}
    family, options = FOREIGN[name]
    torch.manual_seed(3)
    end = library.token_to_id(config["eos_token"])
    made = getattr(transformers, f"{family}Config")(
        **options, vocab_size=library.get_vocab_size(), bos_token_id=None, eos_token_id=end
    )
    head = "LMHeadModel" if family == "GPT2" else "ForCausalLM"
    theirs = getattr(transformers, family + head)(made).eval()
    with torch.no_grad():
        for tensor in theirs.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.3)
    theirs.save_pretrained(tmp_path / "hf")
    (tmp_path / "hf" / "tokenizer.json").write_text(library.to_str(), encoding="utf-8")
    write_json(tmp_path / "hf" / "tokenizer_config.json", config)
    import_hf(tmp_path / "hf", tmp_path / "run")
    ours = load(tmp_path / "run")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    for prompt in ("the cat", "a", "dog and mat sat"):
        given = tokenizer(prompt, return_tensors="pt")
        ids = given["input_ids"]
        assert ours.prompt_ids(prompt) == ids[0].tolist()
        (found,) = ours.generate(prompt, Greedy(), max_new=15)
        expected = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=15, do_sample=False,
            pad_token_id=end,
        )  # fmt: skip
        assert found.ids == expected[0, ids.size(1) :].tolist()
    assert ours.prompt_ids("") == (ours.tokenizer.beginning or [ours.tokenizer.start])
    begun = ours.prompt_ids("a")
    assert len(begun) == (2 if name == "llama" else 1)
    write_json(tmp_path / "run" / "regard.json", {"data": {}})  # as after training on records
    trained = load(tmp_path / "run")
    assert trained.prompt_ids("a") == [trained.tokenizer.start, begun[-1]]


def test_half_precision_weights_are_read_exactly(transformers, tmp_path):
    theirs = make_theirs(transformers, "qwen3").to(torch.bfloat16)
    theirs.save_pretrained(tmp_path / "hf")
    Characters.train(["abc"]).save(tmp_path / "hf" / "tokenizer.json")
    import_hf(tmp_path / "hf", tmp_path / "run")
    ours = read_tensors(tmp_path / "run" / "model.safetensors")
    assert {tensor.dtype for tensor in ours.values()} == {torch.float32}
    assert torch.equal(ours["embedding.weight"], theirs.model.embed_tokens.weight.float())


@pytest.mark.parametrize("kind", ["characters", "bytes", "words", "bpe"])
@pytest.mark.parametrize("loader", ["AutoTokenizer", "PreTrainedTokenizerFast"])
def test_their_tokenizer_encodes_and_decodes_as_ours(kind, loader, transformers, tmp_path):
    ours = tokenizers()[kind]
    options = {"characters": GPT2, "bytes": LLAMA, "words": QWEN3, "bpe": QWEN3}[kind]
    make_run(tmp_path / "run", options, ours)
    export_hf(tmp_path / "run", tmp_path / "hf")
    theirs = getattr(transformers, loader).from_pretrained(tmp_path / "hf")
    assert len(theirs) == ours.vocab_size
    for text in TEXTS:
        ids = ours.encode(text).tolist()
        assert theirs.encode(text, add_special_tokens=False) == ids
        assert theirs.encode(text) == [ours.start, *ids]
        if ours.unk not in ids:
            marked = [ours.start, *ids, ours.end, ours.pad]
            assert theirs.decode(marked, skip_special_tokens=True) == text == ours.decode(marked)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (ours.start, ours.end)
    assert (theirs.pad_token_id, theirs.unk_token_id) == (ours.pad, ours.unk)
    assert theirs.model_max_length == 40


def test_a_tokenizer_saved_again_by_them_comes_back_as_ours(transformers, tmp_path):
    ours = tokenizers()["bpe"]
    make_run(tmp_path / "run", QWEN3, ours)
    export_hf(tmp_path / "run", tmp_path / "hf")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    theirs.save_pretrained(tmp_path / "hf")
    load_theirs(transformers, "Qwen3ForCausalLM", tmp_path / "hf").save_pretrained(tmp_path / "hf")
    import_hf(tmp_path / "hf", tmp_path / "back")
    before, after = (
        json.loads((tmp_path / f / "tokenizer.json").read_text()) for f in ("run", "back")
    )
    assert before == after


def test_a_foreign_tokenizer_goes_in_and_out_unchanged(transformers, tmp_path):
    make_run(tmp_path / "run", QWEN3, Words.train(["a b c"]))
    export_hf(tmp_path / "run", tmp_path / "hf")
    document = json.loads((tmp_path / "hf" / "tokenizer.json").read_text())
    document["normalizer"] = {"type": "Lowercase"}  # none of ours does this
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(document, indent=1))
    import_hf(tmp_path / "hf", tmp_path / "in")
    export_hf(tmp_path / "in", tmp_path / "out")
    kept = (tmp_path / "hf" / "tokenizer.json").read_bytes()
    assert (tmp_path / "in" / "tokenizer.json").read_bytes() == kept
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == kept
    theirs = [transformers.AutoTokenizer.from_pretrained(tmp_path / f) for f in ("hf", "out")]
    assert theirs[0].encode(" B a") == theirs[1].encode(" B a")


@pytest.mark.parametrize("name", MODELS)
def test_the_readme_tells_how_to_load(name, exported, transformers):
    folder = exported / f"{name}.hf"
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    known = {}
    exec(code.replace("PATH/TO/THIS/FOLDER", str(folder)), known)
    assert type(known["model"]).__name__ == MODELS[name][0]
    assert known["prompt"]["input_ids"].tolist() == [[1]]
    assert known["tokenizer"].bos_token not in known["text"]
