"""What commands of clouds, clusters, forges, registries and hosting services change there.

New verbs come every week, so the tables list what only reads, and everything else counts as a
change. Where most of what a program does is about this machine, as of `docker`, its changes are
listed instead.
"""

import re
from functools import cache

from policy.effects.shell.command import Command
from policy.word_tables import by_word

_VERBS_THAT_READ = (
    "ls|list|lists|show|describe|info|view|status|get|head|read|search|find|lookup|query|scan"
    "|tail|logs?|wait|"
    "watch|version|versions|whoami|validate|check|diff|diagnose|doctor|top|stat|usage|what-if|"
    "history|preview|plan|login|logout|cat|du|download|pull|exists|open|browse|completion|docs"
    "|ping|"
    "regions|platform|presign|explain|"
    "(?:ls|list|show|describe|get|head|batch-get|search|lookup|query|scan|filter|preview"
    "|estimate|validate|"
    "check|simulate|decode|detect|view|wait|select|test|print|verify|count)[-:].*|list[A-Z].*"
    "|.*-(?:list|show|info|status)"
)
_READS = by_word(r"""
aws : configure|sso|help|s3 (?:ls|presign)|sts (?:get|decode|assume|help)|logs (?:tail
    |filter-log-events|start-query|get-|describe-)
    |eks (?:update-kubeconfig|get-token)|codeartifact (?:login|get-authorization-token)
    |ecr(?:-public)? get-|cloudformation validate
    |rds generate-db-auth-token|iam (?:generate|simulate)-|pricing|ce|health|history|athena (?:get
    |list|batch-get)
gcloud : auth|config|info|version|help|topic|components|init|cheat-sheet|survey|feedback
bq : ls|show|head|query|version|help|info|wait|extract --dry_run
gsutil : ls|cat|du|stat|hash|help|version|test|perfdiag|(?:config|acl|iam|cors|lifecycle
    |versioning|logging) get|signurl|config
az : login|logout|account (?:set|clear|show|list)|config|configure|version|help|find|upgrade
    |extension|rest --method get
    |(?:acr|aks) (?:login|get-credentials|check-acr)|interactive|feedback|cloud|self-test
kubectl oc k k3s kubecolor : get|describe|logs?|top|explain|version|api-(?:resources|versions)
    |cluster-info|config|diff|wait|events?
    |rollout (?:status|history)|auth (?:can-i|whoami)|kustomize|options|completion|plugin|krew
    |port-forward|whoami|status|projects?|login|logout
helm : list|ls|status|get|history|show|inspect|search|template|lint|version|env|repo|dep
    |dependency|package|pull|fetch|verify|diff|create
    |plugin|completion|help|registry
helmfile : list|status|diff|template|lint|build|deps|repos|fetch|version|write-values|show-dag
terraform tofu terragrunt : plan|show|validate|output|fmt|init|providers|graph|version|get|login
    |logout|console|metadata|modules|test|hclfmt
    |state (?:list|show|pull)|workspace (?:list|show|select)|run-all (?:plan|validate|output|show
    |init)|render-json|graph-dependencies
pulumi : preview|stack (?:ls|list|output|graph|select|history|tag ls)|stack\Z|config(?! set| rm
    | cp| refresh| env (?:add|rm))|whoami|about|logs|version|plugin|login|logout|new|schema
cdk cdktf : ls|list|synth|synthesize|diff|doctor|docs|doc|init|context|acknowledge|notices
    |metadata|get|version
sam serverless sls : build|validate|local|logs|init|info|package|invoke local|print|list|docs
    |traces|metrics|offline
eksctl : get|version|info|utils (?:describe|schema)|completion
argocd : app (?:get|list|diff|history|logs|manifests|resources|wait)|version|login|logout|context
    |(?:repo|cluster|proj|account) (?:get|list)
flux : get|check|version|logs|export|tree|stats|trace|diff|build|events|completion
gh : auth (?:login|logout|status|token|refresh|setup-git|switch)|status|browse|search|config|alias
    |extension (?:list|search)|completion|help|version
    |(?:pr|issue) (?:view|list|status|diff|checks|checkout)|repo (?:view|list|clone|set-default
    |gitignore|license|autolink (?:list|view))
    |(?:run|workflow|release|gist|label|secret|variable|cache|ruleset|project|org|codespace
    |ssh-key|gpg-key|attestation)
    (?:view|list|watch|download|clone|check|field-list|item-list|verify|ports|logs|verify-asset)
    |co|api
glab : auth|status|config|completion|help|version|check-update|api|(?:mr|issue|repo|ci|pipeline
    |job|release|snippet|label|variable|schedule|milestone|cluster|user)
    (?:view|list|show|diff|checkout|clone|trace|status|get|search|download|events|contributors
    |issues|archive|artifact|lint|note list)
heroku : apps(?::info)?|logs|ps|config(?::get)?|status|regions|whoami|auth(?::\S*)?|login|logout
    |help|version|addons(?::(?:info|docs|plans|services))?
    |releases(?::(?:info|output))?|domains|certs(?::info)?|access|features|buildpacks|stack
    |pipelines(?::(?:info|diff))?|pg(?::(?:info|ps|locks|diagnose|outliers|backups|settings))?
    |redis:info|plugins|git:(?:clone|remote)|members|orgs|teams|spaces(?::info)?|local|open|drains
    |keys|labs|sessions|webhooks|\S+:(?:info|list|get)
fly flyctl : status|logs?|apps(?: list|\Z)|auth|version|doctor|info|history|platform|dig|ping
    |regions(?: list|\Z)|services(?: list|\Z)|checks|config (?:show|validate|env|save)
    |(?:machines?|volumes?|secrets|ips|certs|releases?|image|postgres|pg|redis|orgs?|tokens
    |builds?|snapshots|registry|proxy) (?:list|ls|show|status|files)|releases|settings|dashboard
    |open|docs|ssh console|proxy
doctl : auth|account|balance|billing-history|invoice|version|registry login
    |kubernetes cluster kubeconfig
vercel : ls|list|logs?|inspect|whoami|login|logout|env (?:ls|list|pull)|pull|build|dev|help
    |projects? ls|domains (?:ls|inspect)|dns ls|teams ls|certs ls|switch|link|bisect|init|--version
netlify : status|sites:list|dev|build|login|logout|logs?\S*|env:(?:list|get)|open\S*|help|watch
    |recipes|functions:(?:list|serve|build|invoke|create)|\S*:list|link|unlink|init
wrangler : whoami|login|logout|dev|tail|init|docs|types|check|pages dev|deployments (?:list|status
    |view)|versions (?:list|view)|telemetry
    |kv (?:namespace|key) (?:list|get)|r2 (?:bucket (?:list|info)|object get)
    |(?:secret|d1|queues|hyperdrive|vectorize|pages (?:project|deployment)) (?:list|ls|info|get)
    |generate|build
firebase : login\S*|logout|projects:list|use|serve|emulators:\S*|list|open|help|\S*:list|\S*:get
    |\S*:log|init|target|experiments:\S*
supabase : login|logout|start|stop|status|init|link|unlink|projects (?:list|api-keys)
    |functions (?:list|serve|new|download)|gen|db (?:diff|lint|dump|pull|start)|migration (?:list
    |new)
    |orgs list|branches (?:list|get)|inspect|secrets list|services|completion|test|bootstrap
    |telemetry
railway : login|logout|whoami|status|logs|list|variables|open|docs|link|unlink|shell|run|init
    |environment|service|version|completion
neonctl pscale planetscale : auth|me|connection-string|cs|completion|shell|connect|login|logout
    |whoami|version
linode-cli hcloud scw oci ibmcloud openstack s3cmd mc s5cmd azcopy exo civo vultr-cli cf bx aliyun tccli b2 eb render nomad consul : login|logout|configure|config|ls|du|stat|cat|find|tree|diff|head|ping|version|env
    |context|api|target|plugin|account|--configure|get|info|alias|job (?:status|history|inspect
    |plan|validate)|node status|status|members|catalog|kv get|monitor|agent-info
vault : status|login|read|list|kv (?:get|list|metadata get)|token lookup|token capabilities
    |policy (?:list|read|fmt)|secrets list|auth list|audit list|path-help|version|print|unwrap
    |monitor|events|ssh|version-history
stripe : login|logout|listen|logs|status|resources|samples|version|config|open|help|\S+ (?:list
    |retrieve|search)|get
""")
"""How the words behind the name begin, without options, where a command only reads, or changes no
more than this machine's settings. Others read where their first known verb does."""
_CHANGES = by_word(r"""
docker podman nerdctl buildah : push|image push|manifest push|(?:service|stack|swarm|secret|config
    |node) (?:create|update|scale|deploy|rm|init|join|leave|rollback|promote|demote)
    |buildx imagetools create|plugin push|trust
skopeo crane regctl oras : copy|cp|push|delete|sync|append|tag|mutate|rebase|attach|artifact put
    |tag delete
npm pnpm yarn bun : (?:npm )?(?:publish|unpublish|deprecate|dist-tag (?:add|rm|set)
    |access (?:public|restricted|grant|revoke|set.*)|owner (?:add|rm)|team|token (?:create|revoke)
    |org (?:set|rm)|profile set|hook|star|unstar|stage)
cargo : publish|yank|owner|login
gem : push|yank|owner
twine : upload
poetry uv hatch pdm flit rye maturin : publish
mvn mvnw gradle gradlew sbt : .*\b(?:deploy|publish|release)
dotnet nuget : (?:nuget )?(?:push|delete)
mix : hex\.(?:publish|retire|owner)
dart flutter : pub publish
goreleaser semantic-release np : .*
lerna changeset vsce ovsx : (?:release|publish)
ansible ansible-playbook ansible-pull salt puppet chef-client kops kubeadm kustomize-apply capistrano cap kamal fab helm-docs-push skaffold tilt
    : (?!(?:render|build|diagnose|version|list|get|config|schema|lint|init|help|up|dev|validate
    |describe|export)\b).*
redis-cli valkey-cli : (?:.* )?(?:set|del|flush\w*|config set|hset|lpush|rpush|sadd|zadd|expire
    |rename|restore|migrate|shutdown|eval\w*|incr\w*|decr\w*|unlink|xadd|publish)(?: .*)?
rclone : copy|sync|move|copyto|moveto|bisync|purge|delete|deletefile|rmdirs|cleanup|rcat
""")
"""The other way round: what is listed changes something with a service."""
_KNOWN_VERB = re.compile(
    r"(?:create|delete|update|set|unset|add|remove|rm|put|post|patch|apply|start|stop|restart"
    r"|reboot|reset|deploy|run|exec|"
    r"attach|detach|enable|disable|scale|resize|move|mv|cp|sync|copy|rename|import|upload|push"
    r"|publish|promote|rollback|destroy|"
    r"terminate|invoke|send|submit|execute|register|deregister|associate|disassociate|modify"
    r"|change|grant|revoke|rotate|restore|"
    r"upgrade|migrate|merge|close|reopen|edit|comment|transfer|archive|unarchive|lock|unlock|tag"
    r"|untag|cancel|suspend|resume|"
    r"new|init|mb|rb|provision|purge|clone|fork|approve|ssh|call|undelete|release|allocate"
    r"|authorize|batch-write|batch-delete)"
    r"(?:[-:].*|[A-Z].*)?"
)
"""A verb that changes something: the words behind it are names, whatever they say."""
_MUTATION = re.compile(r"mutation\b[^{]{0,200}\{\s*(?:\w+\s*:\s*)?(\w+)")
_BARE = frozenset("-q --quiet --debug -v --verbose -A --all-namespaces -y --yes --json".split())
"""Options without a value that stand before verbs."""
_METHOD = re.compile(r"(?:^| )(?:-X ?|--method[ =])(\w+)")
_BY_FIELD = re.compile(r"(?:^| )(?:-[fF]|--(?:field|raw-field|input|form)\b)")
_MAX_WORDS = 8


@cache
def _compiled(rows: str) -> re.Pattern[str]:
    alternatives = rows.replace(" |", "|")
    return re.compile(rf"(?:{alternatives})(?= |\Z)")


_VERB = re.compile(_VERBS_THAT_READ)


def verbs(command: Command) -> list[str]:
    """The first words of a command that are neither an option nor may be an option's value."""
    found: list[str] = []
    before = ""
    for word in command.words[1:]:
        text = word.known
        is_value = before.startswith("-") and "=" not in before and before not in _BARE
        if not text.startswith("-") and not is_value:
            found.append(text)
            if len(found) >= _MAX_WORDS:
                break
        before = text
    return found


def is_of_service(command: Command) -> bool:
    """Is it a program of a service that is never on this machine?"""
    return command.name in _READS and command.name not in _CLUSTERS


def change_of(command: Command) -> str:
    """Return what a command changes with a service; empty where it only reads there."""
    if (reads := _READS.get(command.name)) is not None:
        words = verbs(command)
        if not _only_reads(command, words, reads):
            asked = _MUTATION.search(command.line) if "graphql" in words else None
            return " ".join([*words, *(asked.groups() if asked else ())]) or command.name
    elif (changes := _CHANGES.get(command.name)) is not None:
        line = " ".join(verbs(command))
        if _compiled(changes).match(line):
            return line or command.name
    return ""


def _only_reads(command: Command, words: list[str], reads: str) -> bool:
    line = " ".join(words)
    texts = command.texts
    before = texts[: texts.index("--")] if "--" in texts else texts
    if any(re.fullmatch(r"--dry-run(?:=client|=server)?", text) for text in before):
        return "exec" not in words
    if not words or words[0] == "help":
        return command.name not in ("vercel", "railway")
    if command.name in ("gh", "glab") and words[0] == "api":
        return _asks(command)
    if _compiled(reads).match(line):
        return True
    if command.name in ("aws", "gsutil", "gcloud", "s3cmd", "mc", "s5cmd") and _FETCHES.fullmatch(
        line
    ):
        return True
    if command.name in _FIRST_WORD:
        return False
    # the first word says what it is about
    for word in words[1:]:
        if _VERB.fullmatch(word):
            return True
        if _KNOWN_VERB.fullmatch(word):
            return False
    return False


_FETCHES = re.compile(r"(?:\S+ )*?(?:cp|sync|rsync|get|cat) \S*://\S* (?:\S+ )*(?!\S*://)\S+")
"""From a store to this machine."""
_CLUSTERS = frozenset("kubectl oc k k3s kubecolor helm helmfile".split())
"""A cluster may be one for tests on this machine: `cloud_commands` looks at its name."""
_FIRST_WORD = frozenset(
    "kubectl oc k k3s kubecolor helm helmfile terraform tofu terragrunt pulumi cdk cdktf sam"
    " serverless sls vercel railway vault netlify wrangler".split()
)
"""Whose rows say all: their verb stands first."""


def _asks(command: Command) -> bool:
    """Is a call of a forge's interface one that asks: GET, or a query?"""
    line = command.line
    if methods := _METHOD.findall(line):
        return {method.upper() for method in methods} <= {"GET", "HEAD"}
    return "mutation" not in line if "graphql" in line else _BY_FIELD.search(line) is None
