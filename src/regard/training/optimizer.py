"""Learning-rate schedules: a factor between 0 and 1 for each step, after a linear warm-up.

Optimizers: Muon for the matrices inside blocks, AdamW for everything else, or AdamW for all;
filters of Hyena are never decayed.

Muon (Jordan et al. 2024) replaces the momentum of a weight matrix by the nearest semi-orthogonal
matrix, found by a few Newton-Schulz steps, so that every direction is learned at one speed. Ours
runs them in fp32 on a CPU and bf16 on CUDA, batched over all matrices of one shape; the fused
query-key-value and gate-up products are orthogonalised part by part.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from regard.layers.attention import CrossAttention, SelfAttention
from regard.layers.embeddings import PatchEmbedding
from regard.layers.feedforward import SwiGLU
from regard.layers.hyena import Filters, Hyena
from regard.recipe import TrainRecipe


def factor(schedule: str, step: int, steps: int, warmup: float) -> float:
    """The factor for step 0 ... steps - 1; `warmup` is a share of the steps.

    `cosine` falls along half a wave to a tenth (Loshchilov & Hutter 2017, arXiv:1608.03983),
    `linear` straight to zero, and `inverse_sqrt` as 1 / sqrt(step), peaking at the end of the
    warm-up (Vaswani et al. 2017, section 5.3, "Noam").
    """
    rise = max(1, round(warmup * steps))
    if step < rise:
        return (step + 1) / rise
    if schedule == "inverse_sqrt":
        return math.sqrt(rise / (step + 1))
    done = (step - rise) / max(1, steps - rise)  # 0 ... just below 1
    if schedule == "cosine":
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done))
    return 1 - done


NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # the quintic of Jordan et al. 2024, steep at zero


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """(N, R, C) matrices to nearly semi-orthogonal ones with the same singular vectors, all
    singular values near 1.
    """
    a, b, c = NEWTON_SCHULZ
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = x.size(-2) > x.size(-1)
    if tall:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for _ in range(steps):
        gram = x @ x.mT  # (N, R, R), R the smaller side
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised, with decoupled weight decay.

    `parts` says into how many rows each a fused matrix is cut; a matrix not in it is one piece. The
    step of an R × C piece is scaled by sqrt(max(1, R / C)), as in the original.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        parts: dict[Tensor, tuple[int, ...]] | None = None,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self.parts = parts or {}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        for group in self.param_groups:
            lr, momentum = group["lr"], group["momentum"]
            pieces: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                buffer = state["momentum"].lerp_(parameter.grad, 1 - momentum)
                update = parameter.grad.lerp(buffer, momentum)  # Nesterov
                parameter.mul_(1 - lr * group["weight_decay"])
                rows = self.parts.get(parameter, (parameter.size(0),))
                for target, part in zip(parameter.split(rows), update.split(rows), strict=True):
                    pieces[part.shape].append((target, part))
            for shape, pairs in pieces.items():
                updates = orthogonalise(torch.stack([part for _, part in pairs]))
                updates.mul_(-lr * max(1.0, shape[0] / shape[1]) ** 0.5)
                torch._foreach_add_([target for target, _ in pairs], list(updates.unbind()))


class Optimizer:
    """One or two optimizers behind one door: a shared learning-rate factor and one flat, named
    state.
    """

    def __init__(self, model: nn.Module, recipe: TrainRecipe) -> None:
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in model.named_parameters()
        }
        matrices, parts = block_matrices(model) if recipe.optimizer == "muon" else ([], {})
        chosen = set(matrices)
        filters = filters_of(model)
        rest = [p for p in self.names if p not in chosen and p not in filters]
        betas = (recipe.beta1, recipe.beta2)
        adam_lr = recipe.adam_lr if recipe.optimizer == "muon" else recipe.lr
        groups = [  # norms and biases are never decayed, nor are embeddings beside Muon
            {
                "params": [p for p in rest if p.dim() >= 2],
                "weight_decay": recipe.weight_decay * (not chosen),
            },
            {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0},
            {"params": [p for p in self.names if p in filters], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        # On a GPU steps and rates are tensors there, so that an update can be captured as a graph.
        there = all(p.is_cuda for p in self.names)
        self.parts: list[torch.optim.Optimizer] = [
            AdamW(groups, lr=adam_lr, betas=betas, fused=True, capturable=there)
        ]
        if matrices:
            muon = Muon(
                matrices,
                lr=recipe.lr,
                momentum=recipe.momentum,
                weight_decay=recipe.weight_decay,
                parts=parts,
            )
            self.parts.append(muon)
        for part in self.parts:
            for group in part.param_groups:
                group["peak"] = group["lr"]
                if there:
                    group["lr"] = torch.tensor(group["lr"], device=rest[0].device)

    def set_rates(self, factor: float) -> None:
        """Every learning rate at `factor` of its peak."""
        for part in self.parts:
            for group in part.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(group["peak"] * factor)
                else:
                    group["lr"] = group["peak"] * factor

    def step(self) -> None:
        """Update at the rates that were set."""
        for part in self.parts:
            part.step()

    def clear(self) -> None:
        """Drop the gradients."""
        for part in self.parts:
            part.zero_grad()

    def forget(self) -> None:
        """Back to before the first step, in the same memory."""
        for value in self.tensors().values():
            value.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """All state as named tensors: `blocks.0.mixer.out.weight/momentum`."""
        return {
            f"{self.names[parameter]}/{key}": value
            for part in self.parts
            for parameter, state in part.state.items()
            for key, value in state.items()
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        parameters = {name: parameter for parameter, name in self.names.items()}
        owner = {p: part for part in self.parts for g in part.param_groups for p in g["params"]}
        for key, value in tensors.items():
            name, _, field = key.rpartition("/")
            parameter = parameters[name]
            owner[parameter].state[parameter][field] = value.to(parameter.device)


def block_matrices(
    model: nn.Module,
) -> tuple[list[nn.Parameter], dict[Tensor, tuple[int, ...]]]:
    """The weight matrices inside blocks, and how the fused ones fall into parts."""
    parts: dict[Tensor, tuple[int, ...]] = {}
    for module in model.modules():
        if isinstance(module, SelfAttention) and module.qkv is not None:
            parts[module.qkv.weight] = module.sizes
        elif isinstance(module, Hyena):
            parts[module.streams.weight] = (module.d_model,) * (module.order + 1)
        elif isinstance(module, CrossAttention):
            parts[module.kv.weight] = (module.kv.out_features // 2,) * 2
        elif isinstance(module, SwiGLU):
            parts[module.gate_up.weight] = (module.down.in_features,) * 2
        elif isinstance(module, nn.RNNBase):  # one part for each gate
            for name, parameter in module.named_parameters():
                if name.startswith("weight"):
                    parts[parameter] = (module.hidden_size,) * (
                        len(parameter) // module.hidden_size
                    )
    outside = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    outside |= {id(m.project.weight) for m in model.modules() if isinstance(m, PatchEmbedding)}
    head = getattr(model, "head", None)
    if isinstance(head, nn.Linear):
        outside.add(id(head.weight))
    outside |= {id(p) for p in filters_of(model)}
    matrices = [p for p in model.parameters() if p.dim() == 2 and id(p) not in outside]
    return matrices, parts


def filters_of(model: nn.Module) -> set[Tensor]:
    """The parameters of Hyena's filters: functions of distance, which nothing is to shrink."""
    found: set[Tensor] = set()
    for module in model.modules():
        if isinstance(module, Hyena):
            found.add(module.short)
        elif isinstance(module, Filters):
            found |= set(module.parameters())
    return found
