"""Which names a topic may have."""

from __future__ import annotations

import re
from typing import Final

from kip848_client.errors import BrokerError, ErrorCode

_NAME_LENGTH_MAX: Final = 249
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Refuse what Kafka refuses as a topic name.

    Raises:
        BrokerError: INVALID_TOPIC_EXCEPTION.

    Source:
        apache/kafka ``Topic.validate``.
    """
    if not name:
        fault = "the empty string is not allowed"
    elif name in (".", ".."):
        fault = "'.' or '..' is not allowed"
    elif len(name) > _NAME_LENGTH_MAX:
        fault = f"the length of '{name[:32]}...' is longer than the max allowed length {_NAME_LENGTH_MAX}"
    elif not _NAME.fullmatch(name):
        fault = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise BrokerError(f"Topic name is invalid: {fault}", code=ErrorCode.INVALID_TOPIC_EXCEPTION)
