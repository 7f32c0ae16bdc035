"""Where a warehouse is: a directory, an object store, or a file system that only Hadoop reaches."""
