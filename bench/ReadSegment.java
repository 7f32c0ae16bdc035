import java.io.File;
import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.FileRecords;

/** Kafka's own reading of a log segment, as its dump tool does it: each batch, its checksum held against its bytes. */
public class ReadSegment {
    public static void main(String[] arguments) throws Exception {
        long began = System.nanoTime();
        long batches = 0;
        long records = 0;
        try (FileRecords log = FileRecords.open(new File(arguments[0]), false)) {
            for (FileLogInputStream.FileChannelRecordBatch batch : log.batches()) {
                batch.ensureValid();
                batches++;
                records += batch.countOrNull();
            }
        }
        System.out.println(batches + " " + records + " " + (System.nanoTime() - began) / 1e9);
    }
}
