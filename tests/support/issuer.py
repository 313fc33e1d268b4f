"""An issuer of tokens on loopback: a token endpoint, its keys (JWKS), and Azure's metadata service. For tests."""

from __future__ import annotations

import base64
import json
import math
import ssl
import threading
import time
import urllib.parse
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.security.certificates import Identity

CLIENT: Final = "orders-service"
SECRET: Final = "canary-of-the-client"
AUDIENCE: Final = "kafka"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"


class Asked(msgspec.Struct, frozen=True):
    """One request."""

    method: str
    path: str
    form: Mapping[str, str]
    headers: Mapping[str, str]


class Issuer:
    """Issues tokens that are signed with a key of its own.

    Args:
        life_s: of each token.
        identity: its certificate; without one it speaks plain HTTP.
    """

    def __init__(self, *, life_s: float = 3_600, identity: Identity | None = None) -> None:
        self.life_s = life_s
        self.answer: tuple[int, bytes] | None = None
        """Status and body in place of a token."""
        self.away = False
        """Whether it hangs up without an answer."""
        self.asked: Final[list[Asked]] = []
        self.tokens: Final[list[str]] = []
        """All that it issued."""
        self.last_ends_s = 0.0
        """When the latest of them ends."""
        self.secret = SECRET
        self.audience = AUDIENCE
        self.client_keys: Final[list[Any]] = []
        """Public keys that sign assertions."""
        self._key: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._server: Final = _Server(("127.0.0.1", 0), self)
        self._scheme: Final = "http" if identity is None else "https"
        if identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(identity.certificate, identity.key)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread: Final = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base(self) -> str:
        """Address without a path."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The token endpoint."""
        return f"{self.base}/token"

    def login(self, **more: str) -> dict[str, Any]:
        """What a client sets; underscores in names of *more* are dots."""
        own = {f"sasl.oauthbearer.{name.replace('_', '.')}": text for name, text in more.items()}
        return {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "kip848.allow.unencrypted.credentials": "true",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.url,
            "sasl.oauthbearer.client.id": CLIENT,
            "sasl.oauthbearer.client.secret": SECRET,
            **own,
        }

    def issue(self, subject: str = CLIENT, *, life_s: float | None = None) -> str:
        """A token."""
        now_s = time.time()
        claims: dict[str, Any] = {
            "iss": self.base,
            "aud": self.audience,
            "sub": subject,
            "scope": "kafka",
            "iat": int(now_s) - 1,
            # A whole number, as brokers want it, and not before the end that the client is told.
            "exp": math.ceil(now_s + (self.life_s if life_s is None else life_s)),
            "jti": str(len(self.tokens)),
        }
        self.last_ends_s = max(self.last_ends_s, claims["exp"])
        text = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "1"}, claims))
        token = f"{text}.{encoded(self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
        self.tokens.append(token)
        return token

    def validate(self, token: str) -> tuple[str, float]:
        """As `BrokerSasl.validate_token`: whose token it is, and when it ends."""
        text, _, signature = token.rpartition(".")
        self._key.public_key().verify(decoded(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256())
        claims = json.loads(decoded(text.partition(".")[2]))
        assert claims["exp"] > time.time()
        return claims["sub"], claims["exp"]

    def jwks(self) -> dict[str, Any]:
        """The public key, as brokers ask for it."""
        numbers = self._key.public_key().public_numbers()
        parts = {
            name: encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))
            for name, number in (("n", numbers.n), ("e", numbers.e))
        }
        return {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", **parts}]}

    def reply(self, asked: Asked) -> tuple[int, bytes]:
        """Status and body for a request."""
        if asked.path.startswith("/jwks"):
            return 200, json.dumps(self.jwks()).encode()
        self.asked.append(asked)
        if self.answer is not None:
            return self.answer
        if asked.path.startswith("/metadata/"):
            query = dict(urllib.parse.parse_qsl(asked.path.partition("?")[2]))
            known = asked.headers.get("Metadata") == "true" and "resource" in query
            return self._token("managed identity", as_text=True) if known else (400, b'{"error":"invalid_request"}')
        subject = self._subject(asked)
        if subject is None:
            told = {"error": "invalid_client", "error_description": f"no such client or secret {asked.form}"}
            return 401, json.dumps(told).encode()
        return self._token(subject)

    def _token(self, subject: str, *, as_text: bool = False) -> tuple[int, bytes]:
        life: object = str(self.life_s) if as_text else self.life_s
        answer = {"access_token": self.issue(subject), "token_type": "Bearer", "expires_in": life}
        return 200, json.dumps(answer).encode()

    def _subject(self, asked: Asked) -> str | None:
        form = asked.form
        assertion = form.get("assertion" if form.get("grant_type") == JWT_BEARER else "client_assertion")
        if assertion is not None:
            return self._signed_by_client(assertion)
        basic = base64.b64encode(f"{CLIENT}:{self.secret}".encode()).decode()
        is_right = form.get("grant_type") == "client_credentials" and asked.headers.get("Authorization")
        return CLIENT if is_right == f"Basic {basic}" else None

    def _signed_by_client(self, assertion: str) -> str | None:
        text, _, signature = assertion.rpartition(".")
        for key in self.client_keys:
            key.verify(decoded(signature), text.encode(), padding.PKCS1v15(), hashes.SHA256())
            claims = json.loads(decoded(text.partition(".")[2]))
            return str(claims.get("sub") or claims["iss"])
        return "bearer of the assertion" if assertion == "canary-assertion" else None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], issuer: Issuer) -> None:
        self.issuer: Final = issuer
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up, or does not trust the certificate, is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    timeout = 60
    server: _Server

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        self._answer(dict(urllib.parse.parse_qsl(body)))

    def _answer(self, form: dict[str, str]) -> None:
        if self.server.issuer.away:
            self.close_connection = True
            return
        asked = Asked(self.command, self.path, form, dict(self.headers.items()))
        status, body = self.server.issuer.reply(asked)
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", body.decode())
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  its name
        """Nothing."""


def client_key() -> tuple[Any, str]:
    """A private key, and the same as PEM text."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key, pem.decode()


def encoded(data: bytes) -> str:
    """Base64 as in JSON Web Tokens."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decoded(text: str) -> bytes:
    """The opposite of `encoded`."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
