"""``kip848 acls``: who may do what: list, create and delete access rules.

::

    kip848 acls list --bootstrap 127.0.0.1:9092
    kip848 acls create User:alice READ DESCRIBE --topic orders --bootstrap 127.0.0.1:9092
    kip848 acls create User:alice READ --group 'billing-' --prefixed --bootstrap 127.0.0.1:9092
    kip848 acls delete User:alice --topic orders --bootstrap 127.0.0.1:9092
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from kip848_client.admin.results import raise_all
from kip848_client.cli.shared.options import add_question_arguments
from kip848_client.cli.shared.properties import reach, read_properties
from kip848_client.cli.shared.tables import table
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import counted
from kip848_client.errors import ConfigError, Kip848Error
from kip848_client.tools.shared.admin_client import admin_client, asked

if TYPE_CHECKING:
    from confluent_kafka.admin._acl import AclBinding

OPERATIONS: Final = (
    *("ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE"),
    *("CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"),
)
_RESOURCES: Final = {"topic": "TOPIC", "group": "GROUP", "transactional_id": "TRANSACTIONAL_ID", "cluster": "BROKER"}
"""Option -> what librdkafka calls it."""
_CLUSTER: Final = "kafka-cluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in (
        ("list", "the rules that match; all without options"),
        ("create", "allow, or deny, operations on a resource"),
        ("delete", "delete the rules that match"),
    ):
        action = actions.add_parser(name, help=help_text)
        if name == "create":
            action.add_argument("principal", metavar="PRINCIPAL", help="User:NAME, or User:* for everyone")
            action.add_argument("operations", metavar="OPERATION", nargs="+", type=str.upper, choices=OPERATIONS)
            action.add_argument("--deny", action="store_true", help="deny; a denial wins over what is allowed")
        else:
            action.add_argument("principal", metavar="PRINCIPAL", nargs="?" if name == "list" else None)
        resource = action.add_mutually_exclusive_group(required=name != "list")
        resource.add_argument("--topic", metavar="NAME", help="a topic; '*' is every one")
        resource.add_argument("--group", metavar="NAME", help="a group")
        resource.add_argument("--transactional-id", metavar="NAME", help="a transactional id")
        resource.add_argument("--cluster", action="store_const", const=_CLUSTER, help="the cluster itself")
        action.add_argument("--prefixed", action="store_true", help="names that begin with NAME")
        if name != "list":
            action.add_argument("--host", metavar="ADDRESS", default="*", help="of the client (*)")
        add_question_arguments(action)


def run(arguments: argparse.Namespace) -> int:
    """Run the action.

    Raises:
        ConfigError: an option is out of range.
        Kip848Error: no broker answers, or one refuses.
    """
    reach(read_properties(arguments), timeout_s=arguments.timeout)
    if arguments.action == "create":
        return _create(arguments)
    client = admin_client(arguments)
    wanted = _filter(arguments)
    if arguments.action == "list":
        found = asked("access rules", client.describe_acls(wanted, request_timeout=arguments.timeout).result)
        return _show(found, "rules", as_json=arguments.json)
    (future,) = client.delete_acls([wanted], request_timeout=arguments.timeout).values()
    gone = asked("access rules were not deleted", future.result)
    return _show(gone, "deleted", as_json=arguments.json)


def _create(arguments: argparse.Namespace) -> int:
    from confluent_kafka.admin._acl import AclBinding

    if not arguments.principal.partition(":")[2]:
        raise ConfigError(f"{arguments.principal!r} is not a principal such as User:alice")
    kind, name = _resource(arguments)
    pattern = "PREFIXED" if arguments.prefixed else "LITERAL"
    permission = "DENY" if arguments.deny else "ALLOW"
    rules = [
        AclBinding(kind, name, pattern, arguments.principal, arguments.host, operation, permission)
        for operation in arguments.operations
    ]
    created: list[AclBinding] = []
    refused: list[Kip848Error] = []
    client = admin_client(arguments)  # as long as its answers are awaited
    for rule, future in client.create_acls(rules, request_timeout=arguments.timeout).items():
        try:
            asked(f"{_cells(rule)[1]} for {rule.principal} was not created", future.result)
        except Kip848Error as error:
            refused.append(error)
        else:
            created.append(rule)
    _show(created, "created", as_json=arguments.json)
    raise_all(refused)
    return 0


def _resource(arguments: argparse.Namespace) -> tuple[str, Any]:
    for option, kind in _RESOURCES.items():
        if (name := getattr(arguments, option)) is not None:
            return kind, name
    return "ANY", None  # any name


def _filter(arguments: argparse.Namespace) -> Any:
    from confluent_kafka.admin._acl import AclBindingFilter

    kind, name = _resource(arguments)
    pattern = "PREFIXED" if arguments.prefixed else "ANY" if name is None else "LITERAL"
    host: Any = None if arguments.action == "list" or arguments.host == "*" else arguments.host
    return AclBindingFilter(kind, name, pattern, arguments.principal, host, "ANY", "ANY")


def _cells(rule: Any) -> tuple[str, ...]:
    kind = next(option for option, known in _RESOURCES.items() if known == rule.restype.name)
    return (
        rule.principal,
        rule.operation.name,
        kind,
        rule.name + ("..." if rule.resource_pattern_type.name == "PREFIXED" else ""),
        rule.permission_type.name.lower(),
        rule.host,
    )


def _show(rules: list[AclBinding], what: str, *, as_json: bool) -> int:
    header = ("principal", "operation", "resource", "name", "permission", "host")
    rows = sorted(map(_cells, rules))
    if as_json:
        print(to_json({what: [dict(zip(header, row, strict=True)) for row in rows]}))
    elif rows:
        print(table([title.upper() for title in header], rows))
    if not as_json and what != "rules":
        print(f"{counted(len(rows), 'rule')} {what}")
    elif not as_json and not rows:
        # librdkafka 2.16 drops the refusal of a user who may not see them.
        print("no rules, or this user may not see them (DESCRIBE on the cluster)", file=sys.stderr)
    return 0
