"""Screens of the studio. A screen is a class here and a Preact component of the same name in
`web/screens/`: its methods marked `@action` are what the component may call.

    @register_screen("play", title="Play")
    class Play(Screen):
        @action
        def sample(self, run: str, prompt: str = "", temperature: float = 1.0) -> dict[str, Any]:
            ...

The server checks the arguments of an action against its annotations, calls it in a thread, and
sends back what it returns; NumPy arrays in it travel as bytes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from regard.errors import UsageError, did_you_mean
from regard.storage import validated

if TYPE_CHECKING:
    from regard.look.page import Component
    from regard.studio.opened import Opened

SCREENS: dict[str, type[Screen]] = {}  # in the order of the menu
Method = TypeVar("Method", bound=Callable[..., Any])
Class = TypeVar("Class", bound="type[Screen]")


class Screen:
    """One screen: its actions, over the runs that the studio has opened."""

    name: str
    title: str

    def __init__(self, opened: Opened) -> None:
        self.opened = opened

    def actions(self) -> dict[str, Callable[..., Any]]:
        """Return the methods that the page may call, by name."""
        names = [name for name in dir(type(self)) if is_action(getattr(type(self), name))]
        return {name: getattr(self, name) for name in names}

    def close(self) -> None:
        """Stop what goes on; the studio ends."""


def action(method: Method) -> Method:
    """Let the page of a screen call a method."""
    method.__dict__["is_action"] = True
    return method


def is_action(value: object) -> bool:
    return getattr(value, "is_action", False) is True


def check_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function; raise a UsageError that names one that is unknown,
    missing or not of the type that the function declares.
    """
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters
    for name in given:
        if name not in parameters:
            raise UsageError(f"unknown argument {name}; {did_you_mean(name, list(parameters))}")
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in given:
            raise UsageError(f"argument {name} is missing")
    arguments = {}
    for name, value in given.items():
        try:
            arguments[name] = validated(value, hints[name])
        except ValueError as error:
            raise UsageError(f"argument {name}: {error}") from None
    return arguments


def figure(component: Component) -> dict[str, Any]:
    """Return a component of a look page as the page's `Figure` takes it."""
    return {"kind": component.kind, "data": component.data()}


def register_screen(name: str, *, title: str) -> Callable[[Class], Class]:
    """Register a screen under the name of its component."""

    def register(screen: Class) -> Class:
        screen.name, screen.title = name, title
        SCREENS[name] = screen
        return screen

    return register


def check_range(name: str, value: float, least: float, most: float) -> None:
    """Raise a UsageError for a value out of range."""
    if not least <= value <= most:
        raise UsageError(f"{name} must be from {least:g} to {most:g}, got {value}")
