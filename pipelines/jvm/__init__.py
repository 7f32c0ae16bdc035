"""Java, the jars and Spark sessions."""
