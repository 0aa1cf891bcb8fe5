"""Step through a model: every stage of one position with its real numbers, from the input to the
output, and how each number follows from others.

`trace_steps` follows a position through a model by its own activations (`layers/tap.py`) and its
parameters; `check_stages` and `replay` recompute every stage by its stated formula; `steps_page`
draws them.

| file | what |
|---|---|
| `operations.py` | how a stage follows from others, in NumPy |
| `stages.py` | stages, traces and their check |
| `subject.py` | one input of a model, and the registry of families |
| `parts.py`, `attention.py`, `outputs.py` | the stages of layers |
| `stacks.py`, `recurrent.py`, `windows.py`, `convolutions.py` | of networks |
| `counting.py`, `class_counts.py`, `ibm_model1.py`, `nearest_caption.py` | of models that count |
| `linear.py`, `features.py`, `series_statistics.py`, `coulomb.py` | of linear models and kernels |
| `forecasters.py`, `classical_forecasters.py`, `trees.py` | of forecasters |
| `contrastive.py`, `word_vectors.py` | of pairs and of words |
| `notation.py` | the symbols of the lectures |
| `page.py` | the component and its page |
"""

from regard.look.steps.stages import StepTrace, check_stages, replay
from regard.look.steps.subject import register_steps, trace_steps

__all__ = ["StepTrace", "check_stages", "register_steps", "replay", "trace_steps"]
