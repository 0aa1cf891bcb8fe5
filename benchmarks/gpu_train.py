"""Training GPT-2 124M on one GPU: tokens a second with data loading, beside Hugging Face; where the
time of a step goes; and whether bf16 learns as fp32 does.

The shape is nanoGPT's benchmark: 12 × 768, context 1024, vocabulary 50,304, AdamW, clipping at 1,
64 × 1024 tokens a step, on real text (WikiText-2, our own BPE). The peer is GPT2LMHeadModel,
compiled, bf16 autocast, fused AdamW, the same batch. `--parts` chooses what is measured:

    speed     tokens a second of our trainer, compile time apart
    nobias    the same without biases in linear layers and norms, as nanoGPT's own benchmark has it
    muon      the same with Muon instead of AdamW
    peer      Hugging Face's
    profile   the kernels of a step by kind, against the measured ceilings of the device
    loss      mean loss of the last 50 of 300 steps of 8 × 1024 tokens: bf16 compiled, fp32 eager

    python benchmarks/gpu_train.py [--data DIR] [--parts speed,peer] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from regard.data.corpus import Corpus, prepare
from regard.models.decoder import Decoder
from regard.planning import plan_recipe
from regard.training.progress import Reporter
from regard.training.step import settings
from regard.training.trainer import Trainer

V, CONTEXT, ROWS, WARM, TIMED = 50304, 1024, 64, 6, 30
BASE = [
    "output.tokenizer=bpe",
    f"output.vocab_size={V}",
    "data.format=text",
    "data.valid_fraction=0.01",
    "data.test_fraction=0",
    "model.preset=gpt2",
    "model.n_layers=12",
    "model.d_model=768",
    f"model.max_len={CONTEXT}",
    "model.dropout=0",
    "train.optimizer=adamw",
    "train.lr=6e-4",
    "train.beta2=0.95",
    "train.micro_tokens=65536",
    "train.device=cuda",
]
KINDS = {
    "matrix products": r"nvjet|gemm|cutlass|splitKreduce",
    "attention": r"sdpa|flash|fmha|cudnn",
    "loss": r"_cross_entropy",
    "optimizer and clipping": r"multi_tensor_apply|FusedAdam|lpnorm",
    "copies between host and device": r"Memcpy",
    "norms, activations, residuals, biases": r"triton|elementwise|reduce|Memset|embedding|indexing",
}


def trainer_of(corpus: Corpus, text: Path, folder: Path, *assignments: str) -> Trainer:
    """A trainer on the corpus, compiled as its recipe says; the text needs fewer than V tokens."""
    recipe, _ = plan_recipe([text], assignments=[*BASE, *assignments])
    torch.manual_seed(0)
    model = Decoder(V, recipe.model.config)
    trainer = Trainer(model, corpus, recipe, folder, Reporter(quiet=True))
    trainer.model.train()
    return trainer


def throughput(trainer: Trainer) -> dict[str, Any]:
    """Tokens a second over TIMED steps, data loading included."""
    for step in range(WARM):
        trainer.take_step(step)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    recompiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    start = time.perf_counter()
    for step in range(WARM, WARM + TIMED):
        trainer.take_step(step)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    rate = ROWS * CONTEXT * TIMED / seconds
    size = sum(p.numel() for p in trainer.model.parameters())
    per_token = 6 * size + 12 * 12 * 768 * CONTEXT  # nanoGPT's count
    return {
        "tokens_per_second": round(rate),
        "ms_per_step": round(1000 * seconds / TIMED, 2),
        "tflops": round(rate * per_token / 1e12),
        "compile_seconds": round(trainer.stepper.compile_seconds, 1),
        "recompilations": torch._dynamo.utils.counters["stats"]["unique_graphs"] - recompiled,
        "reserved_gb": round(torch.cuda.max_memory_reserved() / 2**30, 1),
    }


def peer() -> dict[str, Any]:
    """Hugging Face's GPT-2 on the same work."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.set_float32_matmul_precision("high")
    config = GPT2Config(
        vocab_size=V, n_positions=CONTEXT, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
    )
    model = GPT2LMHeadModel(config).cuda().train()
    model.config.use_cache = False
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    compiled = torch.compile(model)

    def step() -> None:
        ids = torch.randint(0, V, (ROWS, CONTEXT), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    begun = time.perf_counter()
    step()
    torch.cuda.synchronize()
    compile_seconds = time.perf_counter() - begun
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(TIMED):
        step()
    torch.cuda.synchronize()
    rate = ROWS * CONTEXT * TIMED / (time.perf_counter() - start)
    return {"tokens_per_second": round(rate), "compile_seconds": round(compile_seconds, 1)}


def ceilings() -> dict[str, float]:
    """What this device does at best: bf16 matrix products and copies."""
    a, b = torch.randn(2, 8192, 8192, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(1 << 29, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def best(work: Callable[[], object]) -> float:
        times = []
        for _ in range(10):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1000)
        return sorted(times)[5]

    product, copy = best(lambda: a @ b), best(lambda: y.copy_(x))
    return {
        "matrix_tflops": round(2 * 8192**3 / product / 1e12),
        "copy_tb_per_second": round(2 * x.nbytes / copy / 1e12, 2),
    }


def profile(trainer: Trainer) -> dict[str, Any]:
    """Milliseconds of a step by kind of kernel."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as recorded

    with recorded(activities=[ProfilerActivity.CUDA]) as found:
        for step in range(100, 103):
            trainer.take_step(step)
        torch.cuda.synchronize()
    kinds: dict[str, float] = defaultdict(float)
    for event in found.key_averages():
        name = next((k for k, pattern in KINDS.items() if re.search(pattern, event.key)), "other")
        kinds[name] += event.self_device_time_total / 3000
    products = 6 * 85e6 + 6 * V * 768  # operations a token: blocks and head
    ceiling = ceilings()
    floor = products * ROWS * CONTEXT / ceiling["matrix_tflops"] / 1e9
    return {
        "ms_by_kind": {k: round(v, 2) for k, v in sorted(kinds.items(), key=lambda x: -x[1])},
        "ms_of_products_at_the_ceiling": round(floor, 2),
        **ceiling,
    }


def losses(trainer: Trainer, steps: int = 300) -> float:
    """Mean loss per token of the last 50 steps."""
    found = [trainer.take_step(step)[0] / (8 * CONTEXT) for step in range(steps)]
    return sum(found[-50:]) / 50


def compared(corpus: Corpus, text: Path, folder: Path) -> dict[str, Any]:
    """The same 300 steps in bf16, compiled and captured, and in fp32, neither."""
    small = ["train.batch_tokens=8192", "train.steps=300"]
    found = {}
    for name, chosen in {
        "bf16": ["train.precision=bf16", "train.compile=on"],
        "fp32": ["train.precision=fp32", "train.compile=off"],
    }.items():
        recipe, _ = plan_recipe([text], assignments=[*BASE, *small, *chosen])
        with settings(recipe.train, torch.device("cuda")):
            trainer = trainer_of(corpus, text, folder, *small, *chosen)
            if name == "fp32":
                plain(trainer)
            found[name] = round(losses(trainer), 4)
        del trainer
    return {"last_50_of_300": found, "difference": round(found["bf16"] - found["fp32"], 4)}


def plain(trainer: Trainer) -> None:
    """Neither graphs nor anything else between the model and its gradient."""
    stepper = trainer.stepper
    stepper.captures = False
    stepper.begin, stepper.accumulate = stepper._begin, stepper._accumulate
    stepper.norm, stepper.update = stepper._norm, stepper._update


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--parts", default="speed,nobias,muon,peer,profile,loss")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device")
    parts, results = args.parts.split(","), {"device": torch.cuda.get_device_name()}
    text = (args.data / "wikitext2" / "train.txt.gz").resolve()
    work = [f"train.batch_tokens={ROWS * CONTEXT}", "train.steps=1000000", "train.compile=on"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        recipe, _ = plan_recipe([text], assignments=BASE)
        corpus = prepare(recipe, folder, print)
        jobs: dict[str, Callable[[], dict[str, Any]]] = {"peer": peer}
        jobs["loss"] = lambda: compared(corpus, text, folder)
        for part in parts:
            torch._dynamo.reset()
            torch.cuda.empty_cache()
            if part in jobs:
                results[part] = jobs[part]()
            else:
                more = {"nobias": ["model.bias=false"], "muon": ["train.optimizer=muon"]}
                more["muon"] += ["train.lr=0.02"]
                with settings(recipe.train, torch.device("cuda")):
                    trainer = trainer_of(corpus, text, folder, *work, *more.get(part, []))
                    results[part] = throughput(trainer)
                    if part == "speed" and "profile" in parts:
                        results["profile"] = profile(trainer)
                        parts.remove("profile")
                    del trainer
            print(f"{part:8} {json.dumps(results[part])}", flush=True)
            if part == "speed" and "profile" in results:
                print(f"{'profile':8} {json.dumps(results['profile'])}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
