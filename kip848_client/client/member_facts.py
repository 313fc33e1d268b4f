"""What a consumer tells of its membership, and as whom it logs in.

Part of `Consumer`, apart from it only to keep each file about one thing.
"""

from __future__ import annotations

from kip848_client.client.connection_opener import ConnectionOpener
from kip848_client.client.data_plane import check_group_metadata_layout, group_metadata_bytes
from kip848_client.client.fetcher import Fetcher
from kip848_client.client.group_member import GroupMember
from kip848_client.client.heartbeat_manager import HeartbeatRequestManager
from kip848_client.client.ownership import OneThread
from kip848_client.config import ConfigValue, ConsumerConfig
from kip848_client.member.states import MemberState


class MemberFacts:
    """Who this member is."""

    _config: ConsumerConfig
    _data_plane: dict[str, ConfigValue]
    _fetcher: Fetcher
    _gate: OneThread
    _group: GroupMember
    _layout_checked: bool
    _manager: HeartbeatRequestManager
    _opener: ConnectionOpener

    @property
    def state(self) -> MemberState:
        """What the member is doing: UNJOINED, STABLE, RECONCILING, RELEASING_ASSIGNMENT or FATAL."""
        return MemberState.FATAL if self._group.thread.fatal is not None else self._group.view.state

    @property
    def member_id(self) -> str:
        """The id of this member; made by the client, the same as long as the consumer lives."""
        return self._group.view.member_id

    @property
    def member_epoch(self) -> int:
        """The epoch of the member; -1 outside the group."""
        return self._group.view.member_epoch

    def memberid(self) -> str:
        """`member_id`, as confluent_kafka spells it."""
        return self.member_id

    def group_metadata(self) -> bytes:
        """What ``producer.send_offsets_to_transaction(offsets, ...)`` needs.

        Ask for it at the time of sending: the epoch moves. A member that was removed, or left, goes on naming itself by
        the last epoch that it had: so its transaction is refused. Without an epoch the coordinator would accept its
        offsets, even of partitions that another member has processed since.

        Raises:
            Kip848Error: the installed librdkafka lays these bytes out differently.
        """
        with self._gate:
            if not self._layout_checked:
                check_group_metadata_layout(self._fetcher.plane, group_id=self._config.group_id)
                self._layout_checked = True
            joined = self._manager.last_joined
            member_id, member_epoch = ("", -1) if joined is None or self._group.manual else joined
            return group_metadata_bytes(
                group_id=self._config.group_id,
                member_epoch=member_epoch,
                member_id=member_id,
                instance_id=self._config.group_instance_id,
            )

    consumer_group_metadata = group_metadata

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in as this user from the next connection on, and whenever a session is renewed; for PLAIN and SCRAM.

        Connections that are open stay as they are. A consumer that brokers refused already (`AuthenticationError`) is
        not revived: make a new one.

        Raises:
            IllegalStateError: the consumer does not log in with a user and a password.
        """
        with self._gate:
            self._group.check_usable()
            self._opener.set_user(username, password)
            self._fetcher.plane.set_sasl_credentials(username, password)
            self._data_plane.update({"sasl.username": username, "sasl.password": password})
