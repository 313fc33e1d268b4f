import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * The groups of assignors.py with Kafka's own assignors: milliseconds of CPU when the last of 10,000 members joins,
 * median of 31 after as many to warm up.
 *
 * ASSIGNOR PARTITIONS_PER_MEMBER TOPICS BUCKETS; members subscribe to one of so many sets of topics.
 */
public final class AssignorTimes {
    private static final int MEMBERS = 10_000;
    private static final int ROUNDS = 31;

    public static void main(String[] arguments) {
        PartitionAssignor assignor = arguments[0].equals("range") ? new RangeAssignor() : new UniformAssignor();
        int topics = Integer.parseInt(arguments[2]);
        int buckets = Integer.parseInt(arguments[3]);
        int count = MEMBERS * Integer.parseInt(arguments[1]) / topics;
        SubscribedTopicDescriber describer = new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return count;
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        Map<String, MemberAssignment> before =
            assignor.assign(spec(MEMBERS - 1, topics, buckets, Map.of()), describer).members();
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        double[] times = new double[2 * ROUNDS];
        for (int round = 0; round < times.length; round++) {
            GroupSpecImpl group = spec(MEMBERS, topics, buckets, before);
            System.gc();
            long began = threads.getCurrentThreadCpuTime();
            assignor.assign(group, describer);
            times[round] = (threads.getCurrentThreadCpuTime() - began) / 1e6;
        }
        double[] measured = Arrays.copyOfRange(times, ROUNDS, times.length);
        Arrays.sort(measured);
        System.out.println(measured[ROUNDS / 2]);
    }

    private static GroupSpecImpl spec(int size, int topics, int buckets, Map<String, MemberAssignment> before) {
        List<Set<Uuid>> sets = new java.util.ArrayList<>();
        for (int bucket = 0; bucket < buckets; bucket++) sets.add(new HashSet<>());
        for (int topic = 0; topic < topics; topic++) sets.get(topic % buckets).add(new Uuid(0, topic + 1));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (int number = 0; number < size; number++) {
            String member = String.format("member-%05d", number);
            MemberAssignment held = before.get(member);
            Assignment assignment = held == null ? Assignment.EMPTY : new Assignment(held.partitions());
            members.put(member, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.empty(), sets.get(number % buckets), assignment));
            assignment.partitions().forEach((topic, partitions) -> {
                Map<Integer, String> of = owners.computeIfAbsent(topic, missing -> new HashMap<>());
                for (int partition : partitions) of.put(partition, member);
            });
        }
        SubscriptionType type = buckets == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        return new GroupSpecImpl(members, type, owners);
    }
}
