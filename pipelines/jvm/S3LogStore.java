package afterlog;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log store for S3: a commit is created only if its version is free, by If-None-Match.
 *
 * <p>Under a writer's lease (afterlog.warehouse, afterlog.fence) the lease is read before each commit: a commit of a
 * writer whose lease was taken over is refused. Janino compiles this file: it knows no generics in overridden methods.
 */
public final class S3LogStore extends HadoopFileSystemLogStore {
    private static final String CONDITION = "fs.option.create.conditional.overwrite";
    private static final int LOOKS = 3;

    public S3LogStore(Configuration configuration) {
        super(configuration);
    }

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration) throws IOException {
        StringBuilder text = new StringBuilder();
        while (actions.hasNext()) {
            text.append((String) actions.next()).append('\n');
        }
        byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
        FileSystem files = path.getFileSystem(configuration);
        if (overwrite.booleanValue()) {
            put(files.createFile(path), bytes);
            return;
        }
        refuseIfTakenOver(files, path, configuration);
        FSDataOutputStreamBuilder builder = files.createFile(path);
        builder.must(CONDITION, true);
        try {
            put(builder, bytes);
        } catch (IOException refused) {
            // S3 answers 412 if the file exists. The file is our own if the answer to a first attempt was lost.
            byte[] there;
            try {
                there = read(files, path);
            } catch (FileNotFoundException absent) {
                throw refused;
            }
            if (!Arrays.equals(there, bytes)) {
                throw new FileAlreadyExistsException(path.toString());
            }
        }
    }

    public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
        return Boolean.FALSE;
    }

    private static void put(FSDataOutputStreamBuilder builder, byte[] bytes) throws IOException {
        FSDataOutputStream stream = (FSDataOutputStream) builder.build();
        try {
            stream.write(bytes);
        } catch (IOException error) {
            stream.abort();
            throw error;
        }
        stream.close();
    }

    private static byte[] read(FileSystem files, Path path) throws IOException {
        FSDataInputStream stream = files.open(path);
        try {
            return stream.readAllBytes();
        } finally {
            stream.close();
        }
    }

    private static void refuseIfTakenOver(FileSystem files, Path path, Configuration configuration) throws IOException {
        String warehouse = configuration.get("afterlog.warehouse");
        String fence = configuration.get("afterlog.fence");
        if (warehouse == null || fence == null || !path.toString().startsWith(warehouse + "/")) {
            return;
        }
        String lease = new String(look(files, new Path(warehouse + "/_afterlog/lease")), StandardCharsets.UTF_8);
        if (!lease.contains(fence)) {
            throw new IOException("The lease of " + warehouse + " was taken over.");
        }
    }

    /** Read the lease; S3A refuses to read on if it was renewed while it was opened. */
    private static byte[] look(FileSystem files, Path lease) throws IOException {
        for (int left = LOOKS - 1; ; left--) {
            try {
                return read(files, lease);
            } catch (IOException error) {
                if (left == 0) {
                    throw error;
                }
            }
        }
    }
}
