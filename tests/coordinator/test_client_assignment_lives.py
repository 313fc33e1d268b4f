"""Random lives of a group whose members may have client-side assignors, good and bad ones.

Everything of `test_properties` goes on; besides, members offer assignors and give them up, compute well, wrongly, too
late or never, and report errors. At the end the assignors behave, and the group must come to rest with every partition
read once.
"""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import invariant, precondition, rule
from msgspec.structs import replace

from kip848_client.coordinator.client_assignors import choose
from kip848_client.errors import ErrorCode
from kip848_client.wire.messages.consumer_group_heartbeat import Assignor
from kip848_client.wire.messages.consumer_group_prepare_assignment import ConsumerGroupPrepareAssignmentResponse
from tests.coordinator.test_properties import PATTERNS, TOPICS, Client, GroupLife
from tests.support.assignment_harness import AssignmentHarness, offer, spread
from tests.support.coordinator_harness import FAST, FailedAppend, Harness

_OFFERS = st.sampled_from([["a"], ["a"], ["a", "b"], ["b", "a"], []]).flatmap(
    lambda names: st.tuples(
        *[
            st.builds(
                offer,
                st.just(name),
                versions=st.just((0, 2)),
                version=st.integers(0, 2),
                reason=st.integers(0, 1),
                data=st.sampled_from([b"", b"x"]),
            )
            for name in names
        ]
    )
)


_WHAT = st.sampled_from(["good", "good", "error", "nothing", "twice", "stranger", "full disk"])


class ClientModeLife(GroupLife):
    """See the module."""

    h: AssignmentHarness

    def __init__(self) -> None:
        super().__init__()
        self.prepared: dict[str, ConsumerGroupPrepareAssignmentResponse] = {}

    def make_harness(self) -> Harness:
        return AssignmentHarness(config=replace(FAST, consumer_regex_refresh_min_interval_ms=100))

    # What clients do

    @precondition(lambda self: len(self.clients) % 4 == 3)  # else the group would hardly ever be in client mode
    @rule(
        topics=st.sets(st.sampled_from(TOPICS)),
        regex=st.none() | st.sampled_from(PATTERNS),
        static=st.booleans(),
        assignor=st.none() | st.sampled_from(["uniform", "range"]),
    )
    def start(self, topics: set[str], regex: str | None, static: bool, assignor: str | None) -> None:
        super().start(topics, regex, static, assignor)

    @rule(topics=st.sets(st.sampled_from(TOPICS)), regex=st.none() | st.sampled_from(PATTERNS), offers=_OFFERS)
    def start_with_assignors(self, topics: set[str], regex: str | None, offers: tuple[Assignor, ...]) -> None:
        if len(self._alive()) >= 5:
            return
        number = len(self.clients)
        static = number % 2 == 0
        self.clients.append(
            Client(f"m{number}", tuple(sorted(topics)), regex, f"i{number}" if static else None, offers=offers)
        )
        self._send(self.clients[-1])

    @precondition(lambda self: self._alive())
    @rule(data=st.data(), offers=_OFFERS)
    def offer_something_else(self, data: st.DataObject, offers: tuple[Assignor, ...]) -> None:
        client = self._choose(data)
        if client.assignor is None:
            client.offers, client.repeat = offers, True
            self._send(client)

    @precondition(lambda self: self._alive() and self.h.flying())
    @rule(data=st.data())
    def prepare(self, data: st.DataObject) -> None:
        client = self._any_or_chosen(data)
        response = self.h.prepare(client.member_id, epoch=client.epoch)
        if not response.error_code:
            self.prepared[client.member_id] = response

    @precondition(lambda self: self._alive() and self.h.flying())
    @rule(data=st.data(), what=_WHAT, to=st.integers(0, 5))
    def compute(self, data: st.DataObject, what: str, to: int) -> None:
        self.prepare(data)
        self.install(data, what, to)

    @precondition(lambda self: self._alive() and self.prepared)
    @rule(data=st.data(), what=_WHAT, to=st.integers(0, 5))
    def install(self, data: st.DataObject, what: str, to: int) -> None:
        client = self._any_or_chosen(data)
        prepared = self.prepared.get(client.member_id)
        group = self._group
        if prepared is None or group is None:
            return
        names = {topic.topic_id for topic in prepared.topics} - self.h.image.by_id.keys()
        if names:
            return  # the harness writes topics by name, and this one is gone
        parts: dict[str, dict[str, list[int]]] = spread(prepared)
        ids = sorted(parts)
        match what:
            case "nothing":
                parts = {}
            case "twice" if parts and any(parts.values()):
                member_id = next(member_id for member_id in ids if parts[member_id])
                topic = next(iter(parts[member_id]))
                parts[member_id][topic] = parts[member_id][topic] * 2
            case "stranger":
                parts["stranger"] = {}
            case "good" if ids:
                alone = ids[to % len(ids)]  # not always the same target
                everything = {topic.topic_name: list(range(topic.num_partitions)) for topic in prepared.topics}
                subscribed = next(m.subscribed_topic_ids for m in prepared.members if m.member_id == alone)
                if len(subscribed) == len(prepared.topics) and to > 2:
                    parts = {alone: everything}
            case _:
                pass
        before = self.h.state(), self.h.flying()
        self.h.fail_next_append = what == "full disk"
        try:
            answer = self.h.install(
                client.member_id,
                prepared.group_epoch,
                parts,
                epoch=client.epoch,
                error=to + 1 if what == "error" else 0,
                metadata={member_id: (to, b"told") for member_id in ids if to % 2},
            )
        except FailedAppend:
            assert (self.h.state(), self.h.flying()) == before
            return
        finally:
            self.h.fail_next_append = False
        if answer.error_code:
            assert self.h.state() == before[0]
        else:
            assert before[1] is not None
            assert before[1].member_id == client.member_id
            after = self._group
            assert after is not None
            assert after.target_epoch == prepared.group_epoch
            if what == "error":
                for member in after.members.values():
                    assert member.target.keys() <= self._subscribed_ids(after, member)
        if what in ("twice", "stranger") and any(spread(prepared).values()):
            assert answer.error_code

    # What must hold

    @invariant()
    def a_round_is_in_flight_only_while_a_target_is_wanted_and_all_can_be_computed_for(self) -> None:
        flying, group = self.h.flying(), self._group
        if flying is None or group is None:
            return
        assert group.group_epoch > group.target_epoch
        offers = {member_id: member.metadata.client_assignors for member_id, member in group.members.items()}
        assert choose(offers) is not None, "in server mode no member computes"
        if flying.prepared is None:
            offering = [
                member_id
                for member_id, member in group.members.items()
                if any(assignor.name == flying.assignor_name for assignor in member.metadata.client_assignors)
            ]
            assert sorted(offering) == sorted(group.members)

    @invariant()
    def a_member_hears_what_belongs_to_its_epoch(self) -> None:
        group = self._group
        if group is None:
            return
        for member in group.members.values():
            if member.member_epoch == group.target_epoch:
                assert member.metadata_told == member.target_metadata

    # At the end

    def teardown(self) -> None:
        for client in self._alive():
            if client.offers:
                first, *others = client.offers
                client.offers = (replace(first, metadata_bytes=b"the end"), *others)
                client.repeat = True
        super().teardown()

    def _act(self, client: Client) -> None:
        super()._act(client)
        flying = self.h.flying()
        if flying is not None and flying.member_id == client.member_id:
            prepared = self.h.prepare(client.member_id, epoch=client.epoch)
            if prepared.error_code == ErrorCode.NONE:
                assert self.h.install(client.member_id, prepared.group_epoch, spread(prepared)).error_code == 0

    def _any_or_chosen(self, data: st.DataObject) -> Client:
        flying = self.h.flying()
        alive = self._alive()
        if flying is not None and data.draw(st.sampled_from([True, True, True, False])):
            alive = [client for client in alive if client.member_id == flying.member_id] or alive
        return data.draw(st.sampled_from(alive))


TestClientModeLife = ClientModeLife.TestCase
TestClientModeLife.settings = settings(stateful_step_count=50)
