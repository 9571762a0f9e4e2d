"""The policies that a worker has: who holds them, for whoever replaces them while running.

Everybody asks here, for each call or heartbeat, and keeps nothing; but a call keeps what it began
with (guarantee G9).
"""

import logging

from policy.base import Policy
from policy.loading import check_series, load
from policy.session.choosing import session_of
from policy.session.effects import SESSION_VERSION, CallInfo, Tracer
from policy.session.opening import no_policy
from policy.session.session import Session
from protocol.errors import Overloaded, PipelineError, PolicyFailed
from settings.runtime import Runtime
from streams.layout import RETRIES, Start

log = logging.getLogger(__name__)
Series = tuple[list[Policy], str]
"""The policies of a series, and their revision."""


class LoadedPolicies:
    """Every policy of the configuration, and the name of their set. Raises PolicyFailed naming one
    that cannot be loaded."""

    def __init__(self, settings: Runtime) -> None:
        self.config, self.set = settings.config, settings.policy_set
        self.series: dict[str, Series] = {
            name: load(
                steps,
                search_path=settings.search_path,
                session_version=SESSION_VERSION,
                config=self.config,
                redact_key=settings.redact_key,
            )
            for name, steps in self.config.policies.items()
        }
        for name, (policies, _) in self.series.items():
            check_series(name, policies)
            if name == "default" and all(policy.why_idle() for policy in policies):
                log.warning("everything passes: the policies `default` block nothing")
        self.revisions = [f"{name}@{revision}" for name, (_, revision) in self.series.items()]
        """`NAME@REVISION` of each."""

    @property
    def pins(self) -> list[str]:
        """What a worker with these may claim: the revisions of its policies, and its set behind
        `=`."""
        return [*self.revisions, f"={self.set}"]

    def choose(
        self, start: Start, pinned: str | None, revision: str
    ) -> tuple[str, Series, PipelineError | None]:
        """Return the policy's name, its series and revision, or why there is none."""
        name = pinned or start.policy or start.policies[0]
        if name not in self.series or name not in start.policies:
            return (
                name,
                ([], ""),
                no_policy(name, asked=start.policy, key_policies=start.policies, known=self.series),
            )
        loaded = self.series[name]
        if pinned and revision != loaded[1]:
            return (
                name,
                ([], ""),
                PolicyFailed("no worker has this call's policy revision any more"),
            )
        if not pinned and start.policy_sets and self.set not in start.policy_sets:
            return (
                name,
                ([], ""),
                Overloaded(
                    "no worker has this call's policy set any more",
                    code="no_worker",
                    retry_after_s=1,
                ),
            )
        return name, loaded, None

    def session(
        self, start: Start, policy: str, series: Series, tracer: Tracer | None = None
    ) -> Session:
        """Return a session for a call, under the policy that was chosen; `tracer` is called for
        each hook."""
        info = CallInfo(
            call_id=start.call_id,
            at=start.at,
            dialect=start.dialect,
            endpoint=start.endpoint,
            key=start.key,
            session=start.session,
            nonce=start.nonce,
            gateway=start.gateway,
            policy=policy,
            revision=series[1],
            durable=self.config.durability != "relaxed",
            max_arguments_bytes=self.config.limits.event_bytes,
            betas=start.betas,
            server_tools=start.server_tools,
            key_id=start.key_id,
            policy_set=self.set,
            body_sha256=start.body_sha256,
            facts=start.facts,
            source=start.source,
            agent=start.agent,
            parent=start.parent,
            project=start.project,
            allowed=start.allowed,
            may_retry=bool(start.numbers.get(RETRIES)),
            tracer=tracer,
        )
        return session_of(info, series[0], self.config)
