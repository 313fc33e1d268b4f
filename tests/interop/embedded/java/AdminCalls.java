import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;

/**
 * Every method of Apache Kafka's administrator once: "METHOD ok", or "METHOD ERROR", one a line.
 *
 * The cluster has one node and no authorizer. The arguments are its address and a prefix for names of topics and groups.
 */
public final class AdminCalls {
    private static final Set<String> called = new TreeSet<>();

    interface Call {
        Object run() throws Exception;
    }

    private static void call(String name, Call call) {
        String outcome = "ok";
        try {
            Object result = call.run();
            if (result instanceof KafkaFuture<?> future) future.get();
        } catch (ExecutionException error) {
            outcome = error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            outcome = error.getClass().getSimpleName();
        }
        System.out.println(name + " " + outcome);
    }

    private static Admin recorded(Admin admin) {
        return (Admin) Proxy.newProxyInstance(Admin.class.getClassLoader(), new Class<?>[] {Admin.class}, (proxy, method, arguments) -> {
            called.add(method.getName());
            try {
                return method.invoke(admin, arguments);
            } catch (InvocationTargetException error) {
                throw error.getCause();
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> properties = Map.of("bootstrap.servers", arguments[0], "default.api.timeout.ms", "20000", "request.timeout.ms", "10000");
        try (Admin real = Admin.create(properties)) {
            all(recorded(real), real.describeCluster().nodes().get().iterator().next().id(), arguments[1]);
        }
        called.add("close");
        for (var method : Admin.class.getMethods()) {
            if (!method.getName().equals("create") && called.add(method.getName())) System.out.println(method.getName() + " not called");
        }
    }

    private static void all(Admin admin, int node, String prefix) {
        String foo = prefix + "foo", g = prefix + "g", s = prefix + "s", t = prefix + "t", x = prefix + "x";
        TopicPartition first = new TopicPartition(foo, 0);
        TopicPartitionReplica replica = new TopicPartitionReplica(foo, 0, node);
        call("createTopics", () -> admin.createTopics(List.of(new NewTopic(foo, 1, (short) 1))).all());
        call("listTopics", () -> admin.listTopics().names());
        call("describeTopics", () -> admin.describeTopics(List.of(foo)).allTopicNames());
        call("describeCluster", () -> admin.describeCluster().nodes());
        call("createPartitions", () -> admin.createPartitions(Map.of(foo, NewPartitions.increaseTo(2))).all());
        call("listOffsets", () -> admin.listOffsets(Map.of(first, OffsetSpec.latest())).all());
        call("deleteRecords", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(0))).all());
        call("electLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).all());
        call("alterPartitionReassignments", () -> admin.alterPartitionReassignments(Map.of(first, Optional.of(new NewPartitionReassignment(List.of(node))))).all());
        call("alterPartitionReassignments-cancel", () -> admin.alterPartitionReassignments(Map.of(first, Optional.empty())).all());
        call("alterPartitionReassignments-unknown", () -> admin.alterPartitionReassignments(Map.of(first, Optional.of(new NewPartitionReassignment(List.of(99))))).all());
        call("listPartitionReassignments", () -> admin.listPartitionReassignments().reassignments());
        call("describeLogDirs", () -> admin.describeLogDirs(List.of(node)).allDescriptions());
        call("describeReplicaLogDirs", () -> admin.describeReplicaLogDirs(List.of(replica)).all());
        call("alterReplicaLogDirs", () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all());
        call("describeProducers", () -> admin.describeProducers(List.of(first)).all());

        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, foo);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(node));
        call("describeConfigs", () -> admin.describeConfigs(List.of(topic, broker)).all());
        call("incrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(topic, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "60000"), AlterConfigOp.OpType.SET)))).all());
        call("listConfigResources", () -> admin.listConfigResources().all());
        call("listClientMetricsResources", () -> admin.listClientMetricsResources().all());

        AclBinding acl = new AclBinding(new ResourcePattern(ResourceType.TOPIC, foo, PatternType.LITERAL), new AccessControlEntry("User:a", "*", AclOperation.READ, AclPermissionType.ALLOW));
        call("createAcls", () -> admin.createAcls(List.of(acl)).all());
        call("describeAcls", () -> admin.describeAcls(AclBindingFilter.ANY).values());
        call("deleteAcls", () -> admin.deleteAcls(List.of(AclBindingFilter.ANY)).all());
        call("createDelegationToken", () -> admin.createDelegationToken().delegationToken());
        call("renewDelegationToken", () -> admin.renewDelegationToken(new byte[] {1}).expiryTimestamp());
        call("expireDelegationToken", () -> admin.expireDelegationToken(new byte[] {1}).expiryTimestamp());
        call("describeDelegationToken", () -> admin.describeDelegationToken().delegationTokens());
        ClientQuotaEntity client = new ClientQuotaEntity(Map.of("client-id", "c"));
        call("alterClientQuotas", () -> admin.alterClientQuotas(List.of(new ClientQuotaAlteration(client, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e9))))).all());
        call("describeClientQuotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities());
        call("alterUserScramCredentials", () -> admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("u", new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), "secret"))).all());
        call("describeUserScramCredentials", () -> admin.describeUserScramCredentials().all());

        call("describeFeatures", () -> admin.describeFeatures().featureMetadata());
        call("updateFeatures", () -> admin.updateFeatures(Map.of("group.version", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all());
        call("updateFeatures-unknown", () -> admin.updateFeatures(Map.of("no.feature", new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all());
        call("updateFeatures-above", () -> admin.updateFeatures(Map.of("group.version", new FeatureUpdate((short) 99, FeatureUpdate.UpgradeType.UPGRADE)), new UpdateFeaturesOptions()).all());
        call("describeMetadataQuorum", () -> admin.describeMetadataQuorum().quorumInfo());
        call("unregisterBroker", () -> admin.unregisterBroker(99).all());
        call("unregisterController", () -> admin.unregisterController(99).all());
        call("addRaftVoter", () -> admin.addRaftVoter(99, Uuid.randomUuid(), Set.of(new RaftVoterEndpoint("CONTROLLER", "localhost", 9)), new AddRaftVoterOptions().timeoutMs(1_000)).all());
        call("removeRaftVoter", () -> admin.removeRaftVoter(99, Uuid.randomUuid()).all());

        OffsetAndMetadata offset = new OffsetAndMetadata(0);
        call("alterConsumerGroupOffsets", () -> admin.alterConsumerGroupOffsets(g, Map.of(first, offset)).all());
        call("listGroups", () -> admin.listGroups().all());
        call("listConsumerGroups", () -> admin.listConsumerGroups().all());
        call("listConsumerGroupOffsets", () -> admin.listConsumerGroupOffsets(g).partitionsToOffsetAndMetadata());
        call("describeConsumerGroups", () -> admin.describeConsumerGroups(List.of(g)).all());
        call("describeClassicGroups", () -> admin.describeClassicGroups(List.of(g)).all());
        call("removeMembersFromConsumerGroup", () -> admin.removeMembersFromConsumerGroup(g, new RemoveMembersFromConsumerGroupOptions()).all());
        call("deleteConsumerGroupOffsets", () -> admin.deleteConsumerGroupOffsets(g, Set.of(first)).all());
        call("deleteConsumerGroups", () -> admin.deleteConsumerGroups(List.of(g)).all());
        call("alterShareGroupOffsets", () -> admin.alterShareGroupOffsets(s, Map.of(first, 0L)).all());
        call("listShareGroupOffsets", () -> admin.listShareGroupOffsets(Map.of(s, new ListShareGroupOffsetsSpec())).all());
        call("describeShareGroups", () -> admin.describeShareGroups(List.of(s)).all());
        call("deleteShareGroupOffsets", () -> admin.deleteShareGroupOffsets(s, Set.of(foo)).all());
        call("deleteShareGroups", () -> admin.deleteShareGroups(List.of(s)).all());
        call("alterStreamsGroupOffsets", () -> admin.alterStreamsGroupOffsets(t, Map.of(first, offset)).all());
        call("listStreamsGroupOffsets", () -> admin.listStreamsGroupOffsets(Map.of(t, new ListStreamsGroupOffsetsSpec())).all());
        call("describeStreamsGroups", () -> admin.describeStreamsGroups(List.of(t)).all());
        call("deleteStreamsGroupOffsets", () -> admin.deleteStreamsGroupOffsets(t, Set.of(first)).all());
        call("deleteStreamsGroups", () -> admin.deleteStreamsGroups(List.of(t)).all());

        call("fenceProducers", () -> admin.fenceProducers(List.of(x)).all());
        call("listTransactions", () -> admin.listTransactions().all());
        call("describeTransactions", () -> admin.describeTransactions(List.of(x)).all());
        call("abortTransaction", () -> admin.abortTransaction(new AbortTransactionSpec(first, 1, (short) 0, 0)).all());
        call("forceTerminateTransaction", () -> admin.forceTerminateTransaction(x).result());
        call("clientInstanceId", () -> admin.clientInstanceId(Duration.ofSeconds(5)));
        call("metrics", () -> admin.metrics());
        call("registerMetricForSubscription", () -> { admin.registerMetricForSubscription((org.apache.kafka.common.metrics.KafkaMetric) admin.metrics().values().iterator().next()); return null; });
        call("unregisterMetricFromSubscription", () -> { admin.unregisterMetricFromSubscription((org.apache.kafka.common.metrics.KafkaMetric) admin.metrics().values().iterator().next()); return null; });
        call("deleteTopics", () -> admin.deleteTopics(Set.of(foo)).all());
    }
}
