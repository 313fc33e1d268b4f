"""Which errors may pass by themselves, and what a user can do about the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kip848_client.common.error_codes import RETRIABLE, ErrorCode
from kip848_client.errors import (
    AuthenticationError,
    BrokerError,
    CatalogConflictError,
    ConfigError,
    Kip848Error,
    MessageValueError,
    OtherClusterError,
    UnsupportedVersionError,
    error_for_code,
)
from kip848_client.wire.messages.describe_groups import DescribedGroup

_LASTING: Final = (AuthenticationError, OtherClusterError, UnsupportedVersionError, ConfigError, MessageValueError)
_PASSING: Final = RETRIABLE | {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.PRODUCER_FENCED,  # of a token that another request took
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Codes that another request may not meet; every other one is a refusal that lasts."""

_CONFLICT: Final = "catalogue conflict"

_ADVICE: Final[Mapping[int, str]] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "grant Read on the group to the user of this worker",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "grant Describe and Write on the transactional ids with the prefix 'kip848-worker/<group>/' to the user of "
        "this worker: the fencing tokens are their epochs"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: "raise group.max.size of the brokers, or start fewer workers",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms must be between the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms"
    ),
}


def may_pass(error: Kip848Error) -> bool:
    """Whether the same request may work later although nobody changes anything."""
    if isinstance(error, BrokerError):
        return error.code in _PASSING
    return not isinstance(error, _LASTING)


def refusal(code: int, text: str, *, elects: bool) -> BrokerError:
    """The error of a worker that *code* stops, with the way out.

    Args:
        text: the request, and what it was about; or what the coordinator wrote.
        elects: the worker stands behind an election.
    """
    if code == ErrorCode.INVALID_REQUEST and _CONFLICT in text:
        advice = (
            "all processes of a group elect one leader, under one name: give each election a group.id of its own"
            if elects
            else "give all workers of a group the same list, raise units.version to change it, and give another "
            "program a group.id of its own"
        )
        return CatalogConflictError(f"{text}; {advice}", code=code)
    advised = _ADVICE.get(code)
    error = error_for_code(code, f"{text}; {advised}" if advised else text)
    error.fatal = not may_pass(error)
    return error


def conflict(version: int, *, units: Iterable[str], others: Iterable[str]) -> str:
    """What a worker is told that has another list of units than its group under the same version.

    Args:
        units: names that this worker does not have.
        others: names that only this worker has.
    """
    missing, more = sorted(units), sorted(others)
    differences = [f"this worker lacks {_some(missing)}"] if missing else []
    differences += [f"only this worker has {_some(more)}"] if more else []
    return f"{_CONFLICT}: the group has another list of units with version {version}: {'; '.join(differences)}"


def _some(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(map(repr, listed[:3])) + (f" and {len(listed) - 3:,} more" if len(listed) > 3 else "")


def group_users(group: DescribedGroup | None, group_id: str, *, protocol_type: str) -> str:
    """Why a group can't be joined: who uses it. *group* is what DescribeGroups tells; None if it is refused."""
    advice = f"give the workers a group.id of their own; `kip848 groups describe {group_id}` shows the group"
    if group is None:
        return f"the group is used by other members than workers with this assignor; {advice}"
    if group.error_code or not group.protocol_type:
        kinds = "consumers with group.protocol=consumer, a share or a streams group"
        return f"it is a group of another kind: {kinds}; {advice}"
    clients = _some({member.client_id for member in group.members})
    if group.protocol_type != protocol_type:
        return f"it is a group of type {group.protocol_type!r}, whose members have the client ids {clients}; {advice}"
    return (
        f"its workers ({clients}) use the assignor {group.protocol_data!r}, which this one does not have: all workers "
        "of a group must have one assignor in common"
    )
