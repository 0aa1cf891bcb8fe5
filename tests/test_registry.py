"""Names of classes: built-in ones, decorators, plugins of other packages, and messages."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from regard import registry
from regard.errors import UsageError
from regard.registry import (
    AUGMENTATIONS,
    MODALITIES,
    MODELS,
    TASKS,
    TOKENIZERS,
    ModelRegistry,
    Registry,
    resolve,
)


@pytest.fixture
def plugins(monkeypatch):
    """Pretend that other packages have entry points; return a function that sets them."""

    def set_plugins(**groups):
        def found(group):
            points = groups.get(group.replace("regard.", ""), {})
            return [
                SimpleNamespace(name=name, value=name, load=lambda it=it: it)
                for name, it in points.items()
            ]

        monkeypatch.setattr(registry, "entry_points", found)
        registry.load_plugins.cache_clear()

    yield set_plugins
    registry.load_plugins.cache_clear()


def test_every_built_in_name_can_be_imported():
    for group in (TASKS, MODALITIES, TOKENIZERS, AUGMENTATIONS):
        assert list(group) and len(group.values()) == len(list(group))
        for name in group:
            assert name in group and isinstance(group[name], type)
    for entry in MODELS.entries:
        cls = resolve(entry.target)
        assert hasattr(cls, "Config") and cls.PRESETS
        assert all(task in TASKS for task in entry.tasks)


def test_names_are_registered_by_decorator_and_objects_are_returned_as_they_are():
    one = Registry("color", "regard.colors", {"path": "pathlib:Path"})

    @one.register("red")
    class Red:
        pass

    assert one["red"] is Red and one["path"].__name__ == "Path" and list(one) == ["path", "red"]
    with pytest.raises(UsageError, match=r"unknown color 'rad'; did you mean 'red'\?"):
        one["rad"]


def test_entry_points_are_objects_or_modules_that_register(plugins):
    module = ModuleType("other")
    plugins(colors={"blue": str, "all": module})
    one = Registry("color", "regard.colors", {"blue": "pathlib:Path"})
    assert list(one) == ["blue"] and one["blue"].__name__ == "Path"  # built-in names win
    two = Registry("color", "regard.colors", {})
    assert two["blue"] is str and "all" not in two


def test_models_are_found_by_name_task_and_kind_of_input():
    models = ModelRegistry([("a", "next label", "tokens", "ngrams:Uniform")])

    @models.register("a", tasks=["label"], reads=("patches", "points"))
    class Other:
        pass

    assert models.get("a", "label", "patches") is models.get("a", "label", "points") is Other
    assert models.get("a").__name__ == "Uniform"
    assert models.names() == ["a"] and models.names("next", "points") == []
    assert models.tasks("a") == ["next", "label"] and models.tasks("b") == []
    assert models.kinds("label") == ["tokens", "patches", "points"]
    assert models.kinds("next") == ["tokens"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("transformr",), r"model\.name: unknown model 'transformr'; did you mean 'transformer'"),
        (("bigram", "label"), "bigram does not support classification; choose one of"),
        (("svm", "label", "patches"), "svm does not support classification of patches"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_those_that_do(arguments, message):
    with pytest.raises(UsageError, match=message):
        MODELS.get(*arguments)


def test_the_registry_imports_no_implementation():
    """Options of the command line are read from it, so it must be quick."""
    import subprocess

    code = "import sys, regard.registry; print('torch' in sys.modules, 'numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]
