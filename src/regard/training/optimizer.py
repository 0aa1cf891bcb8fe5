"""Optimizers and learning-rate schedules.

Muon trains the matrices inside blocks and AdamW everything else, or AdamW trains all. Muon (Jordan
et al. 2024) replaces the momentum of a weight matrix by the nearest semi-orthogonal matrix, by a
few Newton-Schulz steps, so that all directions are learned at one speed. Ours runs them in fp32 on
a CPU and bf16 on CUDA, batched over all matrices of one shape; the parts of fused query-key-value
and gate-up matrices are orthogonalised separately.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from regard.kernels.torch_private import foreach_add_
from regard.layers import find_layers
from regard.recipe import TrainRecipe


def factor(schedule: str, step: int, steps: int, warmup: float) -> float:
    """Return the learning-rate factor of step 0 ... steps - 1, after a linear warm-up over a share
    of the steps.

    `cosine` falls along half a wave to a tenth (Loshchilov & Hutter 2017, arXiv:1608.03983),
    `linear` falls to zero, and `inverse_sqrt` falls as 1 / sqrt(step) from its peak at the end of
    the warm-up (Vaswani et al. 2017, section 5.3, "Noam").
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
    """Return nearly semi-orthogonal matrices (N, R, C) with the singular vectors of the given ones
    and all singular values near 1.
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

    `parts` has the numbers of rows of the parts of fused matrices. The step of an R × C part is
    scaled by sqrt(max(1, R / C)), as in the original.
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
                foreach_add_([target for target, _ in pairs], list(updates.unbind()))


class Optimizer:
    """One or two optimizers with a common learning-rate factor and a flat, named state."""

    def __init__(self, model: nn.Module, recipe: TrainRecipe) -> None:
        self.names: dict[Tensor, str] = {
            parameter: name for name, parameter in model.named_parameters()
        }
        matrices, parts = block_matrices(model) if recipe.optimizer == "muon" else ([], {})
        chosen = set(matrices)
        undecayed = undecayed_parameters(model)
        rest = [p for p in self.names if p not in chosen and p not in undecayed]
        betas = (recipe.beta1, recipe.beta2)
        adam_lr = recipe.adam_lr if recipe.optimizer == "muon" else recipe.lr
        groups = [  # norms and biases are never decayed, nor are embeddings if Muon is used
            {
                "params": [p for p in rest if p.dim() >= 2],
                "weight_decay": recipe.weight_decay * (not chosen),
            },
            {"params": [p for p in rest if p.dim() < 2], "weight_decay": 0.0},
            {"params": [p for p in self.names if p in undecayed], "weight_decay": 0.0},
        ]
        groups = [group for group in groups if group["params"]]
        # On a GPU steps and rates are tensors, so that an update can be captured as a graph.
        on_gpu = all(p.is_cuda for p in self.names)
        self.parts: list[torch.optim.Optimizer] = [
            AdamW(groups, lr=adam_lr, betas=betas, fused=True, capturable=on_gpu)
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
                if on_gpu:
                    group["lr"] = torch.tensor(group["lr"], device=rest[0].device)

    def set_rates(self, factor: float) -> None:
        """Set every learning rate to `factor` times its peak."""
        for part in self.parts:
            for group in part.param_groups:
                if isinstance(group["lr"], Tensor):
                    group["lr"].fill_(group["peak"] * factor)
                else:
                    group["lr"] = group["peak"] * factor

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def clear(self) -> None:
        """Remove the gradients."""
        for part in self.parts:
            part.zero_grad()

    def forget(self) -> None:
        """Reset the state to that before the first step, in the same memory."""
        for value in self.tensors().values():
            value.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """Return the state as named tensors, such as `blocks.0.mixer.out.weight/momentum`."""
        return {
            f"{self.names[parameter]}/{key}": value
            for part in self.parts
            for parameter, state in part.state.items()
            for key, value in state.items()
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state that `tensors` returned."""
        parameters = {name: parameter for parameter, name in self.names.items()}
        owner = {p: part for part in self.parts for g in part.param_groups for p in g["params"]}
        for key, value in tensors.items():
            name, _, field = key.rpartition("/")
            parameter = parameters[name]
            owner[parameter].state[parameter][field] = value.to(parameter.device)


def block_matrices(
    model: nn.Module,
) -> tuple[list[nn.Parameter], dict[Tensor, tuple[int, ...]]]:
    """Return the weight matrices inside blocks, and the rows of the parts of fused ones."""
    parts: dict[Tensor, tuple[int, ...]] = {}
    excluded = undecayed_parameters(model)
    for layer in find_layers(model):
        parts |= layer.fused_weights()
        excluded.update(layer.embedding_weights())
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            excluded.add(module.weight)
        elif isinstance(module, nn.RNNBase):  # one part for each gate
            for name, parameter in module.named_parameters():
                if name.startswith("weight"):
                    gates = len(parameter) // module.hidden_size
                    parts[parameter] = (module.hidden_size,) * gates
    head = getattr(model, "head", None)
    if isinstance(head, nn.Linear):
        excluded.add(head.weight)
    matrices = [p for p in model.parameters() if p.dim() == 2 and p not in excluded]
    return matrices, parts


def undecayed_parameters(model: nn.Module) -> set[Tensor]:
    """Return the parameters that layers exempt from weight decay."""
    return {p for layer in find_layers(model) for p in layer.undecayed_parameters()}
