"""What Kafka's command-line tools print, and people land in place of what the tools were asked about.

The patterns, of Python and of Java, match the beginning of a line.
"""

DUMP_LOG = r"Dumping \S|(?:\| )?(?:baseO|o)ffset: \d+ "
CONFIGS = r"(?:Dynamic|All|Default) configs for |[ \t]*\S+=.* sensitive=(?:true|false) synonyms=\{"
