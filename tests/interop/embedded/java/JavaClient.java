import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Apache Kafka's own clients, driven by a test: one task per process, facts on standard output, one a line.
 *
 * produce ADDRESS TOPIC COUNT PARTITIONS          "acked PARTITION OFFSET" for every record
 * consume ADDRESS GROUP TOPIC|^PATTERN [KEY=VALUE...]  "assigned P,P", "revoked P,P", "record PARTITION OFFSET VALUE";
 *                                                  ends, committing and leaving, when standard input ends
 * share ADDRESS GROUP TOPIC                       "took PARTITION OFFSET COUNT ..." for the records of a poll, and "done
 *                                                  PARTITION OFFSET ..." once they are accepted; ends as consume does
 * renew ADDRESS GROUP TOPIC                       "took ..." as share does, then as each line of standard input says:
 *                                                  "renewed PARTITION OFFSET ...", or "done ..." and the end
 * transact ADDRESS TOPIC                          a commit with an offset of group g, an abort, a zombie and its
 *                                                  successor; then "read VALUES" of what is committed in partition 0
 * admin ADDRESS                                    a tour of the administrator's calls, one line each
 * assign                                           for each group on standard input one line "MEMBER=TOPIC-P,TOPIC-P ..."
 */
public final class JavaClient {
    public static void main(String[] arguments) throws Exception {
        switch (arguments[0]) {
            case "produce" -> produce(arguments);
            case "consume" -> consume(arguments);
            case "share" -> share(arguments[1], arguments[2], arguments[3]);
            case "renew" -> renew(arguments[1], arguments[2], arguments[3]);
            case "transact" -> transact(arguments[1], arguments[2]);
            case "admin" -> admin(arguments[1]);
            case "assign" -> assign();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static Properties properties(String address) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", address);
        properties.put("key.serializer", StringSerializer.class.getName());
        properties.put("value.serializer", StringSerializer.class.getName());
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        return properties;
    }

    private static void produce(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[3]);
        int partitions = Integer.parseInt(arguments[4]);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties(arguments[1]))) {
            for (int number = 0; number < count; number++) {
                Future<RecordMetadata> sent = producer.send(
                    new ProducerRecord<>(arguments[2], number % partitions, "key", Integer.toString(number)),
                    (metadata, error) -> {
                        if (error != null) throw new IllegalStateException(error);
                        say("acked " + metadata.partition() + " " + metadata.offset());
                    });
                if (number == count - 1) {
                    sent.get();
                }
            }
        }
    }

    private static void consume(String[] arguments) throws Exception {
        Properties properties = properties(arguments[1]);
        properties.put("group.id", arguments[2]);
        properties.put("group.protocol", "consumer");
        properties.put("auto.offset.reset", "earliest");
        properties.put("auto.commit.interval.ms", "100");
        for (int index = 4; index < arguments.length; index++) {
            String[] pair = arguments[index].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                say("assigned " + names(partitions));
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                say("revoked " + names(partitions));
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                say("lost " + names(partitions));
            }
        };
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            String topic = arguments[3];
            if (topic.startsWith("^")) {
                consumer.subscribe(new org.apache.kafka.clients.consumer.SubscriptionPattern(topic), listener);
            } else {
                consumer.subscribe(List.of(topic), listener);
            }
            while (System.in.available() == 0) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                    say("record " + record.partition() + " " + record.offset() + " " + record.value());
                }
            }
        }
        say("closed");
    }

    private static void share(String address, String group, String topic) throws Exception {
        Properties properties = properties(address);
        properties.put("group.id", group);
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                StringBuilder line = new StringBuilder(error == null ? "done" : "refused " + error);
                offsets.forEach((place, done) ->
                    done.forEach(offset -> line.append(" " + place.partition() + " " + offset)));
                say(line.toString());
            });
            consumer.subscribe(List.of(topic));
            while (System.in.available() == 0) {
                StringBuilder line = new StringBuilder("took");
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    line.append(" " + record.partition() + " " + record.offset() + " " + record.deliveryCount().get());
                }
                if (line.length() > 4) {
                    say(line.toString());
                    consumer.commitSync();
                }
            }
        }
    }

    private static void renew(String address, String group, String topic) throws Exception {
        Properties properties = properties(address);
        properties.put("group.id", group);
        properties.put("share.acknowledgement.mode", "explicit");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(topic));
            while (true) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) continue;
                StringBuilder places = new StringBuilder();
                for (ConsumerRecord<String, String> record : records) {
                    say("took " + record.partition() + " " + record.offset() + " " + record.deliveryCount().get());
                    places.append(" " + record.partition() + " " + record.offset());
                }
                String order = orders.readLine();
                if (order == null) return;
                AcknowledgeType type = order.equals("renew") ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT;
                records.forEach(record -> consumer.acknowledge(record, type));
                consumer.commitSync().values().forEach(error -> error.ifPresentOrElse(
                    refused -> say("refused " + refused),
                    () -> say((type == AcknowledgeType.RENEW ? "renewed" : "done") + places)));
                if (type == AcknowledgeType.ACCEPT) return;
            }
        }
    }

    private static void transact(String address, String topic) {
        try (KafkaProducer<String, String> zombie = transactional(address);
                KafkaConsumer<String, String> reader = new KafkaConsumer<>(readingCommitted(address))) {
            TopicPartition place = new TopicPartition(topic, 0);
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(topic, 0, "key", "kept"));
            zombie.send(new ProducerRecord<>(topic, 1, "key", "kept"));
            zombie.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(5)), new ConsumerGroupMetadata("g"));
            zombie.commitTransaction();
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(topic, 0, "key", "taken back"));
            zombie.flush();
            zombie.abortTransaction();
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(topic, 0, "key", "of the zombie"));
            zombie.flush();
            try (KafkaProducer<String, String> successor = transactional(address)) {
                try {
                    zombie.commitTransaction();
                } catch (KafkaException error) {
                    say("refused " + error.getClass().getSimpleName());
                }
                successor.beginTransaction();
                successor.send(new ProducerRecord<>(topic, 0, "key", "last"));
                successor.commitTransaction();
            }
            reader.assign(List.of(place));
            List<String> values = new ArrayList<>();
            while (!values.contains("last")) {
                reader.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
            }
            say("read " + values);
        }
    }

    private static KafkaProducer<String, String> transactional(String address) {
        Properties properties = properties(address);
        properties.put("transactional.id", "tx");
        KafkaProducer<String, String> producer = new KafkaProducer<>(properties);
        producer.initTransactions();
        return producer;
    }

    private static Properties readingCommitted(String address) {
        Properties properties = properties(address);
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", "read_committed");
        return properties;
    }

    private static void admin(String address) throws Exception {
        try (Admin admin = Admin.create(properties(address))) {
            admin.createTopics(List.of(new NewTopic("users", 2, (short) 1))).all().get();
            admin.createPartitions(Map.of("users", NewPartitions.increaseTo(3))).all().get();
            say("topics " + new TreeSet<>(admin.listTopics().names().get()));
            say("partitions " + admin.describeTopics(List.of("users")).allTopicNames().get().get("users").partitions().size());
            say("nodes " + admin.describeCluster().nodes().get().size());
            TopicPartition first = new TopicPartition("orders", 0);
            say("end " + admin.listOffsets(Map.of(first, OffsetSpec.latest())).partitionResult(first).get().offset());
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, "g");
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(
                new ConfigEntry("consumer.session.timeout.ms", "700"), AlterConfigOp.OpType.SET)))).all().get();
            say("session " + admin.describeConfigs(List.of(group)).all().get().get(group)
                .get("consumer.session.timeout.ms").value());
            admin.listConsumerGroups().all().get().forEach(listing ->
                say("group " + listing.groupId() + " " + listing.type().orElseThrow() + " " + listing.groupState().orElseThrow()));
            var described = admin.describeConsumerGroups(List.of("g")).all().get().get("g");
            say("described " + described.groupState() + " " + described.members().size() + " " + described.partitionAssignor());
            say("offsets " + admin.listConsumerGroupOffsets("g").partitionsToOffsetAndMetadata().get().get(first).offset());
            admin.deleteConsumerGroups(List.of("g")).all().get();
            admin.deleteTopics(Set.of("users")).all().get();
            say("topics " + new TreeSet<>(admin.listTopics().names().get()));
        }
    }

    /**
     * A group is a line of fields with tabs between them: the assignor's class; the topics, as
     * "TOPIC=RACK+RACK;RACK ..." with the racks of each partition's replicas; and for each member
     * "ID|RACK|INSTANCE|GENERATION|TOPIC,TOPIC|TOPIC-P,TOPIC-P".
     */
    private static void assign() throws Exception {
        var input = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t", -1);
            Set<Node> nodes = new HashSet<>();
            List<PartitionInfo> partitions = new ArrayList<>();
            for (String topic : fields[1].split(" ")) {
                String[] racks = topic.split("=")[1].split(";", -1);
                for (int index = 0; index < racks.length; index++) {
                    Node[] replicas = Arrays.stream(racks[index].split("\\+"))
                        .map(rack -> new Node(rack.hashCode() & 0xffff, rack, 1, rack.equals("-") ? null : rack))
                        .toArray(Node[]::new);
                    nodes.addAll(List.of(replicas));
                    partitions.add(new PartitionInfo(topic.split("=")[0], index, replicas[0], replicas, replicas));
                }
            }
            Map<String, Subscription> members = new HashMap<>();
            for (int index = 2; index < fields.length; index++) {
                String[] member = fields[index].split("\\|", -1);
                List<TopicPartition> owned = new ArrayList<>();
                for (String one : member[5].split(",")) {
                    int dash = one.lastIndexOf('-');
                    if (dash > 0) owned.add(new TopicPartition(one.substring(0, dash), Integer.parseInt(one.substring(dash + 1))));
                }
                Subscription subscription = new Subscription(List.of(member[4].split(",")), null, owned,
                    Integer.parseInt(member[3]), member[1].isEmpty() ? Optional.empty() : Optional.of(member[1]));
                if (!member[2].isEmpty()) subscription.setGroupInstanceId(Optional.of(member[2]));
                members.put(member[0], subscription);
            }
            var assignor = (ConsumerPartitionAssignor) Class
                .forName("org.apache.kafka.clients.consumer." + fields[0]).getDeclaredConstructor().newInstance();
            Cluster cluster = new Cluster("c", nodes, partitions, Set.of(), Set.of());
            StringBuilder given = new StringBuilder();
            assignor.assign(cluster, new GroupSubscription(members)).groupAssignment().forEach((member, assignment) -> {
                TreeSet<String> names = new TreeSet<>();
                assignment.partitions().forEach(one -> names.add(one.toString()));
                given.append(member).append('=').append(String.join(",", names)).append(' ');
            });
            say(given.toString());
        }
    }

    private static String names(Collection<TopicPartition> partitions) {
        TreeSet<Integer> numbers = new TreeSet<>();
        partitions.forEach(partition -> numbers.add(partition.partition()));
        return numbers.toString();
    }

    private static synchronized void say(String fact) {
        System.out.println(fact);
        System.out.flush();
    }
}
