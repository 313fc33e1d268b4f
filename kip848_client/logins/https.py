"""Asks an issuer over HTTP, with limits of time and size. Every failure is an error that says what to check.

Never follows a redirect: a secret goes only to the address of the configuration. Knows nothing of tokens.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from kip848_client.common.addresses import in_url
from kip848_client.common.model import Confidential
from kip848_client.common.version import __version__
from kip848_client.errors import AuthenticationError, ConfigError, ConnectionLostError, Kip848Error
from kip848_client.logins.source import plain, without_secrets

_ANSWER_MAX: Final = 1_048_576
"""Bytes; a token has some thousand."""
_CHUNK: Final = 65_536
_PASSING: Final = frozenset({408, 425, 429, *range(500, 600)})
"""Status codes after which the same question may be answered later."""
_PROXY_ONLY: Final = 407


class HttpsSettings(Confidential, frozen=True):
    """How issuers are asked.

    Attributes:
        ca_location: PEM file, or folder of certificates, that is trusted (https.ca.location).
        ca_pem: certificates that are trusted, as PEM text (https.ca.pem). Without both: what the machine trusts.
        timeout_s: for the whole question.
        proxies: whether ``HTTPS_PROXY`` and its like count; not for an address that only this machine can reach.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"ca_pem"})

    ca_location: str | None = None
    ca_pem: str | None = None
    timeout_s: float = 10.0
    proxies: bool = True

    def context(self) -> ssl.SSLContext:
        """The context for asking issuers.

        Raises:
            ConfigError: a file or text cannot be used.
        """
        location = self.ca_location
        try:
            if location is not None and Path(location).is_dir():
                return ssl.create_default_context(capath=location)
            return ssl.create_default_context(cafile=location, cadata=self.ca_pem)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            key = "https.ca.location" if location is not None else "https.ca.pem"
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "no certificate in it"
            shown = location if location is not None else "the text"
            raise ConfigError(f"{key}: {shown} cannot be used: {reason}") from error


class Question(Confidential, frozen=True):
    """What an issuer is asked.

    Attributes:
        url: with its query, if there is one.
        form: what is posted; None asks with GET.
        secrets: what an answer may repeat, and no message does.
        check: what to check if the issuer refuses, for the message.
        passing: more status codes that pass.
    """

    HIDDEN: ClassVar[frozenset[str]] = frozenset({"url", "form", "headers", "secrets"})

    url: str
    form: Mapping[str, str] | None
    headers: Mapping[str, str]
    secrets: tuple[str | None, ...]
    check: str
    passing: frozenset[int] = frozenset()


def ask(question: Question, settings: HttpsSettings) -> dict[str, object]:
    """The JSON object that the issuer answers.

    Raises:
        ConnectionLostError: it was not reached, or could not answer now.
        AuthenticationError: it refuses. Both messages have its address and its answer.
    """
    where = shown_url(question.url)
    body = None if question.form is None else urllib.parse.urlencode(question.form).encode()
    headers = {"Accept": "application/json", "User-Agent": f"kip848-client/{__version__}", **question.headers}
    if body is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    request = urllib.request.Request(question.url, data=body, headers=headers)  # noqa: S310  checked by `check_url`
    deadline_s = time.monotonic() + settings.timeout_s
    try:
        with _opener(settings).open(request, timeout=settings.timeout_s) as answer:
            status, text = answer.status, _read(answer, deadline_s, where)
            location = answer.headers.get("Location")
    except Kip848Error:
        raise
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ConnectionLostError(f"the issuer {where} cannot be reached: {_reason(error)}") from None
    if 300 <= status < 400:
        to = f" to {shown_url(urllib.parse.urljoin(question.url, location))}" if location else ""
        raise AuthenticationError(f"the issuer {where} redirects{to} (HTTP {status}); write the address that answers")
    told = _told(text, question.secrets)
    if status in _PASSING or status in question.passing:
        raise ConnectionLostError(f"the issuer {where} cannot answer now (HTTP {status}){told}")
    if status == _PROXY_ONLY:
        raise AuthenticationError(f"the proxy before {where} asks for a login (HTTP {status}); see HTTPS_PROXY")
    if status != http.HTTPStatus.OK:
        raise AuthenticationError(f"the issuer {where} refuses (HTTP {status}){told}; check {question.check}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ConnectionLostError(f"the issuer {where} did not answer with a JSON object; check its URL")
    return found


def check_url(key: str, url: str, *, secret: bool, allow_open: bool, is_loopback: bool) -> None:
    """Refuse an address that cannot be asked, or to which a secret would go unencrypted.

    Args:
        secret: whether the question holds one.
        allow_open: the user says that the network is trusted.

    Raises:
        ConfigError: one of these.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urllib.parse.SplitResult("", "", "", "", ""), None
    if parts.scheme not in {"http", "https"} or not host or not url.isascii() or any(char <= " " for char in url):
        raise ConfigError(f"{key}={shown_url(url)} is not the http or https address of an issuer")
    if parts.scheme == "http" and secret and not (allow_open or is_loopback):
        raise ConfigError(
            f"{key}={shown_url(url)} would send the client's secret unencrypted; use https, or set "
            "kip848.allow.unencrypted.credentials=true if that network is trusted"
        )


def host_of(url: str) -> str:
    """The host of *url*; empty if there is none."""
    try:
        return urllib.parse.urlsplit(url).hostname or ""
    except ValueError:
        return ""


def shown_url(url: str) -> str:
    """*url* without a user, a password and a query, which may be secrets."""
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "an address that cannot be read"
    return plain(f"{parts.scheme}://{in_url(host)}{'' if port is None else f':{port}'}{parts.path}")


def _opener(settings: HttpsSettings) -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()  # without the handlers that follow redirects and raise for a status
    opener.add_handler(urllib.request.ProxyHandler(None if settings.proxies else {}))
    opener.add_handler(urllib.request.HTTPHandler())
    opener.add_handler(urllib.request.HTTPSHandler(context=settings.context()))
    return opener


def _read(answer: http.client.HTTPResponse, deadline_s: float, where: str) -> bytes:
    text = bytearray()
    while chunk := answer.read1(_CHUNK):
        text += chunk
        if len(text) > _ANSWER_MAX:
            raise ConnectionLostError(f"the issuer {where} answers with more than {_ANSWER_MAX} bytes; check its URL")
        if time.monotonic() > deadline_s:
            raise TimeoutError
    return bytes(text)


def _told(text: bytes, secrets: tuple[str | None, ...]) -> str:
    """The reason that an issuer gives (RFC 6749, 5.2), after a colon."""
    shown = text.decode("utf-8", "replace")
    try:
        found = json.loads(shown)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        error = found.get("error")
        if isinstance(error, dict):  # as Google's APIs answer
            error = error.get("message")
        reasons = [part for part in (error, found.get("error_description")) if isinstance(part, str) and part]
        shown = ": ".join(reasons) or shown
    elif shown.lstrip().startswith("<"):
        shown = "a page of HTML"
    told = without_secrets(shown, secrets)
    return f": {told}" if told else ""


def _reason(error: Exception) -> str:
    """Why it failed, in words; not the error's own text if that may have the address in it."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({inner.verify_message}); set https.ca.location to a PEM file"
    if isinstance(inner, ssl.SSLError):
        return f"TLS failed ({inner.reason or 'no reason'}); check that the address is one of https"
    if isinstance(inner, TimeoutError):
        return "no answer in time; check the address, the network and HTTPS_PROXY"
    if isinstance(inner, OSError) and inner.strerror:
        return f"{inner.strerror}; check the address, the network and HTTPS_PROXY"
    return f"{type(inner).__name__}; check the address, the network and HTTPS_PROXY"
