"""Contract of silver.broker_starts: when brokers started, as their own logs say."""

from expectations.contract import Column, Contract
from expectations.provenance import origin
from expectations.rules import at_least, not_null, one_of, readable

READABLE = "error IS NULL"
COMPONENTS = ("BrokerServer", "KafkaRaftServer", "GroupCoordinator", "KafkaServer")

CONTRACT = Contract(
    table="silver.broker_starts",
    description="One row per line of a broker's log in which a component tells that it has started.",
    columns=(
        *origin("bronze.broker_events"),
        Column("node_id", "int", "Node that started.", (not_null().where(READABLE), at_least(0))),
        Column(
            "component",
            "string",
            "What tells it: BrokerServer, GroupCoordinator, KafkaServer (with ZooKeeper), or KafkaRaftServer, which"
            " controllers log, too.",
            (one_of(*COMPONENTS),),
        ),
        Column(
            "started_at",
            "timestamp",
            "When the node logged it, at the end of its start.",
            (not_null("A line of the log has a time.").where(READABLE),),
        ),
        Column("_content_hash", "bigint", "Hash of what the line says: tells a duplicate from a conflict."),
        Column("line", "binary", "The line as logged.", evidence=True, content="line"),
        Column(
            "error",
            "string",
            "Why the line cannot be read.",
            (readable("error", "A line of the log can be read."),),
            evidence=True,
            content="text",
        ),
    ),
    grain=("cluster", "node_id", "component", "started_at"),
    content="_content_hash",
    ranges_per=("cluster",),
)
