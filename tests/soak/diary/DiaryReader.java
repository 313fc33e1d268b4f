import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** As reader.py: FILE TOPIC KEY=VALUE...; reads what is there, writes down when, commits it. SIGTERM makes it leave. */
public final class DiaryReader {
    private static volatile boolean leaves = false;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Properties properties = new Properties();
        for (int index = 2; index < arguments.length; index++) {
            String[] property = arguments[index].split("=", 2);
            properties.put(property[0], property[1]);
        }
        String name = properties.getProperty("client.id");
        Thread reading = Thread.currentThread();
        try (FileOutputStream file = new FileOutputStream(arguments[0], true);
                KafkaConsumer<byte[], byte[]> consumer =
                        new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                leaves = true;
                consumer.wakeup();
                try {
                    reading.join();
                } catch (InterruptedException ended) {
                    // the process ends
                }
            }));
            consumer.subscribe(List.of(topic));
            while (!leaves) {
                try {
                    Set<TopicPartition> read = consumer.poll(Duration.ofMillis(100)).partitions();
                    for (TopicPartition one : read) tell(file, name, "read", topic, one.partition(), "");
                    if (!read.isEmpty()) consumer.commitSync();
                } catch (WakeupException told) {
                    // leaves
                } catch (KafkaException error) {
                    tell(file, name, "error", topic, -1, error.getClass().getSimpleName());
                }
            }
        }
    }

    private static void tell(FileOutputStream file, String name, String kind, String topic, int partition, String text)
            throws Exception {
        String line = String.format(
                "{\"at_ns\":%d,\"member\":\"%s\",\"kind\":\"%s\",\"topic\":\"%s\",\"partition\":%d,\"text\":\"%s\"}%n",
                System.nanoTime(), name, kind, topic, partition, text);
        file.write(line.getBytes(StandardCharsets.UTF_8));
    }
}
