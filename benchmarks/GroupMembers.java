import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Holds a group of Java consumers, as `hold_members` in rebalance.py does with those of Python.
 *
 * ADDRESS GROUP PROTOCOL INTERVAL_MS MEMBERS; then "join" and "leave" on standard input, each answered with the time
 * (seconds since 1970) at which it began. One thread polls all members in turn.
 */
public final class GroupMembers {
    public static void main(String[] arguments) throws Exception {
        List<KafkaConsumer<byte[], byte[]>> consumers = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(arguments[4]); number++) {
            KafkaConsumer<byte[], byte[]> consumer = consumer(arguments);
            consumer.subscribe(List.of("t"));
            consumers.add(consumer);
        }
        KafkaConsumer<byte[], byte[]> spare = consumer(arguments);
        ConcurrentLinkedQueue<String> commands = new ConcurrentLinkedQueue<>();
        Thread reader = new Thread(() -> read(commands));
        reader.setDaemon(true);
        reader.start();
        while (reader.isAlive() || !commands.isEmpty()) {
            long began = System.nanoTime();
            for (KafkaConsumer<byte[], byte[]> consumer : consumers) consumer.poll(Duration.ZERO);
            String command = commands.poll();
            if (command != null) {
                System.out.println(System.currentTimeMillis() / 1000.0);
                if (command.equals("join")) {
                    spare.subscribe(List.of("t"));
                    consumers.add(spare);
                } else {
                    KafkaConsumer<byte[], byte[]> leaving = consumers.remove(consumers.size() - 1);
                    Thread closer = new Thread(leaving::close);
                    closer.setDaemon(true);
                    closer.start();
                }
            }
            long rest = 10 - (System.nanoTime() - began) / 1_000_000;
            if (rest > 0) Thread.sleep(rest);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void read(ConcurrentLinkedQueue<String> commands) {
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) commands.add(line.strip());
        } catch (java.io.IOException ended) {
            // as the end of the input
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("group.protocol", arguments[2]);
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (arguments[2].equals("classic")) {
            properties.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
            properties.put("heartbeat.interval.ms", arguments[3]);
            properties.put("session.timeout.ms", "30000");
        }
        return new KafkaConsumer<>(properties);
    }
}
