import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads and accepts, as `read` in share.py, and prints the same.
 *
 * ADDRESS GROUP TOPIC RECORDS LIMIT_S
 */
public final class ShareReader {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        long wanted = Long.parseLong(arguments[3]);
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(arguments[2]));
            long count = 0;
            long begun = 0;
            long cpu = cpuNs();
            long ends = System.nanoTime() + (long) (Double.parseDouble(arguments[4]) * 1e9);
            while (count < wanted && System.nanoTime() < ends) {
                int found = consumer.poll(Duration.ofMillis(500)).count();
                if (begun == 0 && found > 0)
                    begun = System.nanoTime();
                count += found;
            }
            System.out.println(count + " " + (System.nanoTime() - begun) / 1e9 + " " + (cpuNs() - cpu) / 1e9);
        }
    }

    private static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
