"""The test kit: the embedded broker, what its calls take and return, fault rules, and the proxy before a real Kafka.

Here belong names for tests of programs that use Kafka. Not here: what has them (`broker`, `faults`), and `simulation`.
"""

from kip848_client.broker.broker import EmbeddedBroker as EmbeddedBroker
from kip848_client.broker.cluster.nodes import Listener as Listener
from kip848_client.broker.cluster.nodes import NodeSnapshot as NodeSnapshot
from kip848_client.broker.controls.acls import BrokerAcls as BrokerAcls
from kip848_client.broker.controls.clock import BrokerClock as BrokerClock
from kip848_client.broker.controls.groups import BrokerGroups as BrokerGroups
from kip848_client.broker.controls.nodes import BrokerNodes as BrokerNodes
from kip848_client.broker.controls.quotas import BrokerQuotas as BrokerQuotas
from kip848_client.broker.controls.quotas import ClientQuota as ClientQuota
from kip848_client.broker.controls.shares import BrokerShares as BrokerShares
from kip848_client.broker.controls.topics import BrokerTopics as BrokerTopics
from kip848_client.broker.controls.transactions import BrokerTransactions as BrokerTransactions
from kip848_client.broker.coordinators.snapshots import GroupSnapshot as GroupSnapshot
from kip848_client.broker.coordinators.snapshots import MemberSnapshot as MemberSnapshot
from kip848_client.broker.coordinators.transaction_host import TransactionSnapshot as TransactionSnapshot
from kip848_client.broker.net.faults import FaultRule as FaultRule
from kip848_client.broker.net.faults import Faults as Faults
from kip848_client.broker.net.listener_security import BrokerSasl as BrokerSasl
from kip848_client.broker.net.listener_security import BrokerTls as BrokerTls
from kip848_client.broker.net.logged_request import AnsweredError as AnsweredError
from kip848_client.broker.net.logged_request import LoggedRequest as LoggedRequest
from kip848_client.broker.net.request_log import RequestLog as RequestLog
from kip848_client.broker.proxy.fault_proxy import FaultProxy as FaultProxy
from kip848_client.broker.share.share_group import ShareGroupSnapshot as ShareGroupSnapshot
from kip848_client.broker.share.share_host import SharePartitionSnapshot as SharePartitionSnapshot
from kip848_client.broker.topics.records import BrokerRecord as BrokerRecord
from kip848_client.broker.topics.records import NewRecord as NewRecord
from kip848_client.clock import ManualClock as ManualClock
from kip848_client.faults.actions import Action as Action
from kip848_client.faults.actions import answer as answer
from kip848_client.faults.actions import close as close
from kip848_client.faults.actions import coordinator_not_here as coordinator_not_here
from kip848_client.faults.actions import cut_reply as cut_reply
from kip848_client.faults.actions import delay as delay
from kip848_client.faults.actions import drop as drop
from kip848_client.faults.actions import duplicate as duplicate
from kip848_client.faults.actions import error as error
from kip848_client.faults.actions import hold as hold
from kip848_client.faults.actions import lose_reply as lose_reply
from kip848_client.faults.actions import pass_through as pass_through
from kip848_client.faults.actions import rewrite as rewrite
from kip848_client.faults.actions import rewrite_request as rewrite_request
from kip848_client.faults.rules import ALWAYS as ALWAYS
from kip848_client.faults.rules import Match as Match
from kip848_client.faults.rules import Rule as Rule
from kip848_client.faults.rules import select_apis as select_apis
from kip848_client.faults.subject import GROUP_APIS as GROUP_APIS
from kip848_client.faults.subject import HEARTBEAT_APIS as HEARTBEAT_APIS
from kip848_client.faults.subject import OpaqueRequest as OpaqueRequest
from kip848_client.model import NamedPartition as NamedPartition
from kip848_client.share_partitions.share_partition import InFlightRecords as InFlightRecords
from kip848_client.share_partitions.share_partition import RecordState as RecordState
from kip848_client.wire.api_keys import ApiKey as ApiKey
