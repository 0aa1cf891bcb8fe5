"""What a user of the library may write: `mypy --strict` must understand all of it."""

from pathlib import Path

import numpy as np

import regard
from regard.decoding import Beam, Sample
from regard.sklearn import SequenceClassifier

QUESTIONS = [("Who are you ?", "person"), ("Where is Rome ?", "place")]


def classify(questions: list[tuple[str, str]]) -> dict[str, float]:
    result = regard.train(questions, "runs/kind", task="label", minutes=0.5, seed=1)
    metric: regard.Metric = result.metrics["accuracy"]
    predictor: regard.Predictor = result.model
    labels: np.ndarray = predictor.predict([text for text, _ in questions])
    best = predictor.predictions("Who are you ?")
    print(result.run / "README.md", metric.low, metric.high, labels.shape, best.label)
    for split, metrics in result.splits.items():
        print(split, {name: one.value for name, one in metrics.items()})
    return best.scores


def write_names(file: Path, count: int) -> list[str]:
    trained = regard.train(file, task="next", model={"name": "transformer", "n_layers": 2})
    beams = trained.model.generate("ma", Beam(width=4, n_best=2), max_new=10)
    print(beams[0].ids, beams[0].score)
    generator = regard.load(trained.run, kind=regard.Generator)
    tokens, log_probs = generator.score("maria")
    print(dict(zip(tokens, log_probs, strict=True)))
    return [one.text for one in generator.continuations("ma", Sample(0.8), copies=count)]


def translate(files: list[Path]) -> str:
    trained = regard.train(files, task="target", train={"label_smoothing": 0.1}, tokenizer="words")
    best, *others = trained.model.translate("Montag, der 3. Mai")
    print(others, [translations[0].text for translations in trained.model.translate(["Juni"])])
    return best.text


def forecast(file: Path) -> list[float]:
    trained = regard.train(file, task="forecast", target="load", horizon=24, fill="linear")
    coming = trained.model.predictions()[0]
    return [float(value) for value in coming.point[:, 0]]


def compare(questions: list[tuple[str, str]]) -> Path:
    compared = regard.compare(questions, models=["nb-svm", "cnn"], minutes=2, folds=5)
    best: Path = compared.run
    print(compared.comparison.verdict, regard.evaluate(best).metrics["accuracy"].value)
    regard.export(best, "kind-hf")
    regard.look_at(best, "Who are you ?").write("look.html")
    return best


def plan(files: list[str]) -> regard.Recipe:
    recipe, lines = regard.plan(files, target="kind", data={"folds": 5})
    print(*lines, sep="\n")
    return recipe.replace(train={"steps": 10})


if __name__ == "__main__":
    texts, kinds = zip(*QUESTIONS, strict=True)
    print(SequenceClassifier("nb-svm", tokenizer="words").fit(texts, kinds).predict(texts))
    print(classify(QUESTIONS), write_names(Path("names.txt"), 5), compare(QUESTIONS))
    print(regard.train_recipe(plan(["questions.tsv"]), "runs/planned").seconds)
