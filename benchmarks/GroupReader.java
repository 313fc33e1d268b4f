import java.io.FileWriter;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.WakeupException;

/**
 * One member, as `read_for_ever` in handover.py: writes down what it reads (time, partition, offset), leaves on SIGTERM.
 *
 * FILE PROPERTIES
 */
public final class GroupReader {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (var reader = Files.newBufferedReader(Path.of(arguments[1]))) {
            properties.load(reader);
        }
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties);
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                closed.await();
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of("t"));
        try (PrintWriter file = new PrintWriter(new FileWriter(arguments[0], true))) {
            while (true) {
                var records = consumer.poll(Duration.ofMillis(50));
                double now = System.nanoTime() / 1e9;
                for (ConsumerRecord<byte[], byte[]> record : records)
                    file.printf("%.6f %d %d%n", now, record.partition(), record.offset());
                file.flush();
            }
        } catch (WakeupException stopping) {
            consumer.close();
        } finally {
            closed.countDown();
        }
    }
}
