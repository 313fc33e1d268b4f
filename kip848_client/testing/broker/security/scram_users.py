"""Users who can log in by SCRAM and PLAIN: the broker's own, with changes by AlterUserScramCredentials.

Changes are kept in the data folder if there is one. They win over the users that the broker is given at its next start.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kip848_client.testing.broker.net.listener_security import BrokerSasl
from kip848_client.testing.broker.storage.cluster_log import CredentialKey
from kip848_client.wire.sasl.scram import SCRAM_MECHANISMS, ScramCredential, make_credential

if TYPE_CHECKING:
    from kip848_client.testing.broker.storage.data_dir import DataDir

SALT_BYTES: Final = 16


class ScramChanges:
    """Credentials that were set or deleted while the broker ran; None stands for a deletion.

    Args:
        data_dir: where they are kept; its content is loaded.
    """

    def __init__(self, data_dir: DataDir | None = None) -> None:
        self._data_dir: Final = data_dir
        self._changes: Final[dict[CredentialKey, ScramCredential | None]] = (
            {} if data_dir is None else dict(data_dir.scram_changes())
        )

    def items(self) -> list[tuple[CredentialKey, ScramCredential | None]]:
        """All changes."""
        return list(self._changes.items())

    def add(self, changes: Mapping[CredentialKey, ScramCredential | None]) -> None:
        """Remember changes.

        Raises:
            DataDirError: they could not be written; everything is as before.
        """
        if self._data_dir is not None and changes:
            self._data_dir.change_scram(changes)
        self._changes.update(changes)

    def clear(self) -> None:
        """Forget all changes: the users that the broker was given are valid again.

        Raises:
            DataDirError: that could not be written; everything is as before.
        """
        if self._data_dir is not None and self._changes:
            self._data_dir.forget_scram_changes()
        self._changes.clear()


class Users:
    """The users of one broker.

    Args:
        sasl: those that it was given, and the mechanisms that it offers; None without logins.
        changes: what was altered since.
    """

    def __init__(self, sasl: BrokerSasl | None, changes: ScramChanges) -> None:
        self._changes: Final = changes
        self._give(sasl)

    @property
    def passwords(self) -> Mapping[str, str]:
        """For PLAIN, by user. AlterUserScramCredentials does not change them, as in Kafka."""
        return self._passwords

    def credential(self, user: str, mechanism: str) -> ScramCredential | None:
        """The credential of a user for a SCRAM mechanism; None without one."""
        return self._credentials.get((user, mechanism))

    def scram_users(self) -> dict[str, dict[str, ScramCredential]]:
        """User -> mechanism -> credential, by name."""
        found: dict[str, dict[str, ScramCredential]] = {}
        for (user, mechanism), credential in sorted(self._credentials.items(), key=lambda item: item[0]):
            found.setdefault(user, {})[mechanism] = credential
        return found

    def replace(self, sasl: BrokerSasl) -> None:
        """From now on only these may log in.

        Raises:
            DataDirError: it could not be kept; everything is as before.
        """
        self._changes.clear()
        self._give(sasl)

    def alter(self, changes: Mapping[CredentialKey, ScramCredential | None]) -> None:
        """Set credentials, or delete them (None).

        Raises:
            DataDirError: it could not be kept; everything is as before.
        """
        self._changes.add(changes)
        self._apply(changes)

    def _give(self, sasl: BrokerSasl | None) -> None:
        self._passwords = {} if sasl is None else dict(sasl.users)
        self._credentials = {
            (user, mechanism): make_credential(mechanism, password, salt=secrets.token_bytes(SALT_BYTES))
            for mechanism in (() if sasl is None else sasl.mechanisms)
            if mechanism in SCRAM_MECHANISMS
            for user, password in self._passwords.items()
        }
        self._apply(dict(self._changes.items()))

    def _apply(self, changes: Mapping[CredentialKey, ScramCredential | None]) -> None:
        for key, credential in changes.items():
            if credential is None:
                self._credentials.pop(key, None)
            else:
                self._credentials[key] = credential
