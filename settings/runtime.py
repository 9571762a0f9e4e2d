"""What a process is started with: the configuration, and where its stores are. Must not know: how
either is found."""

from pydantic import BaseModel, ConfigDict, Field

from settings.config import Config


class Runtime(BaseModel):
    """What a process is started with: the configuration and where things are. Made by
    `sluice.settings`, passed down."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: Config
    redis_url: str
    database_url: str
    """SQLAlchemy-free form: postgresql://user:password@host:port/name, or with
    ?host=/socket/dir."""
    host: str = "127.0.0.1"
    port: int = 8080
    pages_url: str = ""
    """Where the process of the pages listens: `unix:PATH`, or `http://HOST:PORT`."""
    name: str = ""
    """Name of this process in logs and as a Redis consumer; empty: made from host name and pid."""
    concurrency: int = 8
    """Judgements a judge worker runs at once."""
    search_path: tuple[str, ...] = ()
    """Where policies of the user's own Python files are looked for: the folder of the configuration
    file."""
    scripts_dir: str = ""
    """Where the scripted model's files are; empty: it has none."""
    policy_set: str = ""
    """The name of the policy set (`settings.policy_set`), which gateways and policy workers know;
    empty: calls begin under any."""
    seal_key: str = Field(default="", repr=False)
    """PEM of the Ed25519 key that signs checkpoints; empty: they are not signed."""
    redact_key: str = Field(default="", repr=False)
    """Makes the placeholders of values that come back; empty: there are none."""
    ready_fd: int | None = None
    """A file descriptor to which the process writes one line when it is ready (used by `sluice
    up`)."""
    alive_file: str = ""
    """File in which a worker notes each second that it is alive; empty: none."""
    metrics_port: int | None = None
    """Where this process serves its own /metrics; 0: any free port; None: nowhere."""
    metrics_host: str = "127.0.0.1"
    metrics_target: str = ""
    """File in which it writes that address for Prometheus; empty: none."""

    @property
    def policy_sets(self) -> tuple[str, ...]:
        """Under which sets a gateway's calls may begin: its own first."""
        return (
            (self.policy_set, *(s for s in self.config.accept_policy_sets if s != self.policy_set))
            if self.policy_set
            else ()
        )
