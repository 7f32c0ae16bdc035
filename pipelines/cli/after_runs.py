"""What a run does for replays, metrics and alerts; they stand above ``pipelines/run``, which cannot import them."""

from __future__ import annotations

import contextlib

from pipelines import otlp
from pipelines.cli.output import say, say_about
from pipelines.errors import AfterlogError, readable
from pipelines.settings import Settings
from pipelines.warehouse import alert_log
from pipelines.warehouse.tables import Warehouse


def begin_journals(settings: Settings) -> None:
    """Let the journal of replays begin before dead letters land, so that it knows all that becomes of them."""
    for own in settings.of_clusters():
        if not Warehouse(own).opens_tables or not own.kafka.bootstrap_servers:
            continue
        from pipelines.replay import journal

        with contextlib.suppress(AfterlogError), journal.Journal.of(own):
            pass


def refresh_replay_outcomes(settings: Settings) -> None:
    """Bring gold.replay_outcomes up to date with the dead letters that came; say what fails."""
    for tables in Warehouse(settings).of_clusters():
        try:
            if tables.opens_tables and tables.last_version("gold.replayed_records") is not None:
                from pipelines.replay import outcomes

                outcomes.refresh(tables, asks=False)
        except Exception as error:
            problem = f"The outcomes of replays are not up to date. {readable(error)}"
            say_about(settings, tables.settings.cluster)(problem)


def refresh_metrics(settings: Settings) -> None:
    """Write and send the metrics if the settings or the environment ask for it; say what fails."""
    if settings.metrics.file is None and not otlp.wanted("metrics"):
        return
    from pipelines.metrics.exposition import Meter

    try:
        problems = Meter(settings).refresh()
    except Exception as error:
        problems = (f"Metrics were not read. {readable(error)}",)
    for problem in problems:
        say(problem)


def send_alerts(settings: Settings) -> None:
    """Send alerts about what is new if the settings have or had routes; say what fails, which waits for later."""
    store, has_routes = Warehouse(settings).store, bool(settings.alerts.route)
    if not store.opens_tables and not has_routes:
        return
    for own in settings.of_clusters():
        say_of_cluster = say_about(settings, own.cluster)
        try:
            if store.opens_tables and (store.is_empty() if has_routes else not store.names(alert_log.DIRECTORY)):
                return
            from pipelines.alerts import sender

            sending = sender.send(own)
        except Exception as error:
            say_of_cluster(f"Alerts were not sent. {readable(error)}")
            continue
        for problem in sending.problems:
            say_of_cluster(f"{problem} The next run tries it again.")
        for sentence in sending.left_open:
            say_of_cluster(sentence)
