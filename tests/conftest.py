"""What tests of several folders share: a small translator of letters, and rows trained in place."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io

import pytest


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """What is imported stays: the garbage collector need not walk it all again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def translator(letters):
    """A small translator of letters; so small that a second thread is only waited for."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield letters
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def letters():
    """A random translator that looks hard at its source and is sure of what it says."""
    import torch

    from regard.models.encoder_decoder import EncoderDecoder, modern
    from regard.pipelines.translator import Translator as Interpreter
    from regard.registry import TOKENIZERS

    tokenizer = TOKENIZERS["characters"].train(["abcdefghij klmnop."])
    torch.manual_seed(1)
    config = dataclasses.replace(modern(2, 32), n_heads=2, n_kv_heads=2, d_head=8, dropout=0.0)
    config = dataclasses.replace(config, tied=False, max_len=16)
    model = EncoderDecoder(tokenizer.vocab_size, config).eval()
    with torch.no_grad():
        model.head.weight *= 5
        for block in model.decoder.blocks:
            block.cross.q.weight *= 8
            block.cross.out.weight *= 12
    return Interpreter(model, tokenizer)


@pytest.fixture(scope="module")
def rows_here():
    """Rows of a comparison train in this process: a fresh one takes longer to start than they."""
    import regard.cli
    from regard.training import comparison_runs
    from regard.training.launcher import Launcher

    def run_here(self, command, path, check):
        check()
        module, *arguments = command
        run = regard.cli.run if module == "regard" else comparison_runs.main
        with contextlib.ExitStack() as stack:
            log = stack.enter_context(open(path, "a"))
            stack.enter_context(contextlib.redirect_stderr(log))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            return run(arguments), 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Launcher, "start", lambda self: None)
        patch.setattr(Launcher, "run", run_here)
        yield


@pytest.fixture(scope="session")
def contrastive_run(tmp_path_factory):
    """A small run that matches coloured squares and their captions; each caption has four images,
    and all of them are in one split.
    """
    import numpy as np
    import torch

    from regard.api import train_recipe
    from regard.planning import plan_recipe

    folder, random = tmp_path_factory.mktemp("contrastive"), np.random.default_rng(0)
    colours = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 40, 230), "black": 0}
    images, captions = [], []
    for i in range(256):
        name, side = list(colours)[i % 4], 3 + i // 4 % 4
        row, column = i // 16 % 2, i // 32 % 2
        image = random.integers(235, 256, (12, 12, 3), dtype=np.uint8)
        y, x = (half * (12 - side) for half in (row, column))
        image[y : y + side, x : x + side] = colours[name]
        images.append(image)
        place = f"{['top', 'bottom'][row]} {['left', 'right'][column]}"
        captions.append(f"a {name} square of {side} {place}")
    np.savez(folder / "squares.npz", images=np.stack(images), captions=np.array(captions))
    keys = ["model.n_layers=1", "model.n_encoder_layers=1", "model.d_model=32", "train.steps=80"]
    keys += ["train.batch_tokens=800", "data.target=captions", "task.name=contrastive"]
    keys += ["output.tokenizer=words", "data.test_fraction=0.3", "input.patch=4"]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    recipe, _ = plan_recipe([folder / "squares.npz"], assignments=[*keys, "model.name=transformer"])
    train_recipe(recipe, folder / "run")
    torch.set_num_threads(threads)
    return folder / "run"


@pytest.fixture(scope="session")
def masked_proteins(tmp_path_factory):
    """A run that has seen proteins of four pairs of residues: K always follows M."""
    import random

    from regard.api import train_recipe
    from regard.planning import plan_recipe

    folder, draw = tmp_path_factory.mktemp("proteins"), random.Random(0)
    sequences = ["".join(draw.choices(["MK", "DE", "FG", "LI"], k=12)) for _ in range(200)]
    text = "".join(f">p{i}\n{s}\n" for i, s in enumerate(sequences))
    (folder / "proteins.fasta").write_text(text)
    keys = ["task.name=masked", "train.steps=150", "model.n_layers=1", "model.d_model=32"]
    keys += ["model.dropout=0", "task.mask=0.3", "train.batch_tokens=800"]
    recipe, _ = plan_recipe([folder / "proteins.fasta"], assignments=keys)
    train_recipe(recipe, folder / "run")
    return folder / "run"
