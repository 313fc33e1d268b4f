"""Actions of fault rules as JSON: ``{"delay": {"ms": 500}}``."""

from __future__ import annotations

from typing import Final, get_args, get_type_hints

import msgspec

from kip848_client.errors import ConfigError, ErrorCode
from kip848_client.testing import faults


class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class NoArguments(_Arguments, frozen=True):
    """The action takes none."""


class ErrorArguments(_Arguments, frozen=True):
    """Answer with an error: Kafka's name for it, or its number; with *applied* the request is applied as well."""

    code: str | int
    message: str | None = None
    applied: bool = False


class CloseArguments(_Arguments, frozen=True):
    """Close the connection; with *reset* by a TCP reset."""

    reset: bool = False


class LoseReplyArguments(_Arguments, frozen=True):
    """Apply the request and lose the answer; with *silent* the connection stays open."""

    silent: bool = False
    reset: bool = False


class CutReplyArguments(_Arguments, frozen=True):
    """Apply the request, and send only the first bytes of the answer."""

    byte_count: int = 10


class DelayArguments(_Arguments, frozen=True):
    """Let the request, or with *applied* its answer, wait."""

    ms: int
    applied: bool = False
    then: FaultAction | None = None


class HoldArguments(_Arguments, frozen=True):
    """Let the request, or with *applied* its answer, wait until ``testing/faults/release``."""

    applied: bool = False
    then: FaultAction | None = None


class DuplicateArguments(_Arguments, frozen=True):
    """Apply the request twice, and answer the first time."""

    after_ms: int = 0


class FaultAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is done to one request: exactly one of these."""

    error: ErrorArguments | None = None
    coordinator_not_here: NoArguments | None = None
    drop: NoArguments | None = None
    close: CloseArguments | None = None
    lose_reply: LoseReplyArguments | None = None
    cut_reply: CutReplyArguments | None = None
    delay: DelayArguments | None = None
    hold: HoldArguments | None = None
    duplicate: DuplicateArguments | None = None
    pass_through: NoArguments | None = None


def _shown(name: str, hint: object) -> str:
    [kind, _] = get_args(hint)
    return f"{name}({', '.join(kind.__struct_fields__)})"


ACTIONS: Final = ", ".join(_shown(*each) for each in get_type_hints(FaultAction).items())
"""All actions with their arguments, for errors."""


def action_of(described: FaultAction) -> faults.Action:
    """The action that is described.

    Raises:
        ConfigError: it is not exactly one, or its arguments do not fit.
    """
    given = {name: each for name in FaultAction.__struct_fields__ if (each := getattr(described, name)) is not None}
    if len(given) != 1:
        raise ConfigError(
            f"an action is an object with one name, not with {' and '.join(given) or 'none'}; actions are {ACTIONS}"
        )
    [(name, arguments)] = given.items()
    values = msgspec.structs.asdict(arguments)
    if isinstance(code := values.get("code"), str):
        if code not in ErrorCode.__members__:
            raise ConfigError(f"{code!r} is no error code; give Kafka's name for it, or its number")
        values["code"] = ErrorCode[code]
    if "then" in values:
        values["then"] = faults.pass_through() if arguments.then is None else action_of(arguments.then)
    action: faults.Action = getattr(faults, name)(**values)
    return action
