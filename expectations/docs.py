"""Results of gates -> Great Expectations' Data Docs."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from expectations import before_gx  # noqa: F401

# isort: split
import great_expectations as gx
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
    expectationSuiteValidationResultSchema,
)
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)
from great_expectations.data_context.types.resource_identifiers import (
    ExpectationSuiteIdentifier,
    ValidationResultIdentifier,
)
from great_expectations.render.view.view import DefaultJinjaPageView
from jinja2 import ChoiceLoader, FileSystemLoader

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext


def build_docs(store: Path, site: Path, keep_runs: int) -> Path:
    """Render the last ``keep_runs`` runs of each table as Data Docs and delete older results; return the page to open.

    A result whose page exists is not rendered again, so that the work follows new results.
    Raises RuntimeError: Great Expectations could not render a page.
    """
    from expectations import native  # noqa: F401  # Great Expectations must know the kinds that results name

    forget(store, keep_runs)
    context = memory_context()
    backend = {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(site.absolute())}
    view = {"class_name": OfflinePage.__name__, "module_name": __name__}
    section = {"class_name": "DefaultSiteSectionBuilder", "view": view}
    configuration: Any = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": backend,
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": view},
        "site_section_builders": {
            "validations": section | {"source_store_name": context.validation_results_store_name},
            "expectations": section | {"source_store_name": context.expectations_store_name},
            "profiling": "None",
        },
    }
    context.add_data_docs_site("afterlog", configuration)
    kept: list[Any] = []  # keys of results and of suites
    for table in sorted(path for path in store.glob("*") if path.is_dir()):
        runs = sorted(table.glob("*.json"))
        for run in runs:
            result = expectationSuiteValidationResultSchema.loads(run.read_text(encoding="utf-8"))
            suite = ExpectationSuiteIdentifier(name=result.suite_name)
            key = ValidationResultIdentifier(suite, RunIdentifier(**result.meta["run_id"]), batch_identifier="gate")
            context.validation_results_store.add(key, result)
            kept.append(key)
        if runs:  # the suite as of the last run
            expectations = [_plain_expectation(outcome) for outcome in result.results]
            context.suites.add_or_update(gx.ExpectationSuite(name=result.suite_name, expectations=expectations))
            kept.append(suite)
    unrendered = [key for key in kept if not _page(site, key).exists() or isinstance(key, ExpectationSuiteIdentifier)]
    context.build_data_docs(resource_identifiers=unrendered)
    for directory, _, _ in os.walk(site / "validations", topdown=False):  # it leaves those of pages that it removed
        if not os.listdir(directory):
            os.rmdir(directory)
    if missing := [key for key in unrendered if not _page(site, key).exists()]:
        raise RuntimeError(f"Great Expectations logged why it could not render {len(missing)} pages of Data Docs")
    return site / "index.html"


def _plain_expectation(result: ExpectationValidationResult) -> Any:
    """Return an expectation as its contract states it, without the findings of a run."""
    config: Any = result.expectation_config
    config.description = config.meta.pop("description", config.description)
    return config


def forget(store: Path, keep_runs: int) -> None:
    """Delete the results of gates, except those of the last ``keep_runs`` runs of each table."""
    for table in store.glob("*"):
        for run in sorted(table.glob("*.json"))[:-keep_runs]:
            run.unlink(missing_ok=True)


class OfflinePage(DefaultJinjaPageView):
    """A page of Data Docs that contains its styles: Great Expectations' own pages load them from the network."""

    _template = "page.j2"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Look for templates in ``expectations/data_docs`` before Great Expectations' own."""
        super().__init__(*args, **kwargs)
        own = FileSystemLoader(Path(__file__).with_name("data_docs"))
        self.env.loader = ChoiceLoader([own, *filter(None, [self.env.loader])])
        self.env.globals["ge_version"] = gx.__version__


def keep(result: ExpectationSuiteValidationResult, table: str, run_id: str, store: Path) -> None:
    """Write the result of a gate, from which `build_docs` renders a page."""
    examined_at = datetime.now(UTC)
    result.meta = {
        "great_expectations_version": gx.__version__,
        "run_id": RunIdentifier(run_name=plain(run_id), run_time=examined_at).to_json_dict(),
        "batch_kwargs": {"data_asset_name": plain(table)},
        "validation_time": str(examined_at),
    }
    target = store / plain(table) / f"{examined_at:%Y%m%dT%H%M%S.%fZ}-{plain(run_id)}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_suffix(".tmp")
    scratch.write_text(expectationSuiteValidationResultSchema.dumps(result), encoding="utf-8")
    scratch.replace(target)


def _page(site: Path, key: Any) -> Path:
    section = "expectations" if isinstance(key, ExpectationSuiteIdentifier) else "validations"
    *directories, name = key.to_tuple()
    return site.joinpath(section, *directories, f"{name}.html")


def plain(name: str) -> str:
    """Return a name in a form that is safe in a path, a URL and a page."""
    return quote(name, safe="").replace("%", "_")


def memory_context() -> EphemeralDataContext:
    """Return a context that keeps all in memory: no site in a temporary directory, no progress bars, no analytics."""
    configuration = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        progress_bars=ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    return gx.get_context(mode="ephemeral", project_config=configuration)
