"""The base encoder–decoder of 2017 on one GPU: training and beam search, beside Hugging Face.

512 wide, 6 + 6 layers, FFN 2048, 8 heads, one vocabulary of 37,000 for both sides. `--parts`
chooses what is measured:

    train     784 pairs of 32 + 32 tokens a step, dropout 0.1, label smoothing 0.1, Adam, with data
              loading; a pair-token is one token of a source and one of its target
    profile   the kernels of such a step by kind
    peer      MarianMTModel, compiled, on the same work
    decode    beam 4, 64 sources of 32 tokens, 32 new tokens, bf16; tokens of the best translations
              a second, ours and MarianMTModel's `generate` on the same weights

    python benchmarks/gpu_translate.py [--parts train,decode] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from regard.data.corpus import prepare
from regard.decoding import Beam
from regard.decoding.engine import TranslationSession, translate
from regard.interop.hugging_face import export_hf
from regard.models.encoder_decoder import EncoderDecoder, vaswani
from regard.planning import plan_recipe
from regard.run import weights, write_config
from regard.storage import write_tensors
from regard.tokenizers import Characters
from regard.training.progress import Reporter
from regard.training.step import settings
from regard.training.trainer import Trainer

V, PAIRS, LENGTH, WARM, TIMED = 37_000, 784, 32, 8, 40
BEAMS, BATCH, NEW, RUNS = 4, 64, 32, 9
BASE = [
    "input.tokenizer=words",
    f"input.vocab_size={V}",
    "output.tokenizer=words",
    f"output.vocab_size={V}",
    "data.valid_fraction=0",
    "data.test_fraction=0",
    "model.preset=vaswani",
    "model.n_layers=6",
    "model.d_model=512",
    "model.max_len=64",
    "model.dropout=0.1",
    "train.label_smoothing=0.1",
    "train.optimizer=adamw",
    "train.lr=5e-4",
    f"train.batch_tokens={PAIRS * LENGTH}",
    "train.micro_tokens=65536",
    "train.steps=1000000",
    "train.device=cuda",
]


def write_pairs(folder: Path, pairs: int) -> list[Path]:
    """Two files of random words; every word of the vocabulary occurs."""
    draw, words = random.Random(0), [f"w{i}" for i in range(V - 4)]
    paths = [folder / "source.txt", folder / "target.txt"]
    for path in paths:
        chosen = words + draw.choices(words, k=pairs * (LENGTH - 1) - len(words))
        rows = (chosen[i : i + LENGTH - 1] for i in range(0, len(chosen), LENGTH - 1))
        path.write_text("\n".join(" ".join(row) for row in rows) + "\n", encoding="utf-8")
    return paths


def train(folder: Path, profiled: bool) -> dict[str, Any]:
    """Pair-tokens a second over TIMED steps."""
    files = write_pairs(folder, 32 * PAIRS)
    recipe, _ = plan_recipe(files, assignments=BASE)
    corpus = prepare(recipe, folder, print)
    assert corpus.tokenizer.vocab_size == V
    with settings(recipe.train, torch.device("cuda")):
        torch.manual_seed(0)
        model = EncoderDecoder(V, recipe.model.config)
        trainer = Trainer(model, corpus, recipe, folder, Reporter(quiet=True))
        trainer.model.train()
        for step in range(WARM):
            trainer.take_step(step)
        torch.cuda.synchronize()
        start, tokens = time.perf_counter(), 0
        for step in range(WARM, WARM + TIMED):
            tokens += trainer.take_step(step)[1]
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        found = {
            "pair_tokens_per_second": round(tokens / seconds),
            "ms_per_step": round(1000 * seconds / TIMED, 2),
            "padding": round(trainer.loader.padding, 4),
            "rows": trainer.loader._rows,
            "compile_seconds": round(trainer.stepper.compile_seconds, 1),
            "reserved_gb": round(torch.cuda.max_memory_reserved() / 2**30, 1),
        }
        if profiled:
            found["us_by_kernel"] = profile(trainer)
    return found


def profile(trainer: Trainer) -> dict[str, float]:
    """Microseconds of a step by kernel, the largest."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    with recorded(activities=[ProfilerActivity.CUDA]) as found:
        for step in range(100, 103):
            trainer.take_step(step)
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda e: -e.self_device_time_total)
    busy = {"all": round(sum(e.self_device_time_total for e in events) / 3)}
    return busy | {e.key[:70]: round(e.self_device_time_total / 3) for e in events[:40]}


def marian() -> Any:
    """The peer's model of the same shape."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=V,
            d_model=512,
            encoder_layers=6,
            decoder_layers=6,
            encoder_ffn_dim=2048,
            decoder_ffn_dim=2048,
            encoder_attention_heads=8,
            decoder_attention_heads=8,
            activation_function="relu",
            scale_embedding=True,
            dropout=0.1,
            max_position_embeddings=64,
            pad_token_id=0,
            decoder_start_token_id=1,
            eos_token_id=2,
        )
    )


def peer() -> dict[str, Any]:
    """The peer on the same work."""
    model = marian().cuda().train()
    model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    compiled = torch.compile(model)
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    def step() -> None:
        source, ids, targets = torch.randint(4, V, (3, PAIRS, LENGTH), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            logits = compiled(input_ids=source, decoder_input_ids=ids).logits
            loss = loss_of(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(TIMED):
        step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {"pair_tokens_per_second": round(PAIRS * LENGTH * TIMED / seconds)}


def exported(model: EncoderDecoder, folder: Path) -> Any:
    """The same weights as a Hugging Face model."""
    from transformers import AutoModelForSeq2SeqLM

    run = folder / "run"
    run.mkdir()
    write_config(run, "transformer", model)
    write_tensors(run / "model.safetensors", weights(model))
    Characters([chr(0x10000 + i) for i in range(V - 4)]).save(run / "tokenizer.json")
    export_hf(run, folder / "hf")
    return AutoModelForSeq2SeqLM.from_pretrained(folder / "hf").eval()


def decode(folder: Path) -> dict[str, Any]:
    """Tokens a second of the best translations; the end is banned so that all have NEW tokens."""
    torch.manual_seed(0)
    model = EncoderDecoder(V, vaswani(6, 512))
    theirs = exported(model, folder).cuda().bfloat16()
    model = model.cuda().bfloat16().eval()
    session = TranslationSession(model)
    sources = torch.randint(4, V, (BATCH, LENGTH))
    sources[:, -1] = 2

    def ours() -> list[list[int]]:
        found = translate(
            model,
            sources.tolist(),
            Beam(width=BEAMS, length_penalty=1.0),
            start=1,
            end=2,
            banned=[2],
            max_new=NEW,
            batch_size=BATCH * BEAMS,
            session=session,
        )
        return [several[0].ids for several in found]

    def peers() -> list[list[int]]:
        with torch.inference_mode():
            out = theirs.generate(
                sources.cuda(),
                attention_mask=torch.ones_like(sources).cuda(),
                num_beams=BEAMS,
                max_new_tokens=NEW,
                min_new_tokens=NEW,
                suppress_tokens=[2],
                do_sample=False,
            )
        return [row[1:] for row in out.tolist()]

    mine, our_ids = rate(ours, RUNS)
    other, their_ids = rate(peers, 3)
    same = sum(a == b for a, b in zip(our_ids, their_ids, strict=True))
    return {
        "tokens_per_second": round(mine),
        "peer_tokens_per_second": round(other),
        "times": round(mine / other, 1),
        "same_translations": f"{same} of {BATCH} (random weights in bf16: near ties abound)",
    }


def rate(work: Callable[[], list[list[int]]], runs: int) -> tuple[float, list[list[int]]]:
    """Return tokens per second, the median of the runs, and the generated ids."""
    ids, times = work(), []
    work()
    for _ in range(runs):
        torch.cuda.synchronize()
        start = time.perf_counter()
        ids = work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    assert all(len(row) == NEW for row in ids)
    return BATCH * NEW / sorted(times)[runs // 2], ids


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default="train,profile,peer,decode")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device")
    parts = args.parts.split(",")
    results: dict[str, Any] = {"device": torch.cuda.get_device_name()}
    for part in parts:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            if part == "train":
                results[part] = train(folder, "profile" in parts)
            elif part == "peer":
                results[part] = peer()
            elif part == "decode":
                results[part] = decode(folder)
            else:
                continue
        print(f"{part:8} {json.dumps(results[part])}", flush=True)
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
