"""UpdateFeatures (57): other levels of features (KIP-584). 1: kinds of downgrades, dry runs. 2: one error for all."""

from __future__ import annotations

from typing import Annotated, ClassVar

from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.schema import (
    Int8,
    Int16,
    Int32,
    MessageSpec,
    Request,
    Response,
    WireStruct,
    request,
    response,
    wire,
)


class FeatureUpdateKey(WireStruct, frozen=True):
    """A feature; level 0 switches it off. Type 1 allows upgrades only, 2 safe downgrades, 3 unsafe ones."""

    feature: Annotated[str, wire("0+")] = ""
    max_version_level: Annotated[Int16, wire("0+")] = 0
    allow_downgrade: Annotated[bool, wire("0")] = False
    upgrade_type: Annotated[Int8, wire("1+")] = 1


class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"], frozen=True):
    """The features with their new levels."""

    WIRE: ClassVar[MessageSpec] = request(
        ApiKey.UPDATE_FEATURES, "0-2", flexible="0+", answered_by={"feature_updates": "results"}
    )

    timeout_ms: Annotated[Int32, wire("0+")] = 60_000
    feature_updates: Annotated[tuple[FeatureUpdateKey, ...], wire("0+")] = ()
    validate_only: Annotated[bool, wire("1+")] = False


class UpdatableFeatureResult(WireStruct, frozen=True):
    """Whether the feature has the level."""

    feature: Annotated[str, wire("0+")] = ""
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None


class UpdateFeaturesResponse(Response, frozen=True):
    """One result for each feature, from version 2 on one for all."""

    WIRE: ClassVar[MessageSpec] = response(ApiKey.UPDATE_FEATURES, "0-2", flexible="0+")

    throttle_time_ms: Annotated[Int32, wire("0+")] = 0
    error_code: Annotated[Int16, wire("0+")] = 0
    error_message: Annotated[str | None, wire("0+", nullable="0+")] = None
    results: Annotated[tuple[UpdatableFeatureResult, ...], wire("0-1", ignorable=True)] = ()
