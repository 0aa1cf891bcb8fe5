"""Steps through classifiers that count: shares of classes, weight matrices, a chain a class."""

from __future__ import annotations

from typing import Any, cast

from regard.look.page.document import visible
from regard.look.steps.counting import order_steps
from regard.look.steps.operations import Add, Apply, Entries, Join, Scale, SumRows
from regard.look.steps.outputs import fitted_answer, target_names
from regard.look.steps.parts import ids_given
from regard.look.steps.stages import Names, Stage, Tracer
from regard.look.steps.subject import READS_ALL, StepSubject, register_steps
from regard.models.class_counts import ClassMarkov, Majority, PWMClassifier, log_likelihoods
from regard.models.ngrams import DirichletNGram

FOLLOWED = 8  # classes whose chains are followed order by order
BAYES = "zᵢ = ln P(class i) + Σ ln P(token | class i)"


@register_steps(Majority)
def majority_steps(subject: StepSubject) -> None:
    """Say what every input is given."""
    t = subject.start(["any input"], ["The prediction is the same for every input."])
    scaled = subject.model.output.scaled
    formula = "the mean of the training values" if scaled else "the shares of training, as scores"
    with t.level("Training") as inner:
        values = subject.model.prediction
        words: dict[str, Any] = {"formula": formula, "columns": target_names(subject)}
        x = inner.given("What training counted", values, shown=True, **words)
    fitted_answer(t, subject, Scale(1.0), x, formula="it does not depend on the input")


@register_steps(PWMClassifier)
def matrix_steps(subject: StepSubject) -> None:
    """Add up the logarithms of the probabilities of each token at its position."""
    model, ids = cast(PWMClassifier, subject.model), subject.tensors["ids"][0].tolist()
    t = subject.start(subject.token_names(subject.tensors["ids"]), [READS_ALL])
    places = range(len(model.logs))
    values = model.logs[list(places), [ids[1 + j] for j in places]]  # (W, C)
    names = [f"{visible(t.tokens[1 + j])} at {j + 1}" for j in places]
    classes = target_names(subject)
    with t.level("Input") as inner:
        ids_given(inner, ids)
    with t.level("Weight matrices") as inner:
        formula = "ln P(the token at its position | class), from the matrix of each class"
        words: dict[str, Any] = {"formula": formula, "rows": names, "columns": classes}
        x = inner.given("Logarithms", values, shown=True, mark=t.position - 1, **words)
    prior = t.given("ln P(class)", model.bias, columns=classes)
    fitted_answer(t, subject, SumRows(), x, prior, formula=BAYES, logs=True)


@register_steps(ClassMarkov)
def chain_steps(subject: StepSubject) -> None:
    """Follow the token after a position through the chain of every class, and add up all tokens."""
    model, ids = cast(ClassMarkov, subject.model), subject.tensors["ids"]
    names = subject.token_names(ids)
    t = subject.start(names)
    at, classes = min(t.position, len(names) - 2), target_names(subject)
    t.trace.notes.append(f"Each chain is followed to token {at + 2}, “{visible(names[at + 1])}”.")
    source = subject.inputs()
    logs = log_likelihoods(model.chains, source.ids, source.segments)[0]  # (T - 1, C)
    if len(classes) > FOLLOWED:
        with t.level("Chains") as inner:
            formula = "ln P(the token | those before it, class)"
            x = inner.given("This token", logs[at], shown=True, formula=formula, columns=classes)
    else:
        x = own_steps(t, subject, at, logs[at].numpy(), classes)
    with t.level("All tokens") as inner:
        others = [i for i in range(len(logs)) if i != at]
        formula = "ln P(the token | those before it, class), of every other token"
        rows = [f"{visible(names[i + 1])} at {i + 2}" for i in others]
        words: dict[str, Any] = {"formula": formula, "rows": rows, "columns": classes}
        rest = inner.given("The other tokens", logs[others], shown=True, **words)
        formula = "Σ of the column"
        rest = inner.step("Their sum", SumRows(), rest, formula=formula, columns=classes)
    prior = t.given("ln P(class)", model.bias, columns=classes)
    formula = "zᵢ = ln P(class i) + ln P(this token | class i) + those of the others"
    fitted_answer(t, subject, Add(), x, rest, prior, formula=formula, logs=True)


def own_steps(t: Tracer, subject: StepSubject, at: int, measured: Any, classes: Names) -> Stage:
    """Add the logarithm of the probability of one token in the chain of every class."""
    ids, logs = subject.tensors["ids"], []
    tokenizer = subject.pipeline.tokenizer
    for number, name in enumerate(classes):
        chain = cast(DirichletNGram, subject.model.chains[number])
        words = [tokenizer.text(i) for i in range(chain.vocab_size)]
        with t.level(f"Chain of {name}") as inner:
            p = order_steps(inner, chain, ids, words, at)
            formula = "P(the token that follows | those before it, class)"
            entry = Entries((int(ids[0, at + 1]),))
            p = inner.step("This token", entry, p, formula=formula)
            logs.append(inner.step("Its logarithm", Apply("log"), p, formula="ln p"))
    with t.level("All tokens") as inner:
        formula = "ln P(this token | those before it, class), of every class"
        words_of: dict[str, Any] = {"formula": formula, "columns": classes, "measured": measured}
        return inner.step("This token", Join(), *logs, **words_of)
