"""Our encoder–decoder against Marian, Pegasus and CTranslate2: equal numbers from equal weights."""

import dataclasses
import json

import pytest
import torch

from regard import tokenizers
from regard.decoding import Greedy
from regard.decoding.engine import translate
from regard.errors import UserError
from regard.interop.hugging_face import export_hf, import_hf
from regard.layers.embeddings import Inputs
from regard.models.encoder_decoder import EncoderDecoder, modern, vaswani
from regard.run import Run, weights, write_config
from regard.storage import read_tensors, write_tensors
from regard.tokenizers import BPE, Characters, Words

CLASSES = {
    "vaswani": ("MarianMTModel", vaswani, {"n_encoder_layers": 3, "dropout": 0.0}),
    "modern": ("PegasusForConditionalGeneration", modern, {"n_encoder_layers": 1, "dropout": 0.0}),
    "unscaled": ("PegasusForConditionalGeneration", modern, {"scale_embedding": False}),
}
PAD, START, END = range(3)


def make_run(folder, name, tokenizer):
    """A run folder with a model whose every tensor, norms and biases too, is random."""
    torch.manual_seed(3)  # a seed whose answers differ from source to source
    _, preset, options = CLASSES[name]
    sizes = {"n_heads": 3, "n_kv_heads": 3, "d_head": 10, "d_ff": 44, "max_len": 60}
    config = dataclasses.replace(preset(2, 30), **sizes, **options)
    model = EncoderDecoder(tokenizer.vocab_size, config)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn_like(tensor) * 0.2)
    folder.mkdir()
    write_config(folder, "transformer", model)
    write_tensors(folder / "model.safetensors", weights(model))
    tokenizer.save(folder / "tokenizer.json")
    return model.eval()


def letters():
    return Characters.train(["abcdefghijklmnopqrstuvwxyz "])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Runs and their exports by the names in CLASSES."""
    root = tmp_path_factory.mktemp("exported")
    for name in CLASSES:
        make_run(root / name, name, letters())
        assert export_hf(root / name, root / f"{name}.hf")["class"] == CLASSES[name][0]
    return root


def load_theirs(transformers, folder):
    """What the folder says it is, with every weight found and none left over."""
    model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model.eval()


def sentences(count, low, high, size=31, seed=3):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(low, high, (count,), generator=generator).tolist()
    return [torch.randint(4, size, (n,), generator=generator).tolist() for n in lengths]


def padded(rows, fill):
    width = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])


def assert_same_logits(ours, theirs, size):
    """For ragged sources and targets, in every row but beyond their ends."""
    sources = [[*row, END] for row in sentences(5, 1, 17, size)]
    targets = [[START, *row] for row in sentences(5, 1, 12, size, seed=4)]
    seen = padded([[1] * len(row) for row in sources], 0)
    with torch.no_grad():
        mine = ours.head(ours(padded(targets, PAD), None, Inputs(padded(sources, PAD), seen)))
        yours = theirs(
            input_ids=padded(sources, START),
            attention_mask=seen,
            decoder_input_ids=padded(targets, START),
        ).logits
    for row, target in enumerate(targets):
        length = len(target)
        torch.testing.assert_close(yours[row, :length], mine[row, :length], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CLASSES)
def test_stock_classes_give_our_logits(name, exported, transformers):
    theirs = load_theirs(transformers, exported / f"{name}.hf")
    assert type(theirs).__name__ == CLASSES[name][0]
    assert_same_logits(Run(exported / name).model(), theirs, 31)


@pytest.mark.parametrize("name", CLASSES)
def test_export_then_import_is_the_identity(name, exported, tmp_path):
    assert import_hf(exported / f"{name}.hf", tmp_path / "back")["class"] == CLASSES[name][0]
    before = read_tensors(exported / name / "model.safetensors")
    after = read_tensors(tmp_path / "back" / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert Run(tmp_path / "back").description == Run(exported / name).description
    for file in ("config.json", "tokenizer.json"):
        assert (tmp_path / "back" / file).read_bytes() == (exported / name / file).read_bytes()


def texts(count, low=2, high=12):
    return [letters().decode(row) for row in sentences(count, low, high)]


def translated(model, lines, max_new):
    """Our own greedy translations, as lists of ids without the end."""
    own = letters()
    found = translate(
        model,
        [[*own.encode(line).tolist(), own.end] for line in lines],
        Greedy(),
        start=own.start,
        end=own.end,
        banned=own.never_produced(model.vocab_size),
        max_new=max_new,
    )
    return [[i for i in several[0].ids if i != own.end] for several in found]


@pytest.mark.parametrize("name", ["vaswani", "modern"])
def test_their_greedy_generation_gives_our_translations(name, exported, transformers):
    folder = exported / f"{name}.hf"
    theirs = load_theirs(transformers, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lines = texts(50)
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    assert batch["input_ids"][0, -1] in (START, END)  # a source ends with <E>, <S> pads it
    made = theirs.generate(**batch, max_length=21, num_beams=1)
    mine = translated(Run(exported / name).model(), lines, 20)
    assert len({tuple(row) for row in mine}) > 8, "equal answers would prove little"
    for row, expected in zip(made.tolist(), mine, strict=True):
        assert row[0] == START
        assert [i for i in row if i not in (START, END)] == expected
        text = tokenizer.decode(row, skip_special_tokens=True)
        assert text == letters().decode(expected)


@pytest.mark.parametrize("kind", [Characters, Words, BPE])
def test_their_tokenizer_ends_a_source_as_ours_does(kind, transformers, tmp_path):
    own = kind.train(["a cab bad dad ecb <S> ab" * 3], 270)
    make_run(tmp_path / "run", "modern", own)
    export_hf(tmp_path / "run", tmp_path / "hf")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    for text in ("a cab", "", "<S> ab", "ecb  <E>"):
        assert theirs.encode(text) == [*own.encode(text).tolist(), own.end]
    assert theirs.padding_side == "right" and theirs.pad_token_id == own.start
    stored = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert stored["decoder_start_token_id"] == stored["pad_token_id"] == own.start
    assert stored["eos_token_id"] == own.end and stored["forced_eos_token_id"] is None


@pytest.mark.parametrize("name", ["vaswani", "modern"])
def test_the_readme_tells_how_to_load(name, exported, transformers):
    folder = exported / f"{name}.hf"
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    known = {}
    exec(code.replace("PATH/TO/THIS/FOLDER", str(folder)), known)
    assert type(known["model"]).__name__ == CLASSES[name][0]
    assert "num_beams" in code and known["prompt"]["input_ids"][0, -1] == END
    assert "<" not in known["text"]


def make_theirs(transformers, family, **options):
    """A stock model whose every tensor, norms and biases too, is random."""
    torch.manual_seed(3)
    sizes = {"d_model": 20, "encoder_layers": 1, "decoder_layers": 2, "vocab_size": 23}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {"decoder_start_token_id": START, "pad_token_id": START, "eos_token_id": END}
    widths = {"encoder_ffn_dim": 28, "decoder_ffn_dim": 28, "max_position_embeddings": 50}
    config = getattr(transformers, f"{family}Config")(
        **{**sizes, **heads, **ids, **widths, "activation_function": "relu", **options}
    )
    head = "MTModel" if family == "Marian" else "ForConditionalGeneration"
    model = getattr(transformers, family + head)(config).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "embed_positions" not in name:
                tensor.add_(torch.randn_like(tensor) * 0.3)
    return model


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("family", ["Marian", "Pegasus"])
def test_imported_models_give_their_logits(family, scale, transformers, tmp_path):
    theirs = make_theirs(transformers, family, scale_embedding=scale)
    theirs.save_pretrained(tmp_path / "hf")
    Characters.train(["abcdefgh"]).save(tmp_path / "hf" / "tokenizer.json")
    report = import_hf(tmp_path / "hf", tmp_path / "run")
    assert report["class"] == type(theirs).__name__
    assert Run(tmp_path / "run").description[0] == "target"
    ours = Run(tmp_path / "run").model()
    assert report["parameters"] == sum(tensor.numel() for tensor in weights(ours).values())
    assert_same_logits(ours, theirs, 23)


@pytest.mark.parametrize("family", ["Marian", "Pegasus"])
def test_a_bias_of_their_logits_is_refused(family, transformers, tmp_path):
    theirs = make_theirs(transformers, family)
    Characters.train(["abcdefgh"]).save(tmp_path / "tokenizer.json")
    theirs.final_logits_bias[0, 5] = 0.5
    theirs.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="final_logits_bias must be zeros"):
        import_hf(tmp_path, tmp_path / "run")


def test_a_foreign_tokenizer_learns_what_starts_a_target(transformers, tmp_path):
    theirs = make_theirs(transformers, "Marian", decoder_start_token_id=PAD, pad_token_id=PAD)
    theirs.save_pretrained(tmp_path / "hf")
    document = Words.train(["a b c"]).document() | {"normalizer": {"type": "Lowercase"}}
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(document))
    marks = {"eos_token": "<E>", "pad_token": "<pad>", "unk_token": "<unk>"}
    (tmp_path / "hf" / "tokenizer_config.json").write_text(json.dumps(marks))
    import_hf(tmp_path / "hf", tmp_path / "run")
    tokenizer = tokenizers.load(tmp_path / "run" / "tokenizer.json")
    assert (tokenizer.start, tokenizer.end, tokenizer.pad) == (PAD, END, PAD)
    assert tokenizer.encode("B a").tolist() == tokenizer.encode("b A").tolist()
    export_hf(tmp_path / "run", tmp_path / "again")
    stored = json.loads((tmp_path / "again" / "config.json").read_text())
    assert stored["decoder_start_token_id"] == PAD and stored["eos_token_id"] == END


def test_ctranslate2_gives_our_translations(exported, transformers, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    folder, name = exported / "modern.hf", "modern"
    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(tmp_path / "ct2"))
    engine = ctranslate2.Translator(str(tmp_path / "ct2"), device="cpu", compute_type="float32")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    lines, own = texts(50), letters()
    model = Run(exported / name).model()
    found = engine.translate_batch(
        [tokenizer.convert_ids_to_tokens(tokenizer.encode(line)) for line in lines],
        beam_size=1,
        max_decoding_length=20,
        min_decoding_length=0,  # its default, 1, forbids the empty answer
        suppress_sequences=[[own.names[i]] for i in own.never_produced(own.vocab_size)],
    )
    mine = translated(model, lines, 20)
    assert len({tuple(row) for row in mine}) > 8, "equal answers would prove little"
    for one, expected in zip(found, mine, strict=True):
        assert tokenizer.convert_tokens_to_ids(one.hypotheses[0]) == expected
