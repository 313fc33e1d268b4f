"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): both sides prove to know the password, without showing it.

The client refuses a server that asks for fewer than 4,096 iterations (a proof that is easy to try passwords against),
for more than 131,072 (a minute of work for every connection), whose nonce does not continue ours, or whose signature is
wrong. Kafka does not apply SASLprep, and neither do we. Nonces are given by the caller.
"""

from __future__ import annotations

import base64
import binascii
import enum
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kip848_client.errors import AuthenticationError
from kip848_client.wire.sasl.mechanism import SaslRefusal, without_secret

SCRAM_MECHANISMS: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism -> the hash behind it."""

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 131_072

_GS2_HEADER: Final = "n,,"
"""No channel binding, no authorisation id."""
_CHANNEL: Final = base64.b64encode(_GS2_HEADER.encode()).decode()
_NONCE_CHARACTERS: Final = frozenset(range(0x21, 0x7F)) - {ord(",")}
_TOLD_MAX: Final = 100


class ScramCredential(msgspec.Struct, frozen=True):
    """A server's copy of a password; the password cannot be read from it, but passwords can be tried against it."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("iterations", self.iterations)]


def make_credential(mechanism: str, password: str, *, salt: bytes, iterations: int = ITERATIONS_MIN) -> ScramCredential:
    """The credential that a server keeps for *password*."""
    salted = hashlib.pbkdf2_hmac(SCRAM_MECHANISMS[mechanism], password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salted, salt=salt, iterations=iterations)


def credential_of_salted(mechanism: str, salted_password: bytes, *, salt: bytes, iterations: int) -> ScramCredential:
    """The credential for a password of which only SaltedPassword (RFC 5802) is known."""
    hash_name = SCRAM_MECHANISMS[mechanism]
    client_key, server_key = _keys_of_salted(hash_name, salted_password)
    return ScramCredential(salt, iterations, hashlib.new(hash_name, client_key).digest(), server_key)


class _Stage(enum.Enum):
    """The progress of one conversation."""

    BEGIN = "nothing was said"
    """Ends with the client's first message."""
    FIRST = "the client's first message was said"
    """Ends with the client's proof."""
    FINAL = "the client's proof was said"
    """Ends with the server's signature."""
    DONE = "the conversation is over"
    """Nothing may follow, a replay of the last message included."""


class ScramClient:
    """The client's side.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        nonce: printable ASCII without a comma, never used before.
    """

    def __init__(self, mechanism: str, *, username: str, password: str, nonce: str) -> None:
        assert nonce
        assert _NONCE_CHARACTERS.issuperset(nonce.encode())
        self.mechanism: Final = mechanism
        self._hash: Final = SCRAM_MECHANISMS[mechanism]
        self._password: Final = password
        self._nonce: Final = nonce
        self._first_bare: Final = f"n={username.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self.identity: Final = f"user {username!r}"
        self._stage = _Stage.BEGIN
        self._signature = b""

    def without_secret(self, text: str) -> str:
        """*text*, unless it repeats the password (which the server was never told, but may know)."""
        return without_secret(text, self._password)

    def first(self) -> bytes:
        """``n,,n=name,r=nonce``."""
        assert self._stage is _Stage.BEGIN
        self._stage = _Stage.FIRST
        return (_GS2_HEADER + self._first_bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        """Answer the server's first message with our proof, and its last one with None.

        Raises:
            AuthenticationError: the server breaks the rules, does not know our secret, or repeats a message.
        """
        if self._stage is _Stage.FIRST:
            return self._prove(_text(challenge, self._broken))
        if self._stage is _Stage.FINAL:
            self._verify(_text(challenge, self._broken))
            self._stage = _Stage.DONE
            return None
        raise self._broken(f"it says more although {self._stage.value}")

    def _prove(self, server_first: str) -> bytes:
        fields = _attributes(server_first, "rsi", self._broken)
        nonce, salt, iterations = fields["r"], _base64(fields["s"], self._broken), fields["i"]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._broken("its nonce does not continue ours; the connection may be intercepted")
        if not _NONCE_CHARACTERS.issuperset(nonce.encode()):
            raise self._broken("its nonce has characters that are not allowed")
        if not (iterations.isascii() and iterations.isdecimal() and len(iterations) < 10):
            raise self._broken("its number of iterations is not a number")
        if int(iterations) < ITERATIONS_MIN:
            raise self._broken(f"it asks for {iterations} iterations; {ITERATIONS_MIN} are the least that protect")
        if int(iterations) > ITERATIONS_MAX:
            raise self._broken(f"it asks for {iterations} iterations; {ITERATIONS_MAX} are the most")
        if not salt:
            raise self._broken("it gives no salt")
        client_key, server_key = _keys(self._hash, self._password, salt=salt, iterations=int(iterations))
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c={_CHANNEL},r={nonce}"
        spoken = f"{self._first_bare},{server_first},{without_proof}".encode()
        proof = _xor(client_key, _mac(stored_key, spoken, self._hash))
        self._signature = _mac(server_key, spoken, self._hash)
        self._stage = _Stage.FINAL
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, server_final: str) -> None:
        if server_final.startswith("e="):
            told = self.without_secret(server_final[2:])[:_TOLD_MAX]
            raise AuthenticationError(f"{self.mechanism}: the broker refused {self.identity}: {told}")
        signature = _base64(_attributes(server_final, "v", self._broken)["v"], self._broken)
        if not hmac.compare_digest(signature, self._signature):
            raise self._broken("its signature is wrong: it does not know the password, or repeats what it said before")

    def _broken(self, what: str) -> AuthenticationError:
        return AuthenticationError(f"{self.mechanism}: the broker cannot be trusted: {what}")


class ScramServer:
    """The server's side.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        credential_of: user name -> stored credential. Never None: for a name that is not known it gives something made
            up that no password fits, the same each time, so that a stranger cannot find out which names there are.
        nonce: this server's part; printable ASCII without a comma, never used before.
    """

    def __init__(self, mechanism: str, credential_of: Callable[[str], ScramCredential], *, nonce: str) -> None:
        self.mechanism: Final = mechanism
        self._hash: Final = SCRAM_MECHANISMS[mechanism]
        self._credential_of: Final = credential_of
        self._own_nonce: Final = nonce
        self._stage = _Stage.BEGIN
        self._name = ""
        self._nonce = ""
        self._spoken = ""
        self._credential: ScramCredential | None = None
        self.user: str | None = None

    def answer(self, message: bytes) -> bytes:
        """Answer the client's first message with the challenge, and its proof with our signature.

        Raises:
            SaslRefusal: the proof is wrong, or the message breaks the mechanism's rules.
        """
        text = _text(message, _refuse)
        if self._stage is _Stage.BEGIN:
            return self._challenge(text)
        if self._stage is _Stage.FIRST:
            return self._judge(text)
        raise _refuse(f"it says more although {self._stage.value}")

    def _challenge(self, client_first: str) -> bytes:
        binding, _, rest = client_first.partition(",")
        acting_as, comma, bare = rest.partition(",")
        if binding not in ("n", "y") or not comma:
            raise _refuse("channel binding is not offered")
        fields = _attributes(bare, "nr", _refuse)
        self._name = _read_name(fields["n"])
        if acting_as and (not acting_as.startswith("a=") or _read_name(acting_as[2:]) != self._name):
            raise _refuse("the authorisation id is another name")
        if not fields["r"] or not _NONCE_CHARACTERS.issuperset(fields["r"].encode()):
            raise _refuse("the nonce has characters that are not allowed")
        self._nonce = fields["r"] + self._own_nonce
        credential = self._credential = self._credential_of(self._name)
        salt = base64.b64encode(credential.salt).decode()
        server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._channel = base64.b64encode(f"{binding},{acting_as},".encode()).decode()
        self._spoken = f"{bare},{server_first}"
        self._stage = _Stage.FIRST
        return server_first.encode()

    def _judge(self, client_final: str) -> bytes:
        credential = self._credential
        assert credential is not None
        self._stage = _Stage.DONE
        without_proof, comma, proof_text = client_final.rpartition(",p=")
        fields = _attributes(without_proof, "cr", _refuse)
        if not comma or fields["c"] != self._channel or not hmac.compare_digest(fields["r"], self._nonce):
            raise _refuse("channel or nonce is not that of the first message")
        proof = _base64(proof_text, _refuse)
        if len(proof) != len(credential.stored_key):
            raise _refuse("the proof has a wrong length")
        spoken = f"{self._spoken},{without_proof}".encode()
        client_key = _xor(proof, _mac(credential.stored_key, spoken, self._hash))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise SaslRefusal(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self.mechanism
            )
        self.user = self._name
        return b"v=" + base64.b64encode(_mac(credential.server_key, spoken, self._hash))


Failure = Callable[[str], AuthenticationError]


def _refuse(what: str) -> SaslRefusal:
    return SaslRefusal(f"Authentication failed: Invalid SASL/SCRAM message: {what}")


def _text(message: bytes, failure: Failure) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise failure("its message is not UTF-8") from None


def _attributes(text: str, names: str, failure: Failure) -> dict[str, str]:
    """Read ``x=...,y=...``: exactly *names* in that order, then extensions that may be ignored."""
    parts = text.split(",")
    if len(parts) < len(names):
        raise failure("its message is too short")
    fields = {}
    for name, part in zip(names, parts, strict=False):
        if part[:2] != f"{name}=":
            raise failure(f"attribute {name!r} is not where it must be")  # m= is a mandatory extension: refused too
        fields[name] = part[2:]
    return fields


def _read_name(text: str) -> str:
    name = text.replace("=2C", ",").replace("=3D", "=")
    if not name or text.count("=") != text.count("=2C") + text.count("=3D"):
        raise _refuse("the user name is empty or not escaped")
    return name


def _base64(text: str, failure: Failure) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise failure("a value is not base64") from None


def _keys(hash_name: str, password: str, *, salt: bytes, iterations: int) -> tuple[bytes, bytes]:
    """ClientKey and ServerKey."""
    return _keys_of_salted(hash_name, hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations))


def _keys_of_salted(hash_name: str, salted: bytes) -> tuple[bytes, bytes]:
    return _mac(salted, b"Client Key", hash_name), _mac(salted, b"Server Key", hash_name)


def _mac(key: bytes, message: bytes, hash_name: str) -> bytes:
    return hmac.digest(key, message, hash_name)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
