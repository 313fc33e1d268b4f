"""PKCS#12 key stores, which Python's ssl does not read, as PEM text. The only home of ``cryptography`` for them.

librdkafka reads the store itself.
"""

from __future__ import annotations

from pathlib import Path

from kip848_client.errors import ConfigError

_KEY = "ssl.keystore.location"


def read_key_store(location: str, password: str | None) -> tuple[str, str]:
    """Certificate (with the chain above it) and private key, both as PEM text.

    Raises:
        ConfigError: cryptography is not installed, or the store cannot be used.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError as error:
        raise ConfigError(
            f"{_KEY} needs cryptography: pip install 'kip848_client[pkcs12]', or convert the store (openssl pkcs12 -in "
            "store.p12 -out client.pem) and set ssl.certificate.location and ssl.key.location"
        ) from error
    try:
        data = Path(location).read_bytes()
    except OSError as error:
        raise ConfigError(f"{_KEY}: {location}: {error.strerror or error}") from error
    try:
        key, certificate, chain = pkcs12.load_key_and_certificates(
            data, None if password is None else password.encode()
        )
    except ValueError as error:
        raise ConfigError(
            f"{_KEY}: {location} is not a PKCS#12 store, or ssl.keystore.password does not open it"
        ) from error
    if key is None or certificate is None:
        raise ConfigError(f"{_KEY}: {location} has no private key with its certificate")
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return b"".join(each.public_bytes(pem) for each in (certificate, *chain)).decode(), private.decode()
