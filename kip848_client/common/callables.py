"""Which callbacks can be called: functions of the application that return when they are done. Knows no caller."""

from __future__ import annotations

import functools
import inspect
from concurrent.futures import Future

from kip848_client.errors import ConfigError

USE_ASYNC_CONSUMER = "give a plain function, or use AsyncConsumer"
USE_PLAIN_FUNCTION = "give a plain function"


def check_not_async(callback: object, *, name: str, instead: str = USE_PLAIN_FUNCTION) -> None:
    """Refuse a coroutine function where its coroutine would not be awaited: it would never run.

    Args:
        callback: also an object with an ``async __call__``, or something that cannot be called at all, which passes.

    Raises:
        ConfigError: it is one.
    """
    while isinstance(callback, functools.partial):
        callback = callback.func
    called = callback if inspect.isroutine(callback) else getattr(type(callback), "__call__", None)  # noqa: B004
    for function in (callback, called):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"{name} is an async function, which would never run here: {instead}")


def check_async(callback: object, *, name: str, instead: str) -> None:
    """Refuse a plain function where a coroutine is awaited. A lambda passes: what it returns is seen when it is called.

    Raises:
        ConfigError: it is one, or nothing that can be called.
    """
    while isinstance(callback, functools.partial):
        callback = callback.func
    called = callback if inspect.isroutine(callback) else getattr(type(callback), "__call__", None)  # noqa: B004
    if not callable(callback):
        raise ConfigError(f"{name}={callback!r} cannot be called")
    lambda_name = getattr(callback, "__name__", "") == "<lambda>"
    if inspect.isfunction(called) and not inspect.iscoroutinefunction(called) and not lambda_name:
        raise ConfigError(f"{name} is no async function: {instead}")


def check_takes(callback: object, *arguments: str, name: str, hint: str = "") -> None:
    """Refuse a callback that does not take these arguments: it would fail at each call.

    Args:
        callback: None passes, and what does not say what it takes, such as a function in C.
        arguments: what it is called with, by names for the error.
        hint: the way out.

    Raises:
        ConfigError: it does not.
    """
    try:
        signature = inspect.signature(callback)  # type: ignore[arg-type]  # else a TypeError
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        raise ConfigError(
            f"{name} is called with ({', '.join(arguments)}), which {callback!r} does not take: its signature is "
            f"{signature}{hint}"
        ) from None


class WrongHandlerError(Exception):
    """A handler does not do its work before it returns: no failure of a record. Callers see a `ConfigError`."""


def check_finished(result: object, *, instead: str) -> None:
    """Refuse what a handler returned if its work is still to be done there, or goes on somewhere else.

    Raises:
        WrongHandlerError: it is a coroutine, generator, task or future.
    """
    if result is None:
        return
    unfinished = inspect.isawaitable(result) or isinstance(result, Future)
    if unfinished or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result):
            result.close()  # without a warning that it was never awaited
        raise WrongHandlerError(
            f"the handler returned a {type(result).__name__}, and its record would count as done before that is: "
            f"{instead}"
        )


def check_methods_not_async(listener: object, *names: str, instead: str = USE_PLAIN_FUNCTION) -> None:
    """Refuse an object that has one of these methods as a coroutine function.

    Raises:
        ConfigError: it has.
    """
    for name in names:
        check_not_async(getattr(listener, name, None), name=f"{type(listener).__name__}.{name}", instead=instead)


def check_result_not_async(result: object, *, name: str, instead: str = USE_PLAIN_FUNCTION) -> None:
    """Refuse a coroutine that a plain function returned, such as ``lambda: save()`` of an async function.

    Raises:
        ConfigError: it is one.
    """
    if inspect.iscoroutine(result):
        result.close()  # without a warning that it was never awaited
        raise ConfigError(f"{name} returned a coroutine, which would never run here: {instead}")
