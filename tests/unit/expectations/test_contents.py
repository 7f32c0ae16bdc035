"""Each column of text or bytes is marked as content that people send, or is known to hold names: none is forgotten."""

from __future__ import annotations

from expectations.contract import contract_of
from pipelines.commands.stored import STORED
from pipelines.run.contracts import contracts
from pipelines.warehouse.redaction import contents_of

NAMES = frozenset(
    """
    _bronze_id _run_id _source acknowledgement_id acks acted_by action action_id allowed api application
    attribute_compared_with attribute_kind attribute_name attributes broken_rules broker_version bronze_id
    cleanup_policy client_library client_mode client_version cluster cluster_policy commit component compression
    conflicting_members connection connector_name consumer_group contradiction control_key control_type coordinates
    created_by dead_letters defects died_in_topic direction discarded_by disposition disposition_source dlq_log
    dlq_slice dlq_topic dlq_topic_id dlq_topics earlier_hops edges_added edges_removed effective_mode
    enable_idempotence engine engine_reason environment erased_by erasure_id error_class error_frame error_name
    error_names event_id evidence exception_cause_class exception_class expectation file fingerprint first_place
    form from group_id group_state header header_profile header_profiles health incident_id input kafka_cluster_id
    kind known_by last_error_name last_pushed_by line_error log masked member_id merged_into message
    message_format_version missing_fields missing_headers name node node_type_name nodes_added nodes_changed
    nodes_removed observed_by observed_mode offset_share_of order_kept original_timestamp_type original_topic
    original_topic_id outcome owner part payload_from places plan_hash plan_id predecessor_id predecessors
    previous_value producer reasons remedy requested_mode required_profile root_topic routed_at_source rule
    rules_hash run_id scope segment selector sentence setting setting_policy settings severity severity_reasons
    sink_topic slice slices source source_slice source_topic source_topics stage stage_class state status
    status_details status_name statuses stores stores_added stores_removed subtopology_id successors superseded_by
    table target target_topic target_topic_id targets task_id time timestamp_type to told_by_topic told_by_topic_id
    topic topic_id topic_role topics topics_added topics_removed topology_hash transaction_state transactional_id
    transform transform_hash undecodable_headers undecoded_fields unread value verdict violations would_change
    write_state
    """.split()  # noqa: SIM905
)
"""Columns of names, ids, classes, codes and sentences: an erasure takes values out of them, not all they hold."""


def test_each_column_of_text_is_content_or_a_name() -> None:
    known = {contract.table: contract for contract in contracts()}
    known |= {table: contract_of(table) for table in STORED if table not in known}
    unmarked = {
        f"{table}.{column.name}"
        for table, contract in known.items()
        for column in contract.columns
        if ("string" in column.type or "binary" in column.type) and not column.content and column.name not in NAMES
    }
    assert unmarked == set(), "say which `content` these columns hold, or that they hold names"


def test_names_are_columns() -> None:
    known = {contract.table: contract for contract in contracts()}
    known |= {table: contract_of(table) for table in STORED if table not in known}
    there = {column.name for contract in known.values() for column in contract.columns if not column.content}
    assert there >= NAMES


def test_quarantine_and_held_rows_have_the_marks_of_the_rows_that_they_keep() -> None:
    marks = contents_of("held.dlq_records")
    assert marks["key"] == "key"
    assert marks["headers"] == "headers"
    assert marks["input"] == contents_of("bronze.dlq_records")
    assert contents_of("quarantine.dlq_records")["raw"] == "line"
