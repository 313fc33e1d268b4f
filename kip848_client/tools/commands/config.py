"""``kip848 config check``: what is understood of a file of properties, and whether the login works.

::

    kip848 config check -F client.properties
    kip848 config check -F client.properties --connect --json

Values of secrets are hidden. The exit status is 1 if something is wrong, or the login fails.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kip848_client.cli.shared.options import add_question_arguments
from kip848_client.cli.shared.properties import FileProperty, explain_file, reach, read_properties
from kip848_client.cli.shared.tables import table
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import printable
from kip848_client.config import ConsumerConfig, parse_consumer_config, unlisted_keys
from kip848_client.config.keys import is_secret
from kip848_client.config.security import check_data_plane
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.logins.oauth_tokens import OAuthTokens
from kip848_client.tools.shared.admin_client import client_conf

_GROUP: Final = "kip848-config"
_HIDDEN: Final = "(hidden)"


class Step(msgspec.Struct, frozen=True):
    """One part of the login, and what came of it."""

    step: str
    ok: bool
    told: str


class Shown(msgspec.Struct, frozen=True):
    """A property, as it is shown.

    Args:
        means: what became of it; empty if it is taken as it is.
    """

    key: str
    value: str
    means: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action and its options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="tell what is understood of a file, and with --connect if the login works")
    check.add_argument("--connect", action="store_true", help="fetch a token, and log in with both parts of the client")
    add_question_arguments(check)


def run(arguments: argparse.Namespace) -> int:
    """Check the properties.

    Raises:
        ConfigError: the file cannot be read.
    """
    noted = [] if arguments.property_file is None else explain_file(arguments.property_file)
    properties, config, problems = _understood(arguments)
    login = "" if config is None else _login(config)
    steps: list[Step] = []
    if arguments.connect and config is not None and not problems:
        steps = _connected(arguments, properties, config)
    shown = [_shown(each) for each in noted]
    from_elsewhere = properties.keys() - {each.key for each in noted} - {each.becomes for each in noted}
    if not noted:
        shown += [_shown(FileProperty(key, properties[key], "")) for key in sorted(from_elsewhere)]
    is_good = not problems and all(step.ok for step in steps)
    if arguments.json:
        print(to_json({"properties": shown, "login": login, "problems": problems, "connect": steps}))
        return 0 if is_good else 1
    if shown:
        print(table(("PROPERTY", "VALUE", "MEANS"), [(each.key, each.value, each.means) for each in shown]))
    if login:
        print(f"\nlogin: {printable(login)}")
    for problem in problems:
        print(f"wrong: {printable(problem)}")
    for step in steps:
        print(f"{step.step}: {'ok, ' if step.ok else 'failed: '}{printable(step.told)}")
    if not problems and not arguments.connect:
        print("all of it is understood; --connect tries the login")
    return 0 if is_good else 1


def _understood(arguments: argparse.Namespace) -> tuple[Mapping[str, str], ConsumerConfig | None, list[str]]:
    """The properties that a consumer gets, what it reads in them, and what is wrong."""
    try:
        properties = read_properties(arguments, role="member")
    except ConfigError as error:
        return {}, None, [str(error)]
    try:
        config = parse_consumer_config({"group.id": _GROUP, **properties})
        check_data_plane(config.security)
    except Kip848Error as error:
        return properties, None, [str(error)]
    problems = []
    for key in sorted(unlisted_keys(properties)):
        from kip848_client.consumer.records.data_plane import create_record_consumer  # here: it loads librdkafka

        asked = {"bootstrap.servers": properties["bootstrap.servers"], "group.id": _GROUP, "log_level": 2}
        try:
            create_record_consumer({**asked, key: properties[key]}).close()
        except ConfigError as error:
            problems.append(str(error))
    return properties, config, problems


def _login(config: ConsumerConfig) -> str:
    security = config.security
    parts = [security.protocol]
    if security.tls is not None:
        tls = security.tls
        own = tls.certificate_location or tls.keystore_location or (tls.certificate_pem and "a certificate as text")
        parts.append(f"brokers are checked with {tls.ca_location or 'the authorities of this machine'}")
        if tls.ca_pem is not None:
            parts[-1] = "brokers are checked with the authorities in ssl.ca.pem"
        if not tls.verify_certificate:
            parts[-1] = "any certificate of a broker is accepted"
        if own:
            parts.append(f"this client shows {own}")
    if security.sasl is not None:
        sasl = security.sasl
        who = f"tokens of {sasl.token_source}" if sasl.token is not None else f"user {sasl.username!r}"
        parts.append(f"{sasl.mechanism} with {who}")
    elif security.tls is None:
        parts.append("no encryption and no login")
    return ", ".join(parts)


def _connected(arguments: argparse.Namespace, properties: Mapping[str, str], config: ConsumerConfig) -> list[Step]:
    """Log in with each part of the client. Without a token the others are not tried."""
    steps: list[Step] = []
    tokens = config.data_plane.get("oauth_cb")
    if isinstance(tokens, OAuthTokens):
        steps.append(_tried("token", lambda: _token(tokens)))
        if not steps[-1].ok:
            return steps

    def ours() -> str:
        reach(properties, timeout_s=arguments.timeout)
        return "logged in" if config.security.sasl is not None else "connected"

    steps.append(_tried("group membership", ours))
    steps.append(_tried("records (librdkafka)", lambda: _librdkafka(arguments)))
    return steps


def _token(tokens: OAuthTokens) -> str:
    token = tokens.token(now=True)
    whose = f" for {token.principal!r}" if token.principal else ""
    return f"{tokens.source.name} gave one{whose}; it ends in {token.expires_s - time.time():,.0f} s"


def _librdkafka(arguments: argparse.Namespace) -> str:
    from confluent_kafka import KafkaException  # here, so that the options can be listed without loading librdkafka
    from confluent_kafka.admin import AdminClient

    reasons: list[str] = []
    conf = {**client_conf(arguments), "error_cb": lambda error: reasons.append(error.str())}
    try:
        client = AdminClient(conf)  # type: ignore[arg-type]  # its stubs know no callbacks
        found = client.list_topics(timeout=arguments.timeout)
    except KafkaException as error:
        client.poll(0)
        told = reasons[0] if reasons else error.args[0].str()
        raise Kip848Error(told) from error
    return f"{len(found.brokers)} {'broker' if len(found.brokers) == 1 else 'brokers'} in cluster {found.cluster_id}"


def _tried(step: str, what: Callable[[], str]) -> Step:
    try:
        return Step(step, True, what())
    except Kip848Error as error:
        return Step(step, False, str(error))


def _shown(noted: FileProperty) -> Shown:
    hidden = is_secret(noted.key) or is_secret(noted.becomes or "")
    value = noted.value.partition("?")[0] if noted.key.endswith(".url") else noted.value  # some have keys in the query
    return Shown(noted.key, _HIDDEN if hidden else value, noted.means)
