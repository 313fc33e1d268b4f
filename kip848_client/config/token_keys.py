"""The keys that say where the tokens of OAUTHBEARER come from, as librdkafka and Java spell them. Fetches nothing.

A key is read by one method only, and refused beside another: a setting that is ignored is a login that nobody meant.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kip848_client.config.keys import TOKEN_KEYS
from kip848_client.config.reader import ConfigReader
from kip848_client.errors import AuthenticationError, ConfigError
from kip848_client.logins.assertions import ALGORITHMS, AssertionSettings
from kip848_client.logins.aws import AwsMskIamSource, AwsStsSource, boto3, msk_signer, region_of
from kip848_client.logins.azure import API_VERSION, IMDS_URL, AzureImdsSource
from kip848_client.logins.callback import CallbackSource
from kip848_client.logins.gcp import GcpSource, google_auth
from kip848_client.logins.https import HttpsSettings, check_url, host_of
from kip848_client.logins.oidc import CLIENT_CREDENTIALS, JWT_BEARER, OidcSource
from kip848_client.logins.source import TokenSource, can_be_extension
from kip848_client.logins.token_file import TokenFile

_P: Final = "sasl.oauthbearer."
_URL: Final = f"{_P}token.endpoint.url"
_METHOD: Final = f"{_P}method"
_TYPE: Final = f"{_P}metadata.authentication.type"
_CONFIG: Final = f"{_P}config"
_ASSERTION: Final = f"{_P}assertion."
_CLIENT_ID: Final = f"{_P}client.id"
_CLIENT_SECRET: Final = f"{_P}client.secret"

_SECOND_NAMES: Final[Mapping[str, str]] = {
    f"{_P}client.credentials.client.id": _CLIENT_ID,
    f"{_P}client.credentials.client.secret": _CLIENT_SECRET,
    f"{_P}assertion.template.file": f"{_P}assertion.jwt.template.file",
}
"""Names of Java, and of newer versions of librdkafka -> librdkafka's first."""

_EVERYWHERE: Final = frozenset({_METHOD, _TYPE, f"{_P}extensions", f"{_P}sub.claim.name"})
_HTTPS: Final = frozenset({"https.ca.location", "https.ca.pem"})
_MADE_ASSERTION: Final = frozenset(key for key in TOKEN_KEYS if key.startswith(_ASSERTION)) - {f"{_ASSERTION}file"}
_EVENT_HUBS: Final = re.compile(
    r"([\w-]+\.servicebus\.(?:windows\.net|usgovcloudapi\.net|chinacloudapi\.cn))", re.ASCII
)
_INT32_MAX: Final = 2**31 - 1

WAYS: Final = (
    "set oauth_cb to a callable that takes sasl.oauthbearer.config and returns (token, expiry in seconds since 1970), "
    "or let tokens be fetched: sasl.oauthbearer.method=oidc with sasl.oauthbearer.token.endpoint.url, "
    "sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret, or sasl.oauthbearer.metadata.authentication.type "
    "(docs/security.md has the lines for each hosted Kafka)"
)


def read_token_source(
    reader: ConfigReader, *, mechanism: str, hosts: Iterable[str], allow_open: bool, is_loopback: Callable[[str], bool]
) -> TokenSource:
    """The source of tokens that the keys name.

    Args:
        mechanism: OAUTHBEARER, or AWS_MSK_IAM as Java's files have it.
        hosts: of bootstrap.servers; those of MSK and of Event Hubs tell a region and a scope.
        allow_open: whether secrets may be sent unencrypted.

    Raises:
        ConfigError: none is named, a key is missing or does not fit the others, or a library is not installed.
    """
    for second, first in _SECOND_NAMES.items():
        if second in reader.conf and reader.conf.setdefault(first, reader.conf[second]) != reader.conf.pop(second):
            raise ConfigError(f"{second} and {first} are the same and differ; keep one")
    return _Reading(reader, tuple(hosts), allow_open, is_loopback).source(mechanism)


class _Reading:
    """One reading of the keys."""

    def __init__(
        self, reader: ConfigReader, hosts: tuple[str, ...], allow_open: bool, is_loopback: Callable[[str], bool]
    ) -> None:
        self._reader = reader
        self._hosts = hosts
        self._allow_open = allow_open
        self._is_loopback = is_loopback

    def source(self, mechanism: str) -> TokenSource:
        """Choose the method."""
        reader = self._reader
        kind = reader.one_of(
            _TYPE,
            {name: name for name in ("none", "azure_imds", "azure_workload_identity", "aws_iam", "aws_msk_iam", "gcp")},
            default="none",
        )
        if mechanism == "AWS_MSK_IAM":
            if kind not in {"none", "aws_msk_iam"}:
                raise ConfigError(f"sasl.mechanism=AWS_MSK_IAM and {_TYPE}={kind} differ; keep one")
            kind = "aws_msk_iam"
        method = reader.one_of(_METHOD, {"default": "default", "oidc": "oidc"}, default="")
        callback = reader.callback("oauth_cb", "config")
        if callback is not None:
            return self._callback(callback, method, kind)
        match kind:
            case "azure_imds":
                return self._azure_imds()
            case "azure_workload_identity":
                return self._azure_workload_identity()
            case "aws_iam":
                return self._aws_sts()
            case "aws_msk_iam":
                return self._aws_msk_iam()
            case "gcp":
                self._only("gcp", ())
                _installed(google_auth)
                return GcpSource(self._extensions())
        given = self._given(self._reader.conf)
        if method == "oidc" or (method == "" and given & {_URL, _CLIENT_ID, _CLIENT_SECRET}):
            return self._oidc()
        raise ConfigError(f"sasl.mechanism=OAUTHBEARER needs tokens: {WAYS}")

    def _callback(self, callback: Callable[..., object], method: str, kind: str) -> TokenSource:
        beside = sorted(self._given(self._reader.conf) - {_METHOD, _TYPE})
        if method == "oidc" or kind != "none":
            beside.insert(0, _METHOD if method == "oidc" else _TYPE)
        if beside:
            raise ConfigError(f"oauth_cb and {beside[0]} both say where tokens come from; keep one")
        return CallbackSource(callback, self._reader.optional_text(_CONFIG))

    def _oidc(self) -> TokenSource:
        reader = self._reader
        url = self._text(_URL)
        if url is None:
            raise ConfigError(f"{_URL} is missing: the address at which the issuer gives tokens")
        if url.lower().startswith("file:"):
            path = _path_of(url)
            self._only("a token file", {_URL})
            return TokenFile(path, extensions=self._extensions(), subject_claim=self._subject_claim())
        grant = reader.one_of(
            f"{_P}grant.type",
            {CLIENT_CREDENTIALS: CLIENT_CREDENTIALS, JWT_BEARER: JWT_BEARER},
            default=CLIENT_CREDENTIALS,
        )
        client_id, secret, assertion = self._text(_CLIENT_ID), self._text(_CLIENT_SECRET), self._assertion()
        if grant == JWT_BEARER:
            if assertion is None:
                raise ConfigError(
                    f"{_P}grant.type={JWT_BEARER} needs an assertion: set {_ASSERTION}file, or "
                    f"{_ASSERTION}private.key.file with {_ASSERTION}claim.iss, .claim.sub and .claim.aud"
                )
        elif secret is None and assertion is None:
            raise ConfigError(f"{_CLIENT_SECRET} is missing: it proves to the issuer who this client is")
        elif secret is not None and assertion is not None:
            raise ConfigError(f"{_CLIENT_SECRET} and {_ASSERTION}* both prove who this client is; keep one")
        if client_id is None and (secret is not None or grant == CLIENT_CREDENTIALS):
            raise ConfigError(f"{_CLIENT_ID} is missing: the name by which the issuer knows this client")
        self._check_url(url, secret=True)
        return OidcSource(
            url,
            grant,
            client_id,
            secret,
            self._text(f"{_P}scope"),
            assertion,
            reader.flag(f"{_P}header.urlencode", default=False),
            self._extensions(),
            self._subject_claim(),
            self._https(),
        )

    def _assertion(self) -> AssertionSettings | None:
        reader = self._reader
        file = self._text(f"{_ASSERTION}file")
        key_file, key_pem = self._text(f"{_ASSERTION}private.key.file"), self._text(f"{_ASSERTION}private.key.pem")
        made = sorted(key for key in _MADE_ASSERTION if reader.conf.get(key) is not None)
        if file is not None:
            if made:
                raise ConfigError(f"{_ASSERTION}file has a finished assertion, and {made[0]} is for making one")
            return AssertionSettings(file=file)
        if key_file is None and key_pem is None:
            if made:
                raise ConfigError(f"{made[0]} is for an assertion that is signed: set {_ASSERTION}private.key.file")
            return None
        if key_file is not None and key_pem is not None:
            raise ConfigError(f"{_ASSERTION}private.key.file and {_ASSERTION}private.key.pem are both set; keep one")
        assertion = AssertionSettings(
            key_file=key_file,
            key_pem=key_pem,
            passphrase=reader.optional_text(f"{_ASSERTION}private.key.passphrase"),
            algorithm=reader.one_of(
                f"{_ASSERTION}algorithm", {name.lower(): name for name in ALGORITHMS}, default=ALGORITHMS[0]
            ),
            audience=self._text(f"{_ASSERTION}claim.aud"),
            issuer=self._text(f"{_ASSERTION}claim.iss"),
            subject=self._text(f"{_ASSERTION}claim.sub"),
            life_s=reader.integer(f"{_ASSERTION}claim.exp.seconds", default=300, low=1, high=_INT32_MAX),
            before_s=reader.integer(f"{_ASSERTION}claim.nbf.seconds", default=60, low=0, high=_INT32_MAX),
            with_id=reader.flag(f"{_ASSERTION}claim.jti.include", default=False),
            template_file=self._text(f"{_ASSERTION}jwt.template.file"),
        )
        assertion.check()
        return assertion

    def _azure_imds(self) -> TokenSource:
        self._only("azure_imds", {_URL, _CONFIG})
        query = self._pairs("azure_imds", {"query"}).get("query")
        url = self._text(_URL)
        if query is None and url is None:
            hub = self._event_hub()
            if hub is None:
                raise ConfigError(
                    f"{_CONFIG} is missing: write query=api-version={API_VERSION}&resource=... with the resource that "
                    "tokens are for"
                )
            query = urllib.parse.urlencode({"api-version": API_VERSION, "resource": f"https://{hub}"})
        url = url or IMDS_URL
        if query is not None:
            url = f"{url}{'&' if '?' in url else '?'}{query}"
        self._check_url(url, secret=False)
        return AzureImdsSource(url, self._extensions(), self._subject_claim())

    def _azure_workload_identity(self) -> TokenSource:
        self._only("azure_workload_identity", {_URL, _CLIENT_ID, f"{_P}scope", f"{_ASSERTION}file", *_HTTPS})
        needed = {
            _CLIENT_ID: self._text(_CLIENT_ID) or os.environ.get("AZURE_CLIENT_ID"),
            f"{_ASSERTION}file": self._text(f"{_ASSERTION}file") or os.environ.get("AZURE_FEDERATED_TOKEN_FILE"),
            _URL: self._text(_URL) or _entra_url(),
            f"{_P}scope": self._text(f"{_P}scope") or ((hub := self._event_hub()) and f"https://{hub}/.default"),
        }
        for key, text in needed.items():
            if not text:
                raise ConfigError(
                    f"{key} is missing, and the environment does not have it either: AZURE_CLIENT_ID, AZURE_TENANT_ID "
                    "and AZURE_FEDERATED_TOKEN_FILE are set in pods with the label azure.workload.identity/use"
                )
        self._check_url(str(needed[_URL]), secret=True)
        return OidcSource(
            str(needed[_URL]),
            client_id=needed[_CLIENT_ID],
            scope=needed[f"{_P}scope"],
            assertion=AssertionSettings(file=needed[f"{_ASSERTION}file"]),
            extensions=self._extensions(),
            subject_claim=self._subject_claim(),
            https=self._https(),
        )

    def _aws_msk_iam(self) -> TokenSource:
        self._only("aws_msk_iam", {_CONFIG})
        names = {"region", "awsProfileName", "awsRoleArn", "awsRoleSessionName", "awsStsRegion", "awsDebugCreds"}
        pairs = self._pairs("aws_msk_iam", names)
        region = pairs.get("region") or region_of(self._hosts)
        region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        if not region:
            raise ConfigError(
                f"the region of the cluster is not known, because bootstrap.servers does not tell it; set {_CONFIG} to "
                "region=..., or AWS_REGION in the environment"
            )
        if "awsProfileName" in pairs and "awsRoleArn" in pairs:
            raise ConfigError(
                f"{_CONFIG} has awsProfileName and awsRoleArn; keep one (a profile may itself name the role)"
            )
        _installed(msk_signer)
        return AwsMskIamSource(
            region, pairs.get("awsProfileName"), pairs.get("awsRoleArn"), pairs.get("awsRoleSessionName")
        )

    def _aws_sts(self) -> TokenSource:
        self._only("aws_iam", {_CONFIG})
        names = {"region", "audience", "duration_seconds", "signing_algorithm", "sts_endpoint", "aws_debug"}
        pairs = self._pairs("aws_iam", names, prefix="tag_")
        for name in ("region", "audience"):
            if not pairs.get(name):
                raise ConfigError(f"{_CONFIG} needs {name}=... with {_TYPE}=aws_iam")
        life = pairs.get("duration_seconds", "300")
        if not life.isdecimal() or not 60 <= int(life) <= 3600:
            raise ConfigError(f"duration_seconds of {_CONFIG} is a number from 60 to 3600")
        algorithm = pairs.get("signing_algorithm", "ES384")
        if algorithm not in {"ES384", "RS256"}:
            raise ConfigError(f"signing_algorithm of {_CONFIG} is ES384 or RS256")
        _installed(boto3)
        tags = tuple((name.removeprefix("tag_"), text) for name, text in pairs.items() if name.startswith("tag_"))
        return AwsStsSource(
            pairs["region"],
            pairs["audience"],
            algorithm,
            int(life),
            pairs.get("sts_endpoint"),
            tags,
            self._extensions(),
        )

    def _only(self, method: str, keys: Iterable[str]) -> None:
        """Refuse keys that *method* would ignore."""
        for key in sorted(self._given(self._reader.conf) - _EVERYWHERE - set(keys)):
            raise ConfigError(f"{key} has no meaning with {method}; leave it out")

    @staticmethod
    def _given(conf: Mapping[str, object]) -> set[str]:
        return {key for key in conf if key in TOKEN_KEYS and conf[key] is not None}

    def _text(self, key: str) -> str | None:
        return self._reader.not_blank(key)

    def _subject_claim(self) -> str:
        return self._text(f"{_P}sub.claim.name") or "sub"

    def _event_hub(self) -> str | None:
        for host in self._hosts:
            if found := _EVENT_HUBS.fullmatch(host.lower()):
                return found[1]
        return None

    def _extensions(self) -> tuple[tuple[str, str], ...]:
        """``logicalCluster=lkc-1,identityPoolId=pool-2``."""
        text = self._text(f"{_P}extensions")
        pairs = [] if text is None else _split(text)
        for name, value in pairs:
            if value is None or not can_be_extension(name, value):
                raise ConfigError(
                    f"{_P}extensions is a list of name=value with commas; names are letters, but not auth"
                )
        return tuple((name, value or "") for name, value in pairs)

    def _pairs(self, method: str, known: set[str], *, prefix: str | None = None) -> dict[str, str]:
        """The parts of sasl.oauthbearer.config, ``name=value`` with commas between them. It is not shown."""
        text = self._text(_CONFIG)
        pairs: dict[str, str] = {}
        for name, value in [] if text is None else _split(text):
            if value is None or not (name in known or (prefix is not None and name.startswith(prefix))):
                raise ConfigError(
                    f"{_CONFIG} with {method} is a list of name=value with commas; names are {', '.join(sorted(known))}"
                )
            pairs[name] = value
        return pairs

    def _https(self) -> HttpsSettings:
        location, pem = self._text("https.ca.location"), self._text("https.ca.pem")
        if location is not None and pem is not None:
            raise ConfigError("https.ca.pem and https.ca.location are both set; keep one")
        settings = HttpsSettings(None if location == "probe" else location, pem)
        if settings.ca_location is not None or pem is not None:
            settings.context()  # a file that cannot be read is found here and not at the first login
        return settings

    def _check_url(self, url: str, *, secret: bool) -> None:
        is_loopback = self._is_loopback(host_of(url))
        check_url(_URL, url, secret=secret, allow_open=self._allow_open, is_loopback=is_loopback)


def _installed(library: Callable[[], object]) -> None:
    try:
        library()
    except AuthenticationError as error:
        raise ConfigError(str(error)) from error


def _entra_url() -> str | None:
    tenant = os.environ.get("AZURE_TENANT_ID")
    authority = os.environ.get("AZURE_AUTHORITY_HOST") or "https://login.microsoftonline.com/"
    return f"{authority.rstrip('/')}/{tenant}/oauth2/v2.0/token" if tenant else None


def _path_of(url: str) -> str:
    """The path of ``file:///var/token``, or ``file:/var/token``, as Java reads it."""
    import urllib.request  # here: only files need it

    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise ConfigError(f"{_URL}={url} is not file:///PATH")
    return urllib.request.url2pathname(parts.path)


def _split(text: str) -> list[tuple[str, str | None]]:
    r"""``a=1,b=2`` in pairs; ``\,`` is a comma inside a value."""
    parts = [part.replace("\\,", ",").strip() for part in re.split(r"(?<!\\),", text)]
    pairs = [part.partition("=") for part in parts if part]
    return [(name.strip(), value.strip() if equals else None) for name, equals, value in pairs]
