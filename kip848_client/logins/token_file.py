"""A token that another program keeps in a file, as Kubernetes does. Read again if the file changes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kip848_client.common.model import OAuthToken
from kip848_client.errors import AuthenticationError, ConnectionLostError
from kip848_client.logins.source import token_of_text

_SIZE_MAX: Final = 1_048_576


class TokenFile:
    """Reads the token from *path*, and again when the file is another one or its token grows old.

    Args:
        extensions: SASL extensions that go with each token.
        subject_claim: the claim that names the user, for messages.
    """

    def __init__(self, path: str, *, extensions: tuple[tuple[str, str], ...] = (), subject_claim: str = "sub") -> None:
        self._path: Final = path
        self._extensions: Final = extensions
        self._subject_claim: Final = subject_claim
        self._read: tuple[int, int, int] | None = None

    @property
    def name(self) -> str:
        """What it is, for messages."""
        return f"the token file {self._path}"

    def fetch(self, now_s: float) -> OAuthToken:
        """Read the file.

        Raises:
            ConnectionLostError: it cannot be read now, is empty, or its token has expired.
            AuthenticationError: it has no token.
        """
        mark = self._mark()
        text = read_text(self._path, key="sasl.oauthbearer.token.endpoint.url")
        token = token_of_text(
            text, now_s=now_s, who=self.name, extensions=dict(self._extensions), subject_claim=self._subject_claim
        )
        if token.expires_s <= now_s:
            raise ConnectionLostError(
                f"{self.name} has a token that expired {now_s - token.expires_s:.0f} s ago; see to the program that "
                "renews the file"
            )
        self._read = mark
        return token

    def has_changed(self) -> bool:
        """Whether the file is not the one that was read last."""
        return self._read is not None and self._mark() not in (None, self._read)

    def _mark(self) -> tuple[int, int, int] | None:
        try:
            found = Path(self._path).stat()
        except OSError:
            return None  # it is being replaced; the last token is still good
        return found.st_mtime_ns, found.st_ino, found.st_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenFile) and self._settings == other._settings

    def __hash__(self) -> int:
        return hash(self._settings)

    def __reduce__(self) -> tuple[object, ...]:
        return _made, self._settings

    @property
    def _settings(self) -> tuple[str, tuple[tuple[str, str], ...], str]:
        return self._path, self._extensions, self._subject_claim


def _made(path: str, extensions: tuple[tuple[str, str], ...], subject_claim: str) -> TokenFile:
    return TokenFile(path, extensions=extensions, subject_claim=subject_claim)


def read_text(path: str, *, key: str) -> str:
    """The text of the file that *key* names, without the spaces around it. The text is in no message.

    Raises:
        ConnectionLostError: it cannot be read now, or is empty: it may be replaced at this moment.
        AuthenticationError: it is no text, or too long for a token or a key.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_SIZE_MAX + 1)
        text = data.decode("utf-8-sig").strip()
    except OSError as error:
        raise ConnectionLostError(f"{key}: {path}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise AuthenticationError(f"{key}: {path} is not text") from None
    if len(data) > _SIZE_MAX:
        raise AuthenticationError(f"{key}: {path} has more than {_SIZE_MAX} bytes")
    if not text:
        raise ConnectionLostError(f"{key}: {path} is empty")
    return text
