"""JSON Web Tokens by which a client proves who it is to an issuer (RFC 7523): read from a file, or signed here.

The only home of ``cryptography`` for signing.
"""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any, ClassVar, Final

from kip848_client.common.model import Confidential
from kip848_client.errors import AuthenticationError, ConfigError, ConnectionLostError
from kip848_client.logins.source import library_of_extra
from kip848_client.logins.token_file import read_text

ALGORITHMS: Final = ("RS256", "ES256")
_PREFIX: Final = "sasl.oauthbearer.assertion"
_COORDINATE_BYTES: Final = 32
"""Of a point of the curve P-256 (RFC 7518, 3.4)."""


class AssertionSettings(Confidential, frozen=True):
    """Where an assertion comes from: `file`, or a private key that signs one.

    Attributes:
        file: has the assertion itself; read for each token, because others renew it.
        key_file, key_pem: the private key, as a PEM file or as text.
        passphrase: of the private key.
        template_file: JSON with ``header`` and ``payload``, to which the claims are added.
        life_s, before_s: the assertion ends that much later, and begins that much earlier than now.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"key_pem", "passphrase"})

    file: str | None = None
    key_file: str | None = None
    key_pem: str | None = None
    passphrase: str | None = None
    algorithm: str = "RS256"
    audience: str | None = None
    issuer: str | None = None
    subject: str | None = None
    life_s: int = 300
    before_s: int = 60
    with_id: bool = False
    template_file: str | None = None

    def make(self, now_s: float) -> str:
        """An assertion for one question.

        Raises:
            ConnectionLostError: the file cannot be read now.
            AuthenticationError: the key or the template cannot be used.
        """
        if self.file is not None:
            return read_text(self.file, key=f"{_PREFIX}.file")
        header, claims = self._template()
        header = {"typ": "JWT", **header, "alg": self.algorithm}
        own = {"iss": self.issuer, "sub": self.subject, "aud": self.audience}
        claims |= {name: text for name, text in own.items() if text is not None}
        claims |= {"iat": int(now_s), "exp": int(now_s) + self.life_s, "nbf": int(now_s) - self.before_s}
        if self.with_id:
            claims["jti"] = str(uuid.uuid4())
        signed = f"{_encoded(json.dumps(header).encode())}.{_encoded(json.dumps(claims).encode())}"
        return f"{signed}.{_encoded(self._sign(signed.encode()))}"

    def check(self) -> None:
        """See at once what would fail later.

        Raises:
            ConfigError: cryptography is not installed, or a file is missing or cannot be used.
        """
        try:
            if self.file is None:
                self.make(0.0)
        except (AuthenticationError, ConnectionLostError) as error:
            raise ConfigError(str(error)) from error

    def _template(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.template_file is None:
            return {}, {}
        key = f"{_PREFIX}.jwt.template.file"
        try:
            template = json.loads(read_text(self.template_file, key=key))
        except (ValueError, RecursionError):
            template = None
        parts = [template.get(name, {}) for name in ("header", "payload")] if isinstance(template, dict) else []
        if not parts or not all(isinstance(part, dict) for part in parts):
            raise AuthenticationError(f"{key}: {self.template_file} is not JSON with the objects header and payload")
        header, claims = parts
        return dict(header), dict(claims)

    def _sign(self, text: bytes) -> bytes:
        with library_of_extra(
            "signing an assertion needs cryptography: pip install 'kip848_client[jwt]', or let another program "
            f"write the assertion, and set {_PREFIX}.file"
        ):
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
        if self.key_pem is not None:
            name, pem = f"{_PREFIX}.private.key.pem", self.key_pem
        else:
            name = f"{_PREFIX}.private.key.file"
            pem = read_text(self.key_file or "", key=name)
        try:
            key = serialization.load_pem_private_key(
                pem.encode(), None if self.passphrase is None else self.passphrase.encode()
            )
        except (ValueError, TypeError, _unsupported()) as error:
            raise AuthenticationError(
                f"{name} cannot be read as a PEM private key, or {_PREFIX}.private.key.passphrase does not open it"
            ) from error
        if self.algorithm == "RS256" and isinstance(key, rsa.RSAPrivateKey):
            return key.sign(text, padding.PKCS1v15(), hashes.SHA256())
        if self.algorithm == "ES256" and isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
            first, second = utils.decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA256())))
            return first.to_bytes(_COORDINATE_BYTES, "big") + second.to_bytes(_COORDINATE_BYTES, "big")
        wanted = "an RSA key" if self.algorithm == "RS256" else "a key of the curve P-256"
        raise AuthenticationError(f"{_PREFIX}.algorithm={self.algorithm} needs {wanted}; {name} is another one")


def _unsupported() -> type[Exception]:
    from cryptography.exceptions import UnsupportedAlgorithm

    return UnsupportedAlgorithm


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
