import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads and accepts, as `read` in share.py, or with WORKERS does jobs, as `work`; and prints the same.
 *
 * ADDRESS GROUP TOPIC RECORDS LIMIT_S WORKERS
 */
public final class ShareReader {
    private static final Callable<Void> JOB = () -> {
        Thread.sleep(20);
        return null;
    };

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        long wanted = Long.parseLong(arguments[3]);
        int workers = Integer.parseInt(arguments[5]);
        if (workers > 0)
            properties.put("share.acknowledgement.mode", "explicit");
        ExecutorService pool = Executors.newFixedThreadPool(Math.max(1, workers));
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.subscribe(List.of(arguments[2]));
            long count = 0;
            long begun = 0;
            long cpu = cpuNs();
            long ends = System.nanoTime() + (long) (Double.parseDouble(arguments[4]) * 1e9);
            while (count < wanted && System.nanoTime() < ends) {
                ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofMillis(500));
                if (begun == 0 && found.count() > 0)
                    begun = System.nanoTime();
                count += found.count();
                if (workers > 0) {
                    pool.invokeAll(Collections.nCopies(found.count(), JOB));
                    found.forEach(consumer::acknowledge);
                }
            }
            System.out.println(count + " " + (System.nanoTime() - begun) / 1e9 + " " + (cpuNs() - cpu) / 1e9);
        }
        pool.shutdown();
    }

    private static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
