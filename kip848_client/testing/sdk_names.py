"""Names of the consumer's house that tests of programs need, for `kip848_client.testing`."""

from kip848_client.common.clock import ManualClock
from kip848_client.common.model import NamedPartition
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.sasl.unsecured_jws import unsecured_token

__all__ = ["ApiKey", "ManualClock", "NamedPartition", "unsecured_token"]
