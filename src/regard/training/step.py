"""One step of training: the gradient of some batches, and the update of the weights it leads to.

On a GPU both are captured as CUDA graphs, and the host looks at nothing but two numbers a step: the
loss and the norm of the gradient, which decide whether the update is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.decoding.constraints import ForbiddenTransitions
from regard.models.language_model import NeuralLanguageModel
from regard.models.point_transformer import PointSettings
from regard.models.seq2seq import NeuralSeq2Seq
from regard.models.supervised import NeuralSupervisedModel
from regard.models.vision import ImageSettings
from regard.recipe import TrainRecipe
from regard.training.augmentation import ImageAugment, PointCloudAugment
from regard.training.cuda_graphs import ROWS, CapturedWork, pinned, rounded
from regard.training.distributed import ProcessGroup, keeping
from regard.training.objectives import NextTokenObjective, SupervisedObjective
from regard.training.optimizer import Optimizer
from regard.training.precision import autocast, choose_device, choose_precision

PAYS = 4e15  # floating-point operations from which compiling, half a minute, is repaid


Learner = NeuralLanguageModel | NeuralSeq2Seq | NeuralSupervisedModel


def objective_of(
    model: Learner,
    recipe: TrainRecipe,
    forbidden: ForbiddenTransitions | None,
    weights: Tensor | None,
) -> NextTokenObjective | SupervisedObjective:
    """What a model is asked."""
    smoothing, agreeing = recipe.label_smoothing, recipe.consistency
    changes = changes_of(model, recipe)
    if isinstance(model, NeuralSupervisedModel):
        return SupervisedObjective(
            model,
            label_smoothing=smoothing,
            consistency=agreeing,
            weights=weights,
            share=recipe.mask,
            changes=changes,
        )
    return NextTokenObjective(
        model,
        label_smoothing=smoothing,
        consistency=agreeing,
        constrain=forbidden,
        changes=changes,
    )


def changes_of(model: Learner, recipe: TrainRecipe) -> ImageAugment | PointCloudAugment | None:
    """What is done to pictures or clouds before they are shown; nothing to texts."""
    config = model.config
    if isinstance(config, PointSettings):
        return PointCloudAugment(recipe, config, each=model.config.each)
    if not isinstance(config, ImageSettings):
        return None
    return ImageAugment(recipe, config.patch, config.grid if config.uniform else None)


def may_capture(recipe: TrainRecipe, world: ProcessGroup) -> bool:
    """Can steps be captured, if they are alike? Many processes wait for others inside of them."""
    return choose_device(recipe.device, world).type == "cuda" and world.size == 1


class Stepper:
    """Moves the weights of a model, in one process or in a world of them."""

    def __init__(
        self,
        model: Learner,
        recipe: TrainRecipe,
        *,
        forbidden: ForbiddenTransitions | None,
        world: ProcessGroup,
        weights: Tensor | None = None,
        alike: bool = False,
    ) -> None:
        """`weights` (C,) say how much each class counts, where there are classes. Batches are
        `alike` where they come in few shapes though records do not share rows.
        """
        self.recipe, self.world = recipe, world
        self.alike = alike or model.supports_packing
        self.device = choose_device(recipe.device, world)
        self.precision = choose_precision(recipe, self.device)
        self.model = model.to(self.device)
        if self.precision == "fp64":
            self.model.double()
        objective = objective_of(self.model, recipe, forbidden, weights)
        self.objective = world.spread(objective.to(self.device), self.device)
        self.optimizer = Optimizer(self.model, recipe)
        self.compile_seconds = 0.0
        self.compiled = False
        self.captures = may_capture(recipe, world) and self.alike
        self.begin: Callable[..., Tensor] = self._begin
        self.accumulate: Callable[..., Tensor] = self._accumulate
        self.norm: Callable[[], Tensor] = self._norm
        self.update: Callable[..., Tensor] = self._update
        if self.captures:
            pool = torch.cuda.graph_pool_handle()
            self.begin = CapturedWork(self._begin, self.device, pool)
            self.accumulate = CapturedWork(self._accumulate, self.device, pool)
            self.norm = CapturedWork(self._norm, self.device, pool)
            self.update = CapturedWork(self._update, self.device, pool)

    def release(self) -> None:
        """Give back the memory of captured steps, as large as a step's, to whatever comes next."""
        for work in (self.begin, self.accumulate, self.norm, self.update):
            if isinstance(work, CapturedWork):
                work.release()
        self.optimizer.clear()  # gradients lie in that memory, too
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    @property
    def steady(self) -> bool:
        """Did the last step take the time that steps of its kind take? Not where it met a shape for
        the first time, or captured it.
        """
        works = (self.begin, self.accumulate, self.norm, self.update)
        return all(work.steady for work in works if isinstance(work, CapturedWork))

    def how(self) -> str:
        """How it computes, in words."""
        said = [str(self.device), self.precision]
        if self.compiled:
            said.append(f"compiled in {self.compile_seconds:.0f} s")
        if self.captures:
            said.append("steps captured as CUDA graphs")
        return ", ".join(said)

    def compile_for(self, batch: Batch, steps: int) -> str:
        """Compile the model where the recipe asks for it, or where so many steps repay it; why that
        failed, if it did. Nothing is compiled twice.
        """
        size = sum(p.numel() for p in self.model.parameters())
        work = 6.0 * size * self.recipe.batch_tokens * steps
        auto = self.device.type == "cuda" and self.alike and work >= PAYS
        if (
            self.compiled
            or self.recipe.compile == "off"
            or (self.recipe.compile == "auto" and not auto)
        ):
            return ""
        began = time.monotonic()
        self.release()  # whatever was captured before
        try:
            self.model.compile()
            self.gradient([batch], 1)
        except Exception as error:  # whatever the compiler cannot do, eager can
            self.model._compiled_call_impl = None
            lines = str(error).strip().splitlines()
            return lines[0] if lines else type(error).__name__
        finally:
            self.optimizer.clear()
        self.compiled, self.compile_seconds = True, time.monotonic() - began
        return ""

    def prepared(self, batches: list[Batch], pad: int) -> list[Batch]:
        """The batches as the device likes them: in few shapes, in pinned memory."""
        if self.device.type == "cpu":
            return batches
        if self.captures:
            multiple = max(1, batches[0].ids.size(0) // ROWS)
            batches = [rounded(batch, multiple, pad) for batch in batches]
        return [pinned(batch) for batch in batches]

    def gradient(self, batches: list[Batch], symbols: int) -> Tensor:
        """The gradient of the batches' loss over `symbols`; the nats of each process."""
        world = self.world
        total = torch.zeros(world.size, device=self.device, dtype=torch.float64)
        scale = world.size / symbols  # a mean is taken over processes
        for place, batch in enumerate(batches):
            add = self.accumulate if place else self.begin
            with keeping(self.objective, place < len(batches) - 1):
                total[world.rank] += add(scale, *batch.tensors())
        return world.sum(total)

    def _begin(self, scale: Tensor | float, *tensors: Tensor | None) -> Tensor:
        """The gradient of the batch alone; once something is captured, always in one memory."""
        kept = self.gradients()
        self.optimizer.clear()
        nats = self._accumulate(scale, *tensors)
        if self.captures and kept:
            new = self.gradients()
            both = [p for p in kept if p in new]
            torch._foreach_copy_([kept[p] for p in both], [new[p] for p in both])
            for p in kept:
                p.grad = kept[p] if p in new else kept[p].zero_()
        return nats

    def _accumulate(self, scale: Tensor | float, *tensors: Tensor | None) -> Tensor:
        there = [None if x is None else x.to(self.device, non_blocking=True) for x in tensors]
        with autocast(self.precision, self.device):
            loss, nats = self.objective(*there)
        (loss * scale).backward()
        return nats  # type: ignore[no-any-return]

    def _norm(self) -> Tensor:
        """The length of the whole gradient."""
        return nn.utils.get_total_norm(self.gradients().values())

    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """Of the parameters that have one."""
        return {p: p.grad for p in self.model.parameters() if p.grad is not None}

    def _update(self, norm: Tensor) -> Tensor:
        """Update the weights at the rates that were set."""
        if self.recipe.clip:
            nn.utils.clip_grads_with_norm_(self.gradients(), self.recipe.clip, norm)
        self.optimizer.step()
        return norm

    def tell(self, nats: Tensor, norm: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
        """Both on the host, once asked for; until then the host is free while the device works."""
        if self.device.type == "cpu":
            return lambda: (nats, norm)
        both = torch.cat((nats, norm[None])).to("cpu", non_blocking=True)
        event = torch.cuda.Event()
        event.record()

        def wait() -> tuple[Tensor, Tensor]:
            event.synchronize()
            return both[:-1], both[-1]

        return wait
