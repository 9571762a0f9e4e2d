"""Where the project of a call is: what agents say of it in the forms that they have, what is not
believed, and what is on record."""

import json
from collections.abc import Sequence

import pytest

from policy.builtin.tool_rules import ToolRules
from policy.claims import claims as claims_module
from policy.claims.claims import ProjectClaims, SettledProject, mark_of
from policy.claims.reading import OwnText, own_texts, statements
from policy.effects.places import places_of, refusal, settled
from policy.session.session import Session
from protocol.bounds import MAX_CLAIM_CHARS, MAX_CLAIMS, MAX_PROJECT_ROOTS
from protocol.records import EventRecord, Record, ToolCallRecord
from protocol.request import DialectName
from settings.config import Config
from tests.support.cpu import cpu_within
from tests.support.json_values import Json, as_json
from tests.support.request_codecs import read_request
from tests.support.worker_calls import call_info

SHOP = "/Users/kim/dev/shop"


def prompt(*texts: str, header: str = "", setting: str = "", user: str = "fix it") -> ProjectClaims:
    """The claims of a request with these system prompts."""
    messages = [{"role": "system", "content": text} for text in texts]
    return asked([*messages, {"role": "user", "content": user}], header=header, setting=setting)


def asked(messages: Sequence[Json], *, header: str = "", setting: str = "") -> ProjectClaims:
    """The claims of a request with these messages."""
    body = {"model": "demo", "messages": messages}
    return ProjectClaims(own_texts(read_request("openai", body)), setting, header)


def project(claims: ProjectClaims) -> SettledProject:
    return settled(claims, "~")


def roots(claims: ProjectClaims) -> tuple[str, ...]:
    return project(claims).roots


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Claude Code, and as it was before
        (
            "# Environment\nYou have been invoked in the following environment: \n"
            f" - Primary working directory: {SHOP}\n - Is a git repository: true\n"
            " - Additional working directories:\n  - /tmp\n  - /Users/kim/dev/lib\n - Platform: x",
            (SHOP, "/Users/kim/dev/lib"),
        ),
        (
            "Here is useful information:\n<env>\nWorking directory: /home/kim/shop\nIs directory a"
            " git repo: Yes\nAdditional working directories: /tmp, /home/kim/lib\n</env>\n",
            ("/home/kim/shop", "/home/kim/lib"),
        ),
        # opencode, outside of a repository and inside one
        (
            "<env>\n  Working directory: /w/app\n  Workspace root folder: /\n  Platform: linux\n",
            ("/w/app",),
        ),
        (
            "<env>\n  Working directory: /w/app/ui\n  Workspace root folder: /w/app\n</env>",
            ("/w/app/ui", "/w/app"),
        ),
        # Cline and Roo say it twice
        (
            f"SYSTEM INFORMATION\n\nHome Directory: /Users/kim\nCurrent Working Directory: {SHOP}"
            f"\n\nRULES\n\n- Your current working directory is: {SHOP}\n",
            (SHOP,),
        ),
        ("- The project base directory is: C:\\Users\\Kim L\\app\n", ("/C:/Users/Kim L/app",)),
        # Zed, Goose, a prompt of somebody's own
        (
            "The current project contains the following root directories:\n\n- `/home/k/a`\n- `/home/k/b`",
            ("/home/k/a", "/home/k/b"),
        ),
        ("operating system: linux\ncurrent directory: /home/k/goose\n", ("/home/k/goose",)),
        ("You are a coder.\n\n**Working directory:** `~/code/x`\n", ("~/code/x",)),
        ("- cwd: /home/k/a\n- project root: /home/k/a/\n", ("/home/k/a",)),
        # no folder that could be meant
        ("Working directory for the command. Defaults to the turn cwd.", ()),
        ("Working directory: backend/\n", ()),
    ],
)
def test_prompts_of_agents_name_the_project(text: str, expected: tuple[str, ...]) -> None:
    assert [root.lower() for root in roots(prompt(text))] == [root.lower() for root in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<environment_context>\n  <cwd>/home/k/a</cwd>\n  <shell>bash</shell>\n  <filesystem>"
            "<workspace_roots><root>/home/k/a</root><root>/home/k/b</root></workspace_roots>"
            "</filesystem>\n</environment_context>",
            ("/home/k/a", "/home/k/b"),
        ),
        (
            "<environment_details>\n# VSCode Open Tabs\na.py\n\n# Current Working Directory"
            f" ({SHOP}) Files\nmain.py\n# Current Working Directory (/Users/kim/x) Files\n"
            "</environment_details>",
            (SHOP,),
        ),
        (
            "<session_context>\nThis is the Gemini CLI. We are setting up the context.\nI'm currently"
            f" working in the directory: {SHOP}\nHere is the folder structure:\n</session_context>",
            (SHOP,),
        ),
        (
            "This is the Qwen Code. We are setting up.\nI'm currently working in the following"
            f" directories:\n  - {SHOP}\n  - /Users/kim/dev/lib\nHere is",
            (SHOP, "/Users/kim/dev/lib"),
        ),
        (f"<user_info>\nOS Version: darwin 24\nWorkspace Path: {SHOP}\n</user_info>\n", (SHOP,)),
        (
            "<user_info>\nThe user's OS version is linux. The absolute path of the user's workspace"
            " is /home/k/v1.2. The user's shell is zsh.\n</user_info>",
            ("/home/k/v1.2",),
        ),
        (
            "<workspace_info>\nI am working in a workspace with the following folders:\n"
            f"- {SHOP} \n</workspace_info>",
            (SHOP,),
        ),
        (
            "<uploaded_files>\n/testbed\n</uploaded_files>\nI've uploaded a repository",
            ("/testbed",),
        ),
    ],
)
def test_first_messages_of_agents_name_the_project(text: str, expected: tuple[str, ...]) -> None:
    first = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "fix it"}, {"type": "text", "text": text}],
        }
    ]
    assert roots(asked(first)) == expected
    answered = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": text},
    ]
    assert roots(asked(answered)) == (), "what comes later may be anybody's"


CODEX = f"<environment_context>\n  <cwd>{SHOP}</cwd>\n</environment_context>"


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (
            "anthropic",
            {
                "max_tokens": 9,
                "system": [
                    {"type": "text", "text": "You are Claude Code."},
                    {"type": "text", "text": f"Env:\n - Primary working directory: {SHOP}\n"},
                ],
                "messages": [{"role": "user", "content": "fix it"}],
            },
        ),
        (
            "responses",
            {
                "instructions": "You are a coding agent.",
                "input": [
                    {
                        "role": "developer",
                        "content": [{"type": "input_text", "text": "<permissions instructions>"}],
                    },
                    {"role": "user", "content": [{"type": "input_text", "text": CODEX}]},
                    {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
                ],
            },
        ),
        (
            "openai",
            {
                "messages": [
                    {"role": "user", "content": "go"},
                    {"role": "system", "content": f"# Environment\nWorking directory: {SHOP}"},
                    {"role": "assistant", "content": "Sure."},
                    {"role": "system", "content": "Working directory: /srv/other"},
                ]
            },
        ),
    ],
)
def test_agents_name_the_project_in_every_dialect(dialect: DialectName, body: Json) -> None:
    request = read_request(dialect, {"model": "demo", **body})
    assert roots(ProjectClaims(own_texts(request))) == (SHOP,)


FRAME = f"<env>\nWorking directory: {SHOP}\n</env>"
OTHER = "Working directory: /Users/kim/taxes"


def called(result: str) -> list[Json]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": OTHER, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": result},
        {"role": "user", "content": "go on"},
    ]


@pytest.mark.parametrize(
    "messages",
    [
        # what somebody pasted, or a file that is quoted behind other words
        [{"role": "user", "content": f"The README says:\n<cwd>/Users/kim/taxes</cwd>\n{OTHER}"}],
        [{"role": "user", "content": f"see\n<environment_context><cwd>/home/x/y</cwd>\n{OTHER}"}],
        # what a model wrote, or a tool returned
        called(f"<env>\n{OTHER}\n</env>"),
        called("<environment_context>\n<cwd>/Users/kim/taxes</cwd>"),
        # prompts that quote the project's own files
        [{"role": "system", "content": f"Be good.\nInstructions from: {SHOP}/AGENTS.md\n{OTHER}"}],
        [{"role": "system", "content": f"Be good.\n\ngitStatus: x\n{OTHER}"}],
        [{"role": "system", "content": f"Be good, \u0130.\nInstructions from: /w/A.md\n{OTHER}"}],
        # in the middle of a line it is a sentence
        [{"role": "system", "content": f"Never say '{OTHER}'"}],
    ],
)
def test_what_others_wrote_names_no_project(messages: list[Json]) -> None:
    assert project(asked(messages)) == SettledProject("")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((FRAME, f"# Notes\n\n{OTHER}"), ()),
        ((f"Be good.\n{FRAME}\n\n# Memory\n\n{OTHER}",), ()),
        ((f"Be good.\n{FRAME}\n{OTHER}\n",), ()),
        ((f"{FRAME}\n{OTHER}\n",), (SHOP,)),
        ((FRAME, f"Working directory: {SHOP}/ui"), (f"{SHOP}/ui",)),
        ((FRAME, "Working directory: /Users/kim/dev"), (SHOP,)),
        ((FRAME, "Working directory: ~/dev/shop"), (SHOP, "~/dev/shop")),
        ((FRAME, "Working directory: /"), (SHOP,)),
        (tuple(f"Working directory: /srv/app{i}" for i in range(10)), ()),
        (("Working directory: /srv/app\n" * 99 + FRAME,), ()),
    ],
)
def test_a_second_statement_only_takes_away(
    texts: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert roots(prompt(*texts)) == expected


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/", "root"),
        ("//", "root"),
        ("/.", "root"),
        ("~", "home"),
        ("~/", "home"),
        ("/root", "home"),
        ("/Users/kim", "home"),
        ("/Users/kim/dev/..", "home"),
        ("/USERS/Kim", "home"),
        ("C:\\Users\\Kim", "home"),
        ("/c/Users/Kim", "home"),
        ("/mnt/c/Users/Kim", "home"),
        ("/Users/kim/.ssh", "own files"),
        ("/Users/kim/Library", "own files"),
        ("C:\\Users\\Kim\\AppData\\Local", "own files"),
        ("~/.config/gcloud", "credentials"),
        ("/home", "many"),
        ("/Users", "many"),
        ("/c/Users", "many"),
        ("C:\\", "many"),
        ("D:", "many"),
        ("/mnt/c", "many"),
        ("/Volumes/Disk", "many"),
        ("/tmp", "many"),
        ("/srv/../srv/", "many"),
        ("/etc", "system"),
        ("/etc/nginx", "system"),
        ("/usr/lib/x", "system"),
        ("C:\\Windows\\x", "system"),
        ("/System/x", "system"),
        ("/data/homes", "home"),
        ("/data/homes/kim", "home"),
        ("/data/homes/kim/.cache", "own files"),
        ("/data/homes/kim/shop", ""),
        ("relative/x", "absolute"),
        ("/srv/*", "plain"),
        ("/srv/$HOME", "plain"),
        ("/srv/a\nb", "plain"),
        ("/srv/\ud800", "plain"),
        ("/srv/" + "x" * 2000, "plain"),
        (SHOP, ""),
        ("/srv/app", ""),
        ("/workspace", ""),
        ("/root/app", ""),
        ("/tmp/x", ""),
        ("/usr/src/app", ""),
        ("D:\\shop", ""),
        ("/Volumes/Disk/shop", ""),
    ],
)
def test_no_home_no_system_and_nothing_above_is_a_project(path: str, why: str) -> None:
    refused = refusal(path, "/data/homes/kim")
    assert (why in refused) if why else not refused, refused
    outcome = settled(prompt(header=path.replace("\n", "%0A")), "/data/homes/kim")
    assert bool(outcome.roots) == (not why)


def test_the_order_of_trust_is_key_header_request() -> None:
    outcome = project(prompt(FRAME, header="/home/k/a%2Cb, /home/k/%C3%A9", setting="/srv/k"))
    assert (outcome.source, outcome.roots) == ("key", ("/srv/k",))
    outcome = project(prompt(FRAME, header="/home/k/a%2Cb, /home/k/%C3%A9"))
    assert (outcome.source, outcome.roots) == ("x-sluice-project", ("/home/k/a,b", "/home/k/é"))
    outcome = project(prompt(FRAME, header="/, ~, /Users/kim"))
    assert (outcome.source, outcome.roots) == ("request", (SHOP,))
    assert len(outcome.ignored) == 3
    many = ", ".join(f"/srv/a{i}" for i in range(MAX_PROJECT_ROOTS + 1))
    assert project(prompt(header=many)).roots == ()
    assert len(project(prompt(header=many.rpartition(", ")[0])).roots) == MAX_PROJECT_ROOTS


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        (f"{SHOP}/src/a.ts", "project"),
        ("/users/kim/DEV/Shop/src/a.ts", "project"),
        ("~/dev/shop/src/a.ts", "project"),
        ("$HOME/dev/shop/a.ts", "project"),
        ("/Users/kim/dev/lib/a.ts", "project"),
        ("../lib/a.ts", "project"),
        ("src/a.ts", "project"),
        ("/Users/kim/dev/shopping/a.ts", "home"),
        (f"{SHOP}/../other/a.ts", "home"),
        ("../other/a.ts", "home"),
        ("../../taxes/a.ts", "home"),
        (SHOP, "home"),
        ("/Users/kim/dev/lib", "home"),
        ("/app/a.ts", "unknown"),
        ("/srv/Tool/a", "project"),
        ("/srv/tool/a", "unknown"),
        ("/c/work/app/a", "project"),
        ("/mnt/c/work/APP/a", "project"),
        ("C:\\work\\app\\a", "project"),
        ("C:\\work\\other\\a", "unknown"),
    ],
)
def test_paths_in_any_of_the_roots_are_the_projects(path: str, scope: str) -> None:
    header = f"{SHOP}, /Users/kim/dev/lib, /srv/Tool, C:\\work\\app"
    places = places_of("auto", "~", (), prompt(header=header))
    assert places.place(path).scope == scope
    assert places_of(".", "~", (), prompt(header=header)).project == ()
    assert places_of(["/srv/x"], "~", (), prompt(header=header)).project == ("/srv/x",)


def test_a_folder_elsewhere_is_where_relative_paths_begin() -> None:
    places = places_of("auto", "~", (), prompt(header=f"{SHOP}, /opt/lib"))
    for cwd, path, scope in (
        ("/Users/kim/taxes", "x", "home"),
        ("/opt/lib", "../other/x", "home"),
        ("/opt/lib/ui", "../x", "project"),
        (SHOP, "../../../../opt/lib/x", "project"),
        ("ui", "../../x", "home"),
    ):
        assert places.place(path, cwd=cwd).scope == scope, (cwd, path)


# --- in a session ---

DELETES = {"name": "deletes", "does": {"effects": ["delete"], "scope": ["home", "unknown"]}}


def played(session: Session, body: bytes, answer: bytes) -> list[Record]:
    session.begin(body)
    session.body(1, answer)
    session.eof()
    return session.drain().records


def decided(
    command: str, *, project: tuple[str, ...] = (), text: str = "", **arguments: str
) -> tuple[str, list[str]]:
    """The verdict on a command, and the details of events about the project."""
    session = Session(call_info(project=project), [ToolRules(deny=[DELETES])], Config(demo=True))
    messages = [{"role": "system", "content": text or FRAME}, {"role": "user", "content": "go"}]
    call = {"name": "bash", "arguments": json.dumps({"command": command, **arguments})}
    message: Json = {"role": "assistant", "content": "so"}
    if command:
        message["tool_calls"] = [
            {"id": f"c{i}", "type": "function", "function": call} for i in range(2)
        ]
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "demo"}
    body = as_json({"model": "demo", "messages": messages})
    raw = as_json({**answer, "choices": [choice]})
    records = played(session, body, raw)
    assert records == played(session.anew(), body, raw), "who takes over says the same"
    verdicts = [r.verdict for r in records if isinstance(r, ToolCallRecord)]
    events = [r.detail for r in records if isinstance(r, EventRecord) and r.kind == "project"]
    return next(iter(verdicts), ""), events


def test_the_project_decides_and_is_on_record_once() -> None:
    verdict, (event,) = decided(f"rm {SHOP}/old.ts")
    assert verdict == "allow"
    assert json.loads(event) == {"source": "request", "roots": [SHOP]}
    assert decided("rm /Users/kim/dev/other.ts")[0] == "block"
    assert decided("rm old.ts", workdir="/Users/kim/taxes")[0] == "block"
    assert decided("rm old.ts", workdir=f"{SHOP}/src")[0] == "allow"
    verdict, (event,) = decided(f"rm {SHOP}/old.ts", project=("", "/srv/app"))
    assert verdict == "block" and json.loads(event)["source"] == "x-sluice-project"
    verdict, (event,) = decided("cd / && rm -r srv/app/x", text="Working directory: /\n")
    assert verdict == "block" and json.loads(event) == {
        "source": "",
        "ignored": ["/: the root folder"],
    }
    assert decided("rm x", text="Be good.") == ("allow", [])


def test_without_a_tool_call_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(texts: Sequence[OwnText]) -> None:
        raise AssertionError("nobody asked")

    monkeypatch.setattr(claims_module, "statements", read)
    assert decided("") == ("", [])


def test_a_policy_that_needs_no_project_keeps_no_prompt() -> None:
    assert not ToolRules(deny=[{"tool": "x"}]).reads_project
    assert not ToolRules(deny=[DELETES], project=".").reads_project
    assert ToolRules(deny=[DELETES]).reads_project


@pytest.mark.parametrize(
    "text",
    [
        "some directory\n" * 9_000,
        "director" * 20_000,
        "working directory: /a\n" * 9_000,
        "working directory:\n" + "- /a\n" * 40_000,
        "\u0130 working directory: /a/b\n" * 9_000,
        "working directory:" + " " * 200_000,
        "the absolute path of the user's workspace is " * 5_000,
        "<environment_context>" + "<cwd>/a/b</cwd>" * 20_000,
        "<environment_details>" + "# Current Working Directory (" * 9_000,
        "- " * 90_000,
    ],
)
def test_prompts_are_read_as_far_as_the_bound_and_in_little_time(text: str) -> None:
    messages = [{"role": "system", "content": text}, *[{"role": "user", "content": text}] * 3]
    texts = own_texts(read_request("openai", {"model": "demo", "messages": messages}))
    assert sum(len(own) for own, _ in texts) == min(MAX_CLAIM_CHARS, 4 * len(text))
    with cpu_within(0.1):
        statements(texts)


def test_more_statements_than_are_compared_name_none() -> None:
    several = [(f"Working directory: /srv/a{i}", True) for i in range(MAX_CLAIMS + 1)]
    assert statements(several[1:]) is not None and statements(several) is None


def test_a_mark_stands_for_a_call_in_a_project_and_not_for_its_explanation() -> None:
    call = {"command": "docker compose down -v", "description": "stop"}
    mark = mark_of(("/srv/app",), "Bash", call)
    assert mark == mark_of(("/srv/app",), "Bash", call | {"description": "\ud800"})
    others = [
        mark_of(("/srv/app", "/srv/b"), "Bash", call),
        mark_of(("/srv/b",), "Bash", call),
        mark_of(("/srv/app",), "bash", call),
        mark_of(("/srv/app",), "Bash", call | {"command": "docker compose down"}),
        mark_of(("/srv/app",), "Bash", call | {"run_in_background": True}),
        mark_of(("/srv/app",), "Bash", call | {"command": "\ud800"}),
    ]
    assert len({mark, *others}) == 7
    assert mark_of((), "Bash", call) == ""
    # where no command is explained, it is what the call says
    issue = {"title": "t", "description": "a"}
    assert mark_of(("/srv/app",), "open", issue) != mark_of(
        ("/srv/app",), "open", issue | {"description": "b"}
    )
