"""Builds answers with an error code for every API and version, and cuts requests in two to refuse only a part.

Data decides where a code goes. Each request declares which array of the answer has an element for each element of its
arrays (`MessageSpec.answered_by`). If an API has room for a code at both levels, `_FITS` lists the codes that mean a
single element, and `_AT_BOTH_LEVELS` the APIs whose answers repeat the code of the whole in each element. The declared
fields say the rest.

Source:
    apache/kafka ``AbstractRequest.getErrorResponse`` of each API, whose values are used, such as -1 for an unknown one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.faults.subject import Element, TopicNames, item_of
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages import message_pair
from kip848_client.wire.schema import RECORDS, ArrayOf, FieldSpec, Request, Response, Scalar, WireStruct, fields_of

MessageT = TypeVar("MessageT", bound=WireStruct)

Wanted = Callable[[Element], bool]
"""Whether an element of a request or answer is meant; an element is one of its parents' business too."""

_SESSION_CODES: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
_PARTITION_CODES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    }
)

_FITS: Final[dict[int, Callable[[int], bool]]] = {
    ApiKey.FETCH: lambda code: code not in _SESSION_CODES,
    ApiKey.METADATA: lambda code: code != ErrorCode.REBOOTSTRAP_REQUIRED,
    ApiKey.OFFSET_FETCH: lambda code: code in _PARTITION_CODES,
    ApiKey.OFFSET_DELETE: lambda code: code in _PARTITION_CODES,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda code: code in _PARTITION_CODES,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda code: code in _PARTITION_CODES,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda code: code in _PARTITION_CODES,
    ApiKey.LEAVE_GROUP: lambda code: code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID),
}
"""APIs with a place for the whole answer and one for each element -> whether a code belongs to the element."""

_AT_BOTH_LEVELS: Final = frozenset(
    {
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    }
)
"""APIs whose whole refusal has its elements, too. Java's Admin looks for each element that it asked for first."""

_IDENTITY: Final = frozenset(
    {
        "entity_name",
        "entity_type",
        "group_id",
        "group_instance_id",
        "index",
        "member_id",
        "name",
        "partition",
        "partition_index",
        "producer_id",
        "resource_name",
        "resource_type",
        "topic",
        "topic_id",
        "topic_name",
        "transactional_id",
    }
)
"""Fields that say which element is answered."""

_OTHER_NAMES: Final = {"partition_index": ("partition", "index"), "topic_name": ("name",)}
"""Field that says which element is answered -> its other names in the request."""

_CODES: Final = ("error_code", "partition_error_code")

_UNKNOWN: Final = frozenset(
    {
        "base_offset",
        "committed_offset",
        "end_offset",
        "generation_id",
        "high_watermark",
        "last_stable_offset",
        "log_append_time_ms",
        "log_start_offset",
        "low_watermark",
        "node_id",
        "num_partitions",
        "offset",
        "port",
        "producer_epoch",
        "producer_id",
        "replication_factor",
        "timestamp",
    }
)
"""Fields that are -1 beside an error."""


_KEPT: Final = frozenset({"api_keys", "brokers", "entity", "node_endpoints", "record_errors"})
"""Arrays that are kept in an answer with an error. Others are emptied, because their values would be wrong."""


def answers_by_element(api_key: int) -> bool:
    """Whether an answer has elements, so that a part of a request can be refused."""
    return bool(_answered_by(api_key))


def _answered_by(api_key: int) -> Mapping[str, str]:
    return message_pair(api_key).request.WIRE.answered_by


class ErrorPlacer:
    """Puts one error code into answers of one API and version.

    Args:
        message: goes wherever the answer has room for one; None leaves it empty.
        wanted: which elements get the code, if the fault is about single ones; None for the whole request.
    """

    def __init__(
        self,
        *,
        api_key: int,
        api_version: int,
        code: int,
        message: str | None,
        topic_name: TopicNames,
        wanted: Wanted | None = None,
    ) -> None:
        self._version: Final = api_version
        self._code: Final = code
        self._message: Final = message
        self._topic_name: Final = topic_name
        self._wanted: Final = wanted
        self._answered_by: Final = _answered_by(api_key)
        self._response_class: Final[type[Response]] = message_pair(api_key).response
        fits = _FITS.get(api_key)
        self._deepest: Final = fits is not None and fits(code)
        self._at_both_levels: Final = api_key in _AT_BOTH_LEVELS

    def refuse(self, request: Request[Response]) -> Response | None:
        """The answer that refuses *request*; None if this version of the API has no place for an error."""
        return self.mark(self.blank(request))

    def blank(self, request: Request[Response]) -> Response:
        """An answer with an element for each element of *request*, without results."""
        return self._blank(request, self._response_class, is_element=False)

    def mark(self, response: Response) -> Response | None:
        """*response* with the code in it; None if it has no place for one, or no element that is wanted."""
        marked, placed = self._mark(response, inside=Element(), wanted=self._wanted is None)
        return marked if placed else None

    # --- answers with one element for each element of the request

    def _blank(self, asked: object, cls: type[MessageT], *, is_element: bool) -> MessageT:
        values: dict[str, Any] = {}
        for field in fields_of(cls):
            if not field.versions.includes(self._version):
                continue
            if isinstance(field.kind, ArrayOf):
                if isinstance(field.kind.element, type):
                    values[field.name] = self._blank_elements(asked, field.name, field.kind.element)
            elif is_element and field.name in _IDENTITY:
                values.update(_identity(asked, field))
        return cls(**values)

    def _blank_elements(self, asked: object, name: str, cls: type) -> tuple[object, ...]:
        for array, answered_by in self._answered_by.items():
            if answered_by != name:
                continue
            elements = [asked]
            for step in array.split("."):
                elements = [each for holder in elements for each in getattr(holder, step, None) or ()]
            if elements:
                return tuple(self._blank_element(element, cls) for element in elements)
        return ()

    def _blank_element(self, element: object, cls: type) -> object:
        if isinstance(element, int | str):
            names = (
                ("partition_index", "partition_id")
                if isinstance(element, int)
                else ("group_id", "key", "name", "transactional_id")
            )
            known = {field.name for field in fields_of(cls)}
            return cls(**{name: element for name in names if name in known})
        return self._blank(element, cls, is_element=True)

    # --- the code into an answer

    def _mark(self, holder: MessageT, *, inside: Element, wanted: bool) -> tuple[MessageT, bool]:
        """*holder* with the code in it or below it, and whether there was a place."""
        fields = {field.name: field for field in _fields(holder) if field.versions.includes(self._version)}
        own = next((name for name in _CODES if name in fields), None)
        if wanted and own is not None and not self._deepest:
            below = self._mark_below(holder, fields, inside=inside, wanted=True) if self._at_both_levels else {}
            return replace(holder, **self._refused(fields, own) | below), True
        changes = self._mark_below(holder, fields, inside=inside, wanted=wanted)
        if changes:
            return replace(holder, **changes), True
        if wanted and own is not None:
            return replace(holder, **self._refused(fields, own)), True
        return holder, False

    def _mark_below(
        self, holder: WireStruct, fields: dict[str, FieldSpec], *, inside: Element, wanted: bool
    ) -> dict[str, Any]:
        """The arrays of *holder* with the code in their elements; only arrays in which it found a place."""
        changes: dict[str, Any] = {}
        for name in self._answered_by.values():
            elements = getattr(holder, name, None) if name in fields else None
            if elements:
                marked = [self._mark_element(element, name, inside=inside, wanted=wanted) for element in elements]
                if any(placed for _, placed in marked):
                    changes[name] = tuple(element for element, _ in marked)
        return changes

    def _mark_element(self, element: MessageT, array: str, *, inside: Element, wanted: bool) -> tuple[MessageT, bool]:
        item = item_of(element, array=array, topic_name=self._topic_name, inside=inside)
        return self._mark(element, inside=item, wanted=wanted or (self._wanted is not None and self._wanted(item)))

    def _refused(self, fields: dict[str, FieldSpec], own: str) -> dict[str, Any]:
        values: dict[str, Any] = {name: -1 for name in fields if name in _UNKNOWN}
        values[own] = self._code
        if "error_message" in fields:
            values["error_message"] = self._message
        for name, field in fields.items():
            if field.kind is RECORDS:
                values[name] = b""
            elif isinstance(field.kind, ArrayOf) and isinstance(field.kind.element, type) and name not in _KEPT:
                values[name] = ()
        return values


def refused(
    request: Request[Any], *, api_version: int, code: int, message: str | None = None, wanted: Wanted | None = None
) -> Any:
    """The answer that refuses *request* with one code, wherever its version has room for one.

    A topic without partitions has no room; it is answered as it was asked.

    Args:
        wanted: the elements that are refused; None for the whole request.
    """
    placer = ErrorPlacer(
        api_key=request.WIRE.api_key,
        api_version=api_version,
        code=code,
        message=message,
        topic_name=lambda _: None,
        wanted=wanted,
    )
    return placer.refuse(request) or placer.blank(request)


def split(
    request: MessageT, *, wanted: Wanted, api_key: int, topic_name: TopicNames
) -> tuple[MessageT | None, MessageT | None]:
    """Cut a request in two: the elements that are wanted, and the others. None where nothing is left.

    A request without elements (it asks for all that there is) is in the second half.
    """
    return _split(request, wanted, _answered_by(api_key), topic_name, Element())


def _split(
    holder: MessageT, wanted: Wanted, arrays: Mapping[str, str], topic_name: TopicNames, inside: Element
) -> tuple[MessageT | None, MessageT | None]:
    hit: dict[str, tuple[object, ...]] = {}
    rest: dict[str, tuple[object, ...]] = {}
    for field in _fields(holder):
        if field.name not in arrays or not getattr(holder, field.name):
            continue
        taken: list[object] = []
        left: list[object] = []
        for element in getattr(holder, field.name):
            item = item_of(element, array=field.name, topic_name=topic_name, inside=inside)
            if wanted(item):
                taken.append(element)
            elif isinstance(element, int | str):
                left.append(element)
            else:
                part, remainder = _split(element, wanted, arrays, topic_name, item)
                taken += [part] if part is not None else []
                left += [remainder] if remainder is not None else []
        hit[field.name], rest[field.name] = tuple(taken), tuple(left)
    if not hit:
        return None, holder
    return (
        replace(holder, **hit) if any(hit.values()) else None,
        replace(holder, **rest) if any(rest.values()) else None,
    )


def merge(first: MessageT, second: MessageT) -> MessageT:
    """Merge two answers to parts of one request: the elements of both.

    An element that both have (a topic of which each answers some partitions) is merged in turn. Other
    fields are taken from *first*, or from *second* if *first* has the default.
    """
    changes: dict[str, Any] = {}
    for field in _fields(first):
        mine, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(field.kind, ArrayOf) and isinstance(field.kind.element, type):
            changes[field.name] = _merged_elements(mine or (), other or ())
        elif mine == field.default:
            changes[field.name] = other
    return replace(first, **changes)


def _merged_elements(mine: tuple[WireStruct, ...], other: tuple[WireStruct, ...]) -> tuple[WireStruct, ...]:
    by_identity = {_identity_of(element): element for element in other}
    merged = []
    for element in mine:
        twin = by_identity.pop(_identity_of(element), None)
        merged.append(element if twin is None else merge(element, twin))
    return (*merged, *by_identity.values())


def _identity_of(element: WireStruct) -> tuple[object, ...]:
    return tuple(
        getattr(element, field.name)
        for field in _fields(element)
        if field.name in _IDENTITY or field.name in ("key", "node_id")
    )


def _fields(holder: WireStruct) -> tuple[FieldSpec, ...]:
    return fields_of(holder.__class__)


def _identity(asked: object, field: FieldSpec) -> dict[str, object]:
    names = (field.name, *_OTHER_NAMES.get(field.name, ()))
    for name in names:
        value = getattr(asked, name, None)
        if value is not None and isinstance(field.kind, Scalar):
            return {field.name: value}
    return {}
