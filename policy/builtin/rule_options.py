"""Options of the policy `tool_rules`: which calls a rule is about, and what becomes of them. Must
not know: how a rule is applied.
"""

from collections import Counter
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from policy.base import Approval, Executor
from policy.effects.credentials import KINDS, check_kind
from policy.effects.effect import HostScope, Kind, PathScope, Scope, ServiceScope
from policy.effects.sql import Kind as SqlKind
from policy.effects.sql import check_dialect
from policy.effects.sql_functions import SqlEffect
from policy.patterns import NamePattern, NamePatterns, Pattern
from policy.schemas.schemas import compile_schema
from protocol.bounds import MAX_PROJECT_ROOTS, MAX_RULES
from settings.config import Name

Folder = Annotated[str, Field(min_length=1, max_length=1024)]


def _check_project(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    roots = (value,) if isinstance(value, str) else value
    if not 1 <= len(roots) <= MAX_PROJECT_ROOTS or not all(
        1 <= len(root) <= 1024 for root in roots
    ):
        raise ValueError(f"is `auto`, `.`, a path, or a list of up to {MAX_PROJECT_ROOTS} paths")
    return value


Project = Annotated[str | tuple[str, ...], AfterValidator(_check_project)]
Hosts = Annotated[tuple[str, ...], Field(max_length=MAX_RULES)]
_OWN_NAMES = ("allow", "validate_schema", "unsure", "unread")
"""What the record has in the place of a rule's name where one of these options decides."""
_ANY_NAMES = ("a", "Zq-9.w_y", "0")
"""A pattern of names that matches these matches all."""
PENDING = frozenset(("mcp_pending",))
"""Who runs a call of an MCP server that the provider asks about first."""
_EVERYBODY = frozenset(get_args(Executor)) - PENDING


def several(value: Any) -> tuple[Any, ...] | None:
    """A value, or several, as several; None where there is none."""
    return None if value is None else (value,) if isinstance(value, str) else tuple(value)


class StrictOptions(BaseModel):
    """Options of which each must be known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_some(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("is empty: put something there, or take the line out")
    return value


Several = Annotated[tuple[str, ...], AfterValidator(_check_some)]
Kinds = Annotated[tuple[Kind, ...], AfterValidator(_check_some)]
Scopes = Annotated[tuple[Scope, ...], AfterValidator(_check_some)]
PathScopes = Annotated[tuple[PathScope, ...], AfterValidator(_check_some)]
HostScopes = Annotated[tuple[HostScope, ...], AfterValidator(_check_some)]


_HOSTS = frozenset[str](get_args(HostScope))
_PATHS = frozenset[str](get_args(PathScope))
_SERVICES = frozenset[str](get_args(ServiceScope))


class NamedEffects(StrictOptions):
    """Effects by what they are."""

    effects: Kinds | None = None
    """The effects. Unset: any."""
    scope: Scopes | None = None
    """Where they happen. Unset: anywhere."""
    wide: bool | None = None
    """True: the effect is on a whole tree, a glob or many things; with an address, something is
    sent there. False: it is on one thing. Unset: either."""
    target: NamePattern | list[NamePattern] | None = None
    """The path or host, as reports name it. Unset: any."""
    by: NamePattern | list[NamePattern] | None = None
    """The command or tool that has the effect. Unset: any."""


class Does(NamedEffects):
    """Effects anywhere in the call: of a command, a file tool's path, an address, or a script that
    is written to a file."""

    argument: str | Several | None = None
    """Look only at this top-level argument, or these. Unset: all."""
    but: tuple[NamedEffects, ...] = ()
    """Not these effects, with their names written exactly so."""

    @model_validator(mode="after")
    def _can_be(self) -> "Does":
        effects, scopes = frozenset(self.effects or ()), frozenset(self.scope or ())
        if scopes and effects == {"network"} and _HOSTS.isdisjoint(scopes):
            raise ValueError(
                f"nothing is asked over a network in the scope {min(scopes)!r}: a host is"
                f" {', '.join(sorted(_HOSTS))}"
            )
        if scopes <= _HOSTS - _PATHS and effects and scopes and effects <= {"read", "write"}:
            raise ValueError(
                f"no file is in the scope {min(scopes)!r}, which is one of hosts: a path is in"
                f" {', '.join(sorted(_PATHS))}"
            )
        return self


class Shell(Does):
    """Effects of commands: shell text, code, and programs in them."""

    commands: Several | None = None
    """Names of commands, or their first words, as in `git status`. Deny: one of them runs. Allow:
    no others run."""
    unsure: bool | None = None
    """True: also match when the effects of the commands cannot be known. Deny rules only."""


class Paths(StrictOptions):
    """Paths in the arguments of file tools."""

    does: Kinds | Kind | None = None
    """`read`, `write` or `delete`, or a list of them. Unset: any."""
    scope: PathScopes | None = None
    """Where the path is. Unset: anywhere."""
    wide: bool | None = None
    """True: a whole tree, or a glob."""
    target: NamePattern | list[NamePattern] | None = None
    """The path. Unset: any."""
    argument: str | Several | None = None
    """Look only at these top-level arguments. Unset: those with names that suggest a path."""

    @model_validator(mode="after")
    def _is_about_files(self) -> "Paths":
        kinds = several(self.does) or ()
        if odd := [kind for kind in kinds if kind not in ("read", "write", "delete")]:
            raise ValueError(
                f"`does` of `paths` is read, write or delete, and {odd[0]!r} is none of them: write"
                " it under `does: {effects: ...}`"
            )
        return self


class Network(StrictOptions):
    """Addresses in the arguments of any tool."""

    scope: HostScopes | None = None
    """Where the host is. Unset: anywhere."""
    sends: bool | None = None
    """True: the call also sends something to it. Unset: either."""
    target: NamePattern | list[NamePattern] | None = None
    """The URL. Unset: any."""
    argument: str | Several | None = None
    """Look only at these top-level arguments."""


class Secrets(StrictOptions):
    """Credentials in the arguments, recognised by their form: provider keys, tokens, private keys.
    Deny rules only."""

    kinds: NamePattern | list[NamePattern] | None = None
    """Kinds of credentials, such as `github` or `private_key`. Unset: any."""
    argument: str | Several | None = None
    """Look only at these top-level arguments."""

    @field_validator("kinds")
    @classmethod
    def _are_kinds(
        cls, kinds: NamePattern | list[NamePattern] | None
    ) -> NamePattern | list[NamePattern] | None:
        for kind in kinds if isinstance(kinds, list) else [kinds] if kinds is not None else ():
            if not any(map(NamePatterns(kind).match, KINDS)):
                check_kind(kind if isinstance(kind, str) else kind.re2)
        return kinds


def _check_schema(schema: dict[str, Any] | None) -> dict[str, Any] | None:
    if schema is not None:
        compile_schema(schema)
    return schema


class Sql(StrictOptions):
    """The SQL in `argument`, parsed in `dialect`. Allow: exactly one statement, with all its kinds
    in `kinds` and all its effects in `effects`. Deny: a kind in `kinds` or an effect in `effects`
    occurs, or the text is not exactly one statement that can be parsed.
    """

    argument: str | None = None
    """The top-level argument with the SQL. Unset: each argument that looks like SQL by its own name
    or its tool's."""
    kinds: tuple[SqlKind, ...] | None = None
    """Kinds of statements (docs/run/policies.md#tool_rules)."""
    effects: tuple[SqlEffect, ...] | None = None
    """What the statement does, including functions with side effects
    (docs/run/policies.md#tool_rules). Give `kinds`, `effects` or both."""
    dialect: Annotated[str, AfterValidator(check_dialect)]
    """The SQL dialect: `postgres`, `mysql`, `tsql`, `sqlite` or another."""

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.kinds is None and self.effects is None:
            raise ValueError(
                "give `kinds`, `effects` or both: what the statement is, or what it does"
            )
        return self


class Rule(StrictOptions):
    """Which calls a rule matches: all its conditions must hold."""

    name: Name | None = None
    """Its name in the record and in notices. Unset: its place, counted from 0, as in `deny[2]`."""
    tool: NamePattern | list[NamePattern] = "*"
    """Names of tools."""
    argument_matches: Pattern | None = None
    """Deny: found in any string or key of the arguments, in neighbouring values of lists and
    objects joined together, or in their exact text. Allow: matches each whole key and value, except
    keys that the tool's own schema lists."""
    argument: str | None = None
    """Look only at this top-level argument; needs `argument_matches`."""
    schema_: Annotated[
        dict[str, Any] | None, AfterValidator(_check_schema), Field(alias="schema")
    ] = None
    """The arguments are valid under this JSON Schema."""
    sql: Sql | None = None
    """What the SQL in an argument does."""
    does: Does | None = None
    """What the call does, by any of its arguments."""
    shell: Shell | None = None
    """What its commands do."""
    paths: Paths | None = None
    """Paths in the arguments of file tools."""
    network: Network | None = None
    """Addresses in the arguments."""
    secrets: Secrets | None = None
    """Credentials in the arguments."""
    unread: Literal[True] | None = None
    """True: the call has arguments that no rule can look at. Deny rules only."""
    executor: Executor | Annotated[list[Executor], Field(min_length=1)] | None = None
    """Who runs the call. Unset: anyone."""
    server: NamePattern | list[NamePattern] | None = None
    """The MCP server that runs the call, in the form of `tool`. Unset: any or none."""

    @property
    def is_about_all(self) -> bool:
        """Is it about each call of each tool?"""
        names = [NamePatterns(tool) for tool in self._tools]
        conditions = self.model_dump(exclude={"name", "tool", "executor"}, exclude_none=True)
        return (
            not conditions
            and (self.executor is None or _EVERYBODY.issubset(self.executor))
            and any(all(map(pattern.match, _ANY_NAMES)) for pattern in names)
        )

    @property
    def _tools(self) -> list[NamePattern]:
        return self.tool if isinstance(self.tool, list) else [self.tool]

    @property
    def reads_effects(self) -> bool:
        """Must what a call does be known?"""
        return any(
            condition is not None for condition in (self.does, self.shell, self.paths, self.network)
        )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.argument is not None and self.argument_matches is None:
            raise ValueError("`argument` needs `argument_matches`")
        return self


class AskRule(Rule):
    """A rule about calls that somebody else decides."""

    reason: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")] = "rule"
    """The reason in the record, of `a-z`, `0-9` and `_`."""
    message: str = ""
    """What the notice tells the client."""

    @model_validator(mode="after")
    def _can_match(self) -> Self:
        sql = self.sql
        if not self._tools or self.server == []:
            raise ValueError(
                "a list of names is empty, so the rule is about no call: name something, or take"
                " the rule out"
            )
        if sql is not None and not sql.kinds and not sql.effects:
            raise ValueError(
                "`sql` names no kind and no effect, so the rule finds none: name something, or take"
                " the rule out"
            )
        if self.server is not None and self.executor in (
            "client",
            ["client"],
            "provider",
            ["provider"],
        ):
            raise ValueError(
                "a call that the client or the provider runs has no `server`: the rule is about no"
                " call"
            )
        return self


class DenyRule(AskRule):
    """What to do with the calls that a rule matches."""

    decision: Literal["block", "replace"] = "block"
    """What to do with the call."""
    arguments: dict[str, Any] | None = None
    """With `replace`: the arguments that the client gets."""

    @model_validator(mode="after")
    def _replaces_by_something(self) -> Self:
        if (self.decision == "replace") != (self.arguments is not None):
            raise ValueError(
                "`decision: replace` and `arguments` go together: give both, or neither"
            )
        return self


Approver = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]


class ApprovalOptions(StrictOptions):
    """How people decide about the calls that rules ask about (docs/run/approvals.md)."""

    need: Annotated[int, Field(ge=1, le=2)] = 1
    """How many people must approve: 1 or 2. One denial denies."""
    approvers: Annotated[tuple[Approver, ...], Field(max_length=MAX_RULES)] = ()
    """Names of keys, and of people as the pages show them, who may decide. They also need the role
    `approver`. Unset: everybody with that role."""
    hold_s: Annotated[int, Field(ge=0, le=600)] = 50
    """Seconds that the client's answer waits for a decision. Then the turn ends with a notice, and
    an identical call later takes the decision. A key's own `hold_s` takes precedence."""
    expires_s: Annotated[int, Field(ge=60, le=604_800)] = 86_400
    """Seconds until the request expires. An expired request is a denial."""
    use_within_s: Annotated[int, Field(ge=60, le=86_400)] = 900
    """Seconds from an approval until it can no longer be used."""
    deny_for_s: Annotated[int, Field(ge=0, le=86_400)] = 900
    """Seconds from a denial in which an identical call is denied without asking again."""

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.approvers and len({*self.approvers}) < self.need:
            raise ValueError(
                "`approvers` names fewer people than `need`, so nothing could be approved: name"
                " more, or need fewer"
            )
        return self

    def as_asked(self) -> Approval:
        """Return it for an `Ask`."""
        return Approval(**self.model_dump())


class ToolRulesOptions(StrictOptions):
    """Options of `tool_rules`."""

    allow: Annotated[tuple[Rule, ...], Field(max_length=MAX_RULES)] | None = None
    """Block calls that match none of these rules. Unset: no call is blocked for matching none."""
    deny: Annotated[tuple[DenyRule, ...], Field(max_length=MAX_RULES)] = ()
    """Block calls that match one of these rules, or replace their arguments. A block wins over a
    replacement."""
    ask: Annotated[tuple[AskRule, ...], Field(max_length=MAX_RULES)] = ()
    """Calls that match one of these rules are decided by a `tool_judge` of the series; where it has
    none, by people if there is an `approval`. Otherwise they are blocked. `deny` wins over `ask`,
    and `ask` over `allow`."""
    approval: ApprovalOptions | None = None
    """Let people decide about calls that `ask`, `unsure: ask` and `unread: ask` ask about."""
    project: Project = "auto"
    """The project, for rules about scopes: `auto`, what the key, `sluice run` or the agent names
    (docs/run/policies.md#the-project); a path, or several; `.`, relative paths alone."""
    home: Folder = "~"
    """Absolute path of the home folder."""
    hosts: Hosts = ()
    """Hosts of the scope `listed`: names, `*.example.org`, addresses, or networks such as
    `10.0.0.0/8`."""
    unsure: Literal["block", "ask", "allow"] = "block"
    """What to do with a call when a rule of `deny` or `ask` about effects cannot decide, because
    the text does not show everything the call would run."""
    unread: Literal["block", "ask", "allow"] = "allow"
    """What to do with a call that has arguments which no rule can look at: text of a tool that
    nobody described. `allow` notes it on the record; `ask` leaves it to a judge of the series."""
    memory: bool = True
    """Also read each call as it would run after the earlier calls of its conversation: what they
    downloaded or wrote, the folder they went to, secrets in their results. Rules about effects
    only."""
    validate_schema: bool = False
    """Block calls that the client runs whose arguments do not fit the tool's schema. Providers
    check the arguments of their own tools."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        counts = Counter(rule.name for rule in (*self.deny, *self.ask) if rule.name is not None)
        for name, count in counts.items():
            if count > 1:
                raise ValueError(
                    f"deny: two rules have the name {name!r}: the record could not tell them apart"
                )
            if name in _OWN_NAMES:
                raise ValueError(
                    f"deny: no rule can have the name {name!r}: the record says it of the option"
                    f" `{name}`"
                )
        for place, rule in enumerate(self.allow or ()):
            if (
                rule.secrets is not None
                or rule.unread is not None
                or (rule.shell is not None and rule.shell.unsure is not None)
            ):
                raise ValueError(
                    f"allow.{place}: `secrets`, `unread` and `shell: {{unsure: ...}}` say what is denied:"
                    " they are for rules of `deny`"
                )
        return self
