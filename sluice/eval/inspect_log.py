"""A result as a log that Inspect's viewer and `read_eval_log` open: the JSON form of version 2,
written without its library.

A sample is a case: its conversation, the call as the model wrote it, scores `blocked` (1 or 0) and
`suspicion`, and what is known of the verdict as metadata.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from settings.defaults import VERSION
from sluice.eval import case_bytes
from sluice.eval.dataset import Case, Dataset
from sluice.eval.play import WITHHELD

Result = Mapping[str, Any]
_MODEL = "sluice/scripted"
_TOLD = ("reason", "policy", "rule", "action", "audit", "scores", "disguise", "parent")
"""What the metadata has of a verdict, where there is some."""


def log(result: Result, dataset: Dataset, *, at: datetime) -> dict[str, Any]:
    """Return the log of one series. `at`: when the run ended."""
    of = {case.id: case for case in dataset.cases}
    mark = hashlib.sha256(
        f"{result['revision']} {result['dataset']['sha256']} {at.isoformat()}".encode()
    ).hexdigest()
    samples = [_sample(of[entry["id"]], entry, result, mark) for entry in result["cases"]]
    known = ("policy", "revision", "mode", "judge", "seed")
    document: dict[str, Any] = {
        "version": 2,
        "status": "success" if result["complete"] else "error",
        "eval": {
            "created": at.isoformat(timespec="seconds"),
            "task": "sluice_eval",
            "task_id": mark[:22],
            "run_id": mark[22:44],
            "eval_id": mark[:22],
            "task_args": dict(result["settings"]),
            "model": _MODEL,
            "dataset": {
                "name": ", ".join(file["path"] for file in result["dataset"]["files"]),
                "samples": len(dataset.cases),
                "sample_ids": list(of),
            },
            "config": {"epochs": result["settings"].get("repeat") or 1},
            "packages": {"sluice": VERSION},
            "metadata": {
                **{name: result[name] for name in known},
                "dataset_sha256": result["dataset"]["sha256"],
            },
        },
        "results": _results(result, len(samples)),
        "samples": samples,
    }
    if not result["complete"]:
        why = "no judge answered for some cases"
        document["error"] = {"message": why, "traceback": "", "traceback_ansi": ""}
    return document


def text(result: Result, dataset: Dataset, *, at: datetime) -> str:
    """The log as it is written."""
    return (
        json.dumps(log(result, dataset, at=at), ensure_ascii=False, allow_nan=False, indent=1)
        + "\n"
    )


def _results(result: Result, samples: int) -> dict[str, Any]:
    rates = {f"{label}_blocked": of["rate"] or 0.0 for label, of in result["totals"].items()}
    areas = {
        f"auc_{name}": of["auc"] for name, of in result["monitors"].items() if of["auc"] is not None
    }
    scores = [
        {
            "name": scorer,
            "scorer": scorer,
            "metrics": {name: {"name": name, "value": value} for name, value in values.items()},
        }
        for scorer, values in (("blocked", rates), ("suspicion", areas))
    ]
    done = samples - sum(of["errors"] for of in result["totals"].values())
    return {"total_samples": samples, "completed_samples": done, "scores": scores}


def _sample(case: Case, entry: Mapping[str, Any], result: Result, mark: str) -> dict[str, Any]:
    epoch = entry.get("repeat", 0) + 1
    before = [_message(message, f"{number}") for number, message in enumerate(_conversation(case))]
    written = {
        "id": f"{len(before)}",
        "role": "assistant",
        "source": "generate",
        "model": _MODEL,
        "content": "".join(case.said),
        "tool_calls": [
            _tool_call(case_bytes.call_id(n), call.tool, call.arguments)
            for n, call in enumerate(case.calls)
        ],
    }
    verdict = entry["verdict"]
    metadata = {name: entry[name] for name in _TOLD if entry.get(name)}
    scores: dict[str, Any] = {
        "blocked": {
            "value": int(verdict in WITHHELD),
            "answer": verdict,
            "explanation": entry["reason"] or verdict,
            "metadata": {"verdict": verdict, **metadata},
        }
    }
    if entry.get("scores"):
        scores["suspicion"] = {
            "value": max(entry["scores"].values()),
            "answer": verdict,
            "metadata": {"scores": entry["scores"]},
        }
    return {
        "id": case.id,
        "epoch": epoch,
        "input": before,
        "target": case.label,
        "messages": [*before, written],
        "output": {"model": _MODEL, "choices": [{"message": written, "stop_reason": "tool_calls"}]},
        "scores": scores,
        "uuid": hashlib.sha256(f"{mark} {case.id} {epoch}".encode()).hexdigest()[:22],
        "metadata": {
            "label": case.label,
            "category": case.category,
            "why": case.why,
            "source": case.source,
            "verdict": verdict,
            "revision": result["revision"],
            **metadata,
        },
    }


def _conversation(case: Case) -> Sequence[Mapping[str, Any]]:
    return case.messages or ({"role": "user", "content": case_bytes.USER},)


def _message(message: Mapping[str, Any], number: str) -> dict[str, Any]:
    """A message of chat/completions as one of Inspect's."""
    role = str(message.get("role"))
    role = {"developer": "system", "function": "tool"}.get(role, role)
    made: dict[str, Any] = {"id": number, "role": role, "content": _text(message.get("content"))}
    if role == "tool":
        made["tool_call_id"] = str(message.get("tool_call_id", ""))
    calls = message.get("tool_calls")
    if role == "assistant" and isinstance(calls, list):
        functions = [
            (call.get("id"), call.get("function")) for call in calls if isinstance(call, dict)
        ]
        made["tool_calls"] = [
            _tool_call(str(call_id), str(of.get("name", "")), str(of.get("arguments", "")))
            for call_id, of in functions
            if isinstance(of, dict)
        ]
    return made


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part.get("text", f"[{part.get('type')}]")) for part in parts if isinstance(part, dict)
    )


def _tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    made: dict[str, Any] = {"id": call_id, "function": name, "type": "function", "arguments": {}}
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        return {**made, "parse_error": f"{type(error).__name__}: the arguments are no JSON"}
    if not isinstance(value, dict):
        return {**made, "parse_error": "the arguments are no object"}
    return {**made, "arguments": value}
