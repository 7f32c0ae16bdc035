import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Base64;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/**
 * Writes what a producer is told of each record as JSON lines, into Afterlog's landing directory of acknowledgements.
 *
 * <p>Put it on the class path and set {@code interceptor.classes=AcknowledgementFeed} and {@code
 * acknowledgements.directory}. Needs kafka-clients 4.1 or later, which hands an acknowledgement its record's headers.
 *
 * <p>Acknowledgements arrive on the producer's network thread, which must not wait for a disk: they are queued, and one
 * thread writes. Where the queue is full they are dropped and counted, never the producer held up; a dropped
 * acknowledgement makes a message look as if nobody had acknowledged it.
 */
public final class AcknowledgementFeed implements ProducerInterceptor<Object, Object> {

    private static final int QUEUED = 100_000;
    private static final long FILE_BYTES = 8L << 20;
    private static final long FILE_MILLIS = 10_000;

    private final BlockingQueue<String> lines = new ArrayBlockingQueue<>(QUEUED);
    private final AtomicLong dropped = new AtomicLong();
    private Path directory;
    private String clientId;
    private volatile boolean closing;
    private Thread writer;

    @Override
    public void configure(Map<String, ?> configs) {
        Object named = configs.get("acknowledgements.directory");
        if (named == null) {
            throw new IllegalArgumentException("Set acknowledgements.directory to Afterlog's landing directory.");
        }
        directory = Path.of(named.toString());
        clientId = String.valueOf(configs.get("client.id"));
        writer = new Thread(this::write, "acknowledgement-feed");
        writer.setDaemon(true);
        writer.start();
    }

    @Override
    public ProducerRecord<Object, Object> onSend(ProducerRecord<Object, Object> record) {
        return record;
    }

    @Override
    public void onAcknowledgement(RecordMetadata metadata, Exception exception, Headers headers) {
        if (!lines.offer(line(metadata, exception, headers))) {
            dropped.incrementAndGet();
        }
    }

    @Override
    public void close() {
        closing = true;
        try {
            writer.join(FILE_MILLIS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        if (dropped.get() > 0) {
            System.err.println("AcknowledgementFeed dropped " + dropped.get() + " acknowledgements: its queue was full.");
        }
    }

    private String line(RecordMetadata metadata, Exception exception, Headers headers) {
        StringBuilder json = new StringBuilder(512).append("{\"topic\":");
        quote(json, metadata.topic());
        json.append(",\"partition\":").append(metadata.partition());
        json.append(",\"offset\":").append(metadata.hasOffset() ? metadata.offset() : -1);
        json.append(",\"timestamp\":").append(metadata.hasTimestamp() ? metadata.timestamp() : -1);
        json.append(",\"serializedKeySize\":").append(metadata.serializedKeySize());
        json.append(",\"serializedValueSize\":").append(metadata.serializedValueSize());
        json.append(",\"exception\":");
        quote(json, exception == null ? null : exception.toString());
        json.append(",\"headers\":[");
        String separator = "";
        for (Header header : headers) {
            json.append(separator).append("{\"key\":");
            quote(json, header.key());
            json.append(",\"value\":");
            quote(json, header.value() == null ? null : Base64.getEncoder().encodeToString(header.value()));
            json.append('}');
            separator = ",";
        }
        json.append("],\"acknowledged_at\":").append(System.currentTimeMillis()).append(",\"client_id\":");
        quote(json, clientId);
        return json.append("}\n").toString();
    }

    /** Anything that is not printable ASCII is escaped, so that no name can break a line or its encoding. */
    private static void quote(StringBuilder json, String text) {
        if (text == null) {
            json.append("null");
            return;
        }
        json.append('"');
        for (int at = 0; at < text.length(); at++) {
            char unit = text.charAt(at);
            if (unit == '"' || unit == '\\') {
                json.append('\\').append(unit);
            } else if (unit < ' ' || unit > '~') {
                json.append(String.format("\\u%04x", (int) unit));
            } else {
                json.append(unit);
            }
        }
        json.append('"');
    }

    private void write() {
        for (int number = 0; !(closing && lines.isEmpty()); number++) {
            try {
                writeFile(String.format("%d-%d-%06d.jsonl", ProcessHandle.current().pid(), System.nanoTime(), number));
            } catch (IOException | InterruptedException failed) {
                System.err.println("AcknowledgementFeed cannot write to " + directory + ": " + failed);
                if (closing || failed instanceof InterruptedException) {
                    return;
                }
            }
        }
    }

    /** Write the lines of some seconds to one file, which gets its name when it is complete. */
    private void writeFile(String name) throws IOException, InterruptedException {
        String first = null;
        while (first == null && !(closing && lines.isEmpty())) {
            first = lines.poll(100, TimeUnit.MILLISECONDS);
        }
        if (first == null) {
            return;
        }
        Files.createDirectories(directory);
        Path scratch = directory.resolve(name + ".tmp");
        long until = System.currentTimeMillis() + FILE_MILLIS;
        try (BufferedWriter out = Files.newBufferedWriter(scratch, StandardCharsets.US_ASCII)) {
            long written = 0;
            for (String line = first; ; line = lines.poll(100, TimeUnit.MILLISECONDS)) {
                if (line != null) {
                    out.write(line);
                    written += line.length();
                }
                boolean done = written >= FILE_BYTES || System.currentTimeMillis() >= until;
                if (done || (closing && lines.isEmpty())) {
                    break;
                }
            }
        }
        Files.move(scratch, directory.resolve(name), StandardCopyOption.ATOMIC_MOVE);
    }
}
