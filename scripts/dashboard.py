"""Write deploy/grafana/sluice.json, and the catalogue in docs/run/metrics.md, from the catalogue of
metrics; with `--check`, say whether they are up to date."""

import json
import sys
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from scripts.pages import DOCS, table, write_or_check
from streams.metrics import Count, Gauge, Now, Span, Total, metric

PAGE = DOCS / "run" / "metrics.md"
BOARD = DOCS.parent / "deploy" / "grafana" / "sluice.json"
BEGIN, END = "<!-- catalogue, by python -m scripts.dashboard -->\n", "<!-- end -->"
KINDS = {
    Total: ("counter", "_total"),
    Count: ("counter", "_total"),
    Span: ("histogram", ""),
    Now: ("gauge", ""),
    Gauge: ("gauge", ""),
}


class Metric(NamedTuple):
    """A line of the catalogue; `name` is what stands at `/metrics`."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def lines(*kinds: type[Enum]) -> Iterator[Metric]:
    """Every metric of these kinds."""
    for kind in kinds:
        word, ending = KINDS[kind]
        for measure in kind:
            value = measure.value
            text, *labels = (value,) if isinstance(value, str) else value
            yield Metric(metric(measure) + ending, word, tuple(labels), text)


def rate(name: str, by: str = "") -> str:
    """What a counter grows by each second."""
    return f"sum{f' by ({by})' if by else ''} (rate({name}[1m]))"


def share(name: str, part: float, by: str) -> str:
    """A quantile of a histogram."""
    return f"histogram_quantile({part}, sum by (le, {by}) (rate({name}_bucket[5m])))"


PANELS: dict[str, dict[str, tuple[str, ...]]] = {
    "Traffic": {
        "Calls a second": (rate("sluice_calls_started_total", "route"),),
        "Ends a second": (rate("sluice_calls_ended_total", "state, reason"),),
        "Open calls": ("sum(sluice_open_calls)", "sum(sluice_held_calls)"),
        "Refused a second": (rate("sluice_refused_total", "reason"),),
        "Chunks a second": (
            rate("sluice_chunks_received_total"),
            rate("sluice_chunks_forwarded_total"),
            rate("sluice_chunks_withheld_total"),
            rate("sluice_chunks_undecided_total"),
        ),
        "Timers that ran out": (rate("sluice_timeouts_total", "timer"),),
    },
    "Latency": {
        "First release, p50 and p99": (
            share("sluice_first_release_seconds", 0.5, "upstream"),
            share("sluice_first_release_seconds", 0.99, "upstream"),
        ),
        "Whole call, p50 and p99": (
            share("sluice_call_seconds", 0.5, "upstream"),
            share("sluice_call_seconds", 0.99, "upstream"),
        ),
        "Event loops": ("max by (role) (sluice_loop_lag_seconds)",),
    },
    "Control": {
        "Verdicts a second": (rate("sluice_verdicts_total", "policy, verdict"),),
        "Judgements a second": (rate("sluice_judgements_total", "model, outcome"),),
        "Judges, p50 and p99": (
            share("sluice_judge_seconds", 0.5, "model"),
            share("sluice_judge_seconds", 0.99, "model"),
        ),
        "Questions to judges": (
            "max(sluice_judge_queue_depth)",
            "max(sluice_judge_oldest_wait_seconds)",
        ),
        "Takeovers, fenced": (rate("sluice_takeovers_total"), rate("sluice_fenced_total")),
    },
    "Upstreams": {
        "Requests a second": (rate("sluice_upstream_attempts_total", "upstream, kind"),),
        "Failures a second": (rate("sluice_upstream_failures_total", "upstream, outcome"),),
        "Left alone": ("max by (upstream) (sluice_upstream_state)",),
    },
    "Record": {
        "Lag in seconds": ("max by (shard) (sluice_record_lag_seconds)",),
        "Backlog": ("max by (shard) (sluice_record_backlog_entries)",),
        "Not stored as they came": (
            "max(sluice_dead_letters)",
            "max(sluice_incomplete_calls)",
            "sum(sluice_record_conflicts_total)",
        ),
        "Seals": ("min(sluice_checkpoint_age_seconds)", "max(sluice_unsealed_calls)"),
    },
    "Money": {
        "Tokens a second": (rate("sluice_tokens_total", "route, kind"),),
        "US dollars an hour": (f"3.6e-6 * {rate('sluice_cost_nanousd_total', 'route, of')}",),
    },
    "Processes": {
        "Memory": ("sum by (role) (process_resident_memory_bytes)",),
        "CPU": ("sum by (role) (rate(process_cpu_seconds_total[1m]))",),
    },
}


def board() -> str:
    """Return the dashboard."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, graphs in PANELS.items():
        panels.append({"type": "row", "title": row, "gridPos": _place(0, y, 24, 1)})
        y += 1
        for at, (title, queries) in enumerate(graphs.items()):
            targets = [
                {"refId": chr(ord("A") + number), "expr": query}
                for number, query in enumerate(queries)
            ]
            panels.append(
                {
                    "type": "timeseries",
                    "title": title,
                    "datasource": {"type": "prometheus", "uid": "${source}"},
                    "gridPos": _place(at % 3 * 8, y + at // 3 * 7, 8, 7),
                    "targets": targets,
                }
            )
        y += (len(graphs) + 2) // 3 * 7
    panels = [panel | {"id": number} for number, panel in enumerate(panels, 1)]
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    text = {
        "title": "Sluice",
        "uid": "sluice",
        "schemaVersion": 39,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {"list": [source]},
        "panels": panels,
    }
    return json.dumps(text, indent=1) + "\n"


def _place(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def page() -> str:
    """Return the page with its catalogue."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    rows = [
        (f"`{line.name}`", line.kind, ", ".join(line.labels), line.help)
        for line in lines(Total, Span, Now)
    ]
    text = table(("metric", "kind", "labels", ""), rows)
    return f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}"


def main() -> int:
    """Write or check both; returns the exit code."""
    return max(
        write_or_check(
            path,
            text,
            made_from="streams/metrics.py",
            command="python -m scripts.dashboard",
            about=__doc__,
        )
        for path, text in ((PAGE, page()), (BOARD, board()))
    )


if __name__ == "__main__":
    sys.exit(main())
