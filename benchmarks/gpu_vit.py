"""Training ViT-B/16 on one GPU: images per second from batches on the device, against timm.

12 × 768, 224 × 224 RGB pixels, 197 tokens, 1,000 classes, AdamW, clipping at 1, bf16; 256 images
per step, on the device as bytes. Ours is the trainer's own step: scaling of patches, loss,
gradient, update. The peer is `vit_base_patch16_224` of timm, compiled, bf16 autocast, fused AdamW,
on images already scaled; it is left out if timm is not installed. Rounds alternate; rates are
medians.

    python benchmarks/gpu_vit.py [--batch 256] [--rounds 3] [--steps 20] [--quick] [--json FILE]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.batching import Batch
from regard.models.vision import VisionTransformer, vit
from regard.recipe import TrainRecipe
from regard.tokenizers import Patches
from regard.training.distributed import ALONE
from regard.training.objectives import SupervisedObjective
from regard.training.step import Stepper

CLASSES, WARM = 1000, 6


def random_batch(tokenizer: Patches, count: int, device: torch.device) -> Batch:
    """Return random images as patches on the device."""
    generator = torch.Generator().manual_seed(0)
    random = np.random.default_rng(0)
    side = tokenizer.height
    images = random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    ids = torch.from_numpy(tokenizer.encode_batch(list(images))[0]).view(
        count, -1, tokenizer.vocab_size
    )
    targets = torch.randint(CLASSES, (count,), generator=generator)
    segments = torch.ones(ids.shape[:2], dtype=torch.long)
    return Batch(
        ids=ids.to(device),
        targets=targets.to(device),
        segments=segments.to(device),
        items=np.arange(count),
        tokens=count,
        symbols=count,
    )


def ours(args: argparse.Namespace, device: torch.device) -> tuple[Callable[[], Any], int]:
    """Our step, and how many parameters it moves."""
    side, layers, width = (32, 2, 64) if args.quick else (224, 12, 768)
    tokenizer = Patches(16, side, side, [0.5] * 3, [0.5] * 3)
    config = dataclasses.replace(vit(layers, width), n_outputs=CLASSES, **tokenizer.model_config)
    torch.manual_seed(0)
    model = VisionTransformer(tokenizer.vocab_size, config)
    recipe = TrainRecipe(
        steps=1000,
        optimizer="adamw",
        lr=1e-3,
        device=str(device),
        compile="on" if device.type == "cuda" else "off",
        batch_tokens=args.batch * config.max_len,
    )
    # images of one size: batches of one shape, whose steps the trainer captures
    stepper = Stepper(model, recipe, SupervisedObjective, world=ALONE, static=model.static_shapes)
    batch = random_batch(tokenizer, args.batch, stepper.device)
    if failed := stepper.compile_for(batch, recipe.steps):
        print(f"torch.compile failed: {failed}")

    def step() -> Any:
        nats = stepper.gradient([batch], args.batch)
        norm = stepper.norm()
        stepper.optimizer.set_rates(1.0)
        stepper.update(norm)
        return nats

    model.train()
    return step, sum(p.numel() for p in model.parameters())


def theirs(args: argparse.Namespace, device: torch.device) -> tuple[Callable[[], Any], int] | None:
    """timm's step; None where it is not installed."""
    try:
        import timm
    except ImportError:
        return None
    torch.manual_seed(0)
    model = timm.create_model("vit_base_patch16_224", num_classes=CLASSES).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)
    images = torch.randn(args.batch, 3, 224, 224, device=device)
    targets = torch.randint(CLASSES, (args.batch,), device=device)
    compiled = torch.compile(model)

    def step() -> Any:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(compiled(images).float(), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step, sum(p.numel() for p in model.parameters())


def timed(step: Callable[[], Any], steps: int, device: torch.device) -> float:
    """Seconds of a step."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        found = step()
    float(found.detach().sum())  # waits for the device
    return (time.perf_counter() - began) / steps


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="a tiny model, on whatever is there")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not args.quick:
        raise SystemExit("this needs a CUDA device; --quick tries a tiny model without one")
    if args.quick:
        args.batch, args.steps, args.rounds = 4, 2, 1
    rows = {"regard": ours(args, device)}
    peer = None if args.quick else theirs(args, device)
    if peer is not None:
        rows["timm"] = peer
    rates: dict[str, list[float]] = {name: [] for name in rows}
    for step, _ in rows.values():
        timed(step, WARM, device)
    for _ in range(args.rounds):
        for name, (step, _) in rows.items():
            rates[name].append(args.batch / timed(step, args.steps, device))
    found = {
        name: {
            "images_per_second": round(statistics.median(rates[name]), 1),
            "rounds": [round(rate, 1) for rate in rates[name]],
            "parameters": rows[name][1],
        }
        for name in rows
    }
    where = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    for name, row in found.items():
        rate, size = row["images_per_second"], row["parameters"]
        print(f"{name:<8} {rate:>10,.1f} images/s  {size:,} parameters")
    if args.json:
        document = {"device": where, "torch": torch.__version__, "batch": args.batch, "rows": found}
        args.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
