"""Parts of live pages by the class of an object: its own, its base's, or a refusal."""

from __future__ import annotations

import pytest

from regard.errors import UserError
from regard.live.parts import LivePart, assets, live_part
from regard.look.page.document import asset
from regard.models.ngrams import Bigram, CountConfig
from regard.registry import LIVE, ClassRegistry, class_path, resolve


class Base:
    """A class with a part."""


class Derived(Base):
    """A class without one of its own."""


def test_the_nearest_base_counts_and_what_is_registered_later_too():
    registry = ClassRegistry("regard.none", {class_path(Base): "builtins:len"})
    assert registry.find(Derived) is len and registry.find(int) is None
    registry.register(Derived)(sum)
    assert registry.find(Derived) is sum and registry.find(Base) is len


def test_every_built_in_part_is_of_a_class_and_a_function_that_exist():
    for path, target in LIVE._targets.items():
        assert isinstance(resolve(path), type) and callable(resolve(target)), path


def test_the_scripts_that_parts_name_are_in_the_package():
    part = live_part(Bigram(5, CountConfig()))
    assert isinstance(part, LivePart)
    for package, name in (*part.scripts, *assets("weights", "live")):
        assert asset(name, package)


def test_what_has_no_part_is_refused_by_its_name():
    with pytest.raises(UserError, match="live pages do not support Derived; regard look without"):
        live_part(Derived())
