"""UpdateFeatures (57): checked as by Kafka; a level that differs from the present one is refused.

Which features a broker has is decided at its start (``kip848.transaction.version``).

Source:
    apache/kafka ``FeatureControlManager.updateFeature``; KIP-584, KIP-1022.
"""

from __future__ import annotations

from typing import Final

from kip848_client.common.error_codes import ErrorCode
from kip848_client.testing.broker.apis._permissions import whole_cluster
from kip848_client.testing.broker.apis.api_versions import features
from kip848_client.testing.broker.metadata.acls import Operation
from kip848_client.testing.broker.net.context import RequestContext
from kip848_client.testing.broker.state import BrokerState
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

API_KEY: Final = ApiKey.UPDATE_FEATURES
VERSIONS: Final = (0, 2)

_FIRST_VERSION_WITHOUT_RESULTS: Final = 2
_UPGRADE: Final = 1
_UNSAFE_DOWNGRADE: Final = 3

requires: Final = whole_cluster(Operation.ALTER)


def handle(broker: BrokerState, request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Refuse what would be a change; the first refusal is the answer, in every version."""
    problems = (_problem(broker, update, by_type=context.api_version >= 1) for update in request.feature_updates)
    first = next((problem for problem in problems if problem is not None), None)
    if first is None:
        named = request.feature_updates if context.api_version < _FIRST_VERSION_WITHOUT_RESULTS else ()
        return UpdateFeaturesResponse(results=tuple(UpdatableFeatureResult(feature=each.feature) for each in named))
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION,
        error_message=f"The update failed for all features since the following feature had an error: {first}",
    )


def _problem(broker: BrokerState, update: FeatureUpdateKey, *, by_type: bool) -> str | None:
    level = update.max_version_level
    begin = f"Invalid update version {level} for feature {update.feature}. "
    feature = features(broker).get(update.feature)
    if feature is None:
        return f"{begin}Local controller {broker.placement.controller} does not support this feature."
    if level < 0:
        return f"{begin}A feature version cannot be less than 0."
    if not feature.lowest <= level <= feature.highest:
        supported = f"{feature.lowest}-{feature.highest}"
        return f"{begin}Local controller {broker.placement.controller} only supports versions {supported}"
    kind = update.upgrade_type if by_type else _UNSAFE_DOWNGRADE if update.allow_downgrade else _UPGRADE
    if not _UPGRADE <= kind <= _UNSAFE_DOWNGRADE:
        return f"{begin}The controller does not support the given upgrade type."
    if level == feature.level:
        return None
    if level < feature.level and kind == _UPGRADE:
        return (
            f"{begin}Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            f"unsafe downgrade."
        )
    return (
        f"{begin}The embedded broker has level {feature.level} and keeps it; transaction.version is set at the start "
        f"(kip848.transaction.version)."
    )
