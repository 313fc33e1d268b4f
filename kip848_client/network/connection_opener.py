"""The only place that opens connections of the control plane, with the security that the configuration asks for."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

import anyio.abc

from kip848_client.common.addresses import is_loopback
from kip848_client.common.logs import LogEvent, log_event
from kip848_client.common.model import TlsSettings
from kip848_client.config import ConsumerConfig
from kip848_client.config.security import ALLOW_UNENCRYPTED
from kip848_client.errors import AuthenticationError, IllegalStateError
from kip848_client.network.request_sender import BrokerConnection
from kip848_client.wire.connection import connect

if TYPE_CHECKING:
    from kip848_client.network.credentials import Credentials


class ConnectionOpener:
    """Opens one connection of the control plane per call, with the same security as the data plane.

    Without encryption, a readable password or token is sent only to brokers on this machine, unless
    ``kip848.allow.unencrypted.credentials`` is set. It does not matter whether the configuration or the cluster named
    the broker.

    Raises:
        ConfigError: a certificate, key or authority cannot be read.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        security = config.security
        self._client_id = config.client_id
        self._security = security
        self.ssl_context: ssl.SSLContext | None = None
        """None without TLS."""
        self.sasl_client: Credentials | None = None
        """None without a login."""
        if security.tls is not None:
            from kip848_client.wire.tls import client_context  # imported here: plaintext does not need it

            self.ssl_context = client_context(security.tls)
            _warn_if_unverified(security.tls)
        if security.sasl is not None:
            from kip848_client.network.credentials import Credentials  # imported here: only a login needs it

            self.sasl_client = Credentials(security.sasl, token_timeout_ms=config.request_timeout_ms)

    def set_user(self, username: str, password: str) -> None:
        """Log in as this user from the next login on.

        Raises:
            IllegalStateError: there is no login, or it is with tokens.
            ConfigError: a value cannot be sent.
        """
        if self.sasl_client is None:
            raise IllegalStateError("set_sasl_credentials() needs a login; set security.protocol and sasl.mechanism")
        self.sasl_client.set_user(username, password)

    async def __call__(
        self,
        *,
        host: str,
        port: int,
        timeout_ms: int,
        tasks: anyio.abc.TaskGroup,
        cluster_id: str | None = None,
        node_id: int = -1,
    ) -> BrokerConnection:
        """Connect, agree on versions, and log in.

        Args:
            cluster_id, node_id: the broker that is meant, if both are known.

        Raises:
            BrokerError: REBOOTSTRAP_REQUIRED: it is another broker.
            AuthenticationError: the broker is not on this machine, and the secret would be sent unencrypted.
        """
        self.check_address(host, port)
        return await connect(
            host,
            port,
            client_id=self._client_id,
            task_group=tasks,
            ssl_context=self.ssl_context,
            sasl_client=self.sasl_client,
            connect_timeout_ms=timeout_ms,
            cluster_id=cluster_id,
            node_id=node_id,
        )

    def check_address(self, host: str, port: int) -> None:
        """Refuse a broker to which the secret would be sent unencrypted.

        Raises:
            AuthenticationError: as `__call__`; nothing was sent.
        """
        if self._security.loopback_only and not is_loopback(host):
            assert self._security.sasl is not None
            raise AuthenticationError(
                f"the cluster names a broker at {host}:{port}, which is not on this machine, and sasl.mechanism="
                f"{self._security.sasl.mechanism} over sasl_plaintext would send the secret unencrypted; "
                f"nothing was sent. Use sasl_ssl or a SCRAM mechanism, or set {ALLOW_UNENCRYPTED}=true if "
                "that network is trusted"
            )


def _warn_if_unverified(tls: TlsSettings) -> None:
    if not tls.verify_certificate:
        key = "enable.ssl.certificate.verification=false"
        log_event(logging.WARNING, LogEvent.NOT_VERIFIED, key=key, means="any server is accepted as the broker")
    elif not tls.verify_host_name:
        key = "ssl.endpoint.identification.algorithm=none"
        log_event(logging.WARNING, LogEvent.NOT_VERIFIED, key=key, means="any trusted certificate is taken")
