"""Containers, clusters, clouds and virtual machines: what is deleted there, and containers that do
not isolate."""

import re

from policy.shell.args import Args, args_of
from policy.shell.commands import Command, Word
from policy.shell.file_commands import is_remote
from policy.shell.findings import Findings, Handler

_DOCKER = tuple(
    """-v --volume --mount --name -e --env --env-file -p --publish -w --workdir -u --user --network --net --entrypoint -f --file --filter
    -t --tag --platform --pid --ipc
    --uts --userns --cap-add --security-opt --device -m --memory --cpus --gpus --restart --hostname -h --label -l --add-host --build-arg
    --target -H --host --context -c
    --log-driver --log-opt --tmpfs --ulimit --dns --ip --link --volumes-from --cidfile --shm-size --format -n --tail --since --project-name
    --profile --secret --ssh
    --cgroupns --runtime --stop-signal --group-add --cache-from --cache-to --output -o""".split()
)
_VOLUME_HOLES = re.compile(
    r"(?:/|/(?:etc|root|home|boot|dev|proc|sys|usr|bin|sbin|lib|var|var/lib|var/lib/(?:docker|kubelet)|var/log|opt|"
    r"srv|run)|~|~/\.ssh|~/\.aws|/home/\w+)/?"
)


_OF_CLOUDS = re.compile(
    r"(?:^|\.)(?:amazonaws\.com|ecr\.aws|azurecr\.io|pkg\.dev|gcr\.io|ocir\.io|icr\.io|digitalocean\.com|gitlab\.com|elastic\.co|nvcr\.io|"
    r"redhat\.(?:com|io)|lscr\.io|cgr\.dev|scaleway\.com|suse\.com|oracle\.com|fedoraproject\.org|opensuse\.org|k8s\.io)(?::\d+)?\Z"
)
"""Registries where one needs an account to put images."""


_NOUNS = frozenset(
    "container image volume network system builder compose stack service secret swarm node buildx"
    " pod machine context".split()
)


def _docker(command: Command, args: Args, findings: Findings) -> None:
    args = args_of(command, _DOCKER)
    removes_volumes = any(
        word.text in ("-v", "--volumes", "-fv", "-vf") for word in command.words[1:]
    )
    texts = [text for text in args.texts if text != "--"]
    if command.name in ("docker-compose", "podman-compose"):
        texts = ["compose", *texts]
    verbs = texts[:3]
    noun = verbs[0] if verbs else ""
    if noun in _NOUNS:
        verbs = verbs[1:]
    else:
        noun = ""
    verb = verbs[0] if verbs else ""
    if verb in ("run", "create", "exec") or (noun in ("", "container") and verb == "start"):
        _container(args, findings)
    prunes_volumes = any(word.text in ("--volumes", "--volumes=true") for word in command.words[1:])
    if (noun == "system" and verb == "prune" and (args.has("-a", "--all") or prunes_volumes)) or (
        noun == "volume" and verb in ("rm", "prune", "remove")
    ):
        findings.add(
            "delete",
            "unknown" if noun == "volume" or prunes_volumes else "temp",
            " ".join(texts),
            wide=True,
        )
    elif (noun == "compose" and verb in ("down", "rm") and removes_volumes) or (
        noun in ("stack", "swarm", "service", "secret", "machine")
        and verb in ("rm", "remove", "leave", "down")
    ):
        findings.add("delete", "unknown", " ".join(texts), wide=True)
    elif verb in ("rm", "rmi", "kill", "stop") and any(_is_all(word) for word in args.operands[1:]):
        # $(docker ps -aq): all containers of the machine, with what is in them
        if verb == "rm" and (args.has("-v", "--volumes") or args.has("-f", "--force")):
            findings.add("delete", "unknown", " ".join(texts), wide=True)
        else:
            findings.add("process", "unknown", " ".join(texts), wide=True)
    elif verb in ("push", "save", "export", "login", "pull"):
        findings.add("network", "listed", " ".join(texts[1:2]))
    elif verb == "cp":
        for word in args.operands[1:]:
            if not re.match(r"[\w.-]+:", word.known):
                findings.read(word)


def _is_all(word: Word) -> bool:
    return word.text is None and bool(word.outputs)


def _container(args: Args, findings: Findings) -> None:
    if args.has("--privileged"):
        findings.add("privilege", "root", "--privileged")
    if any(word.known == "host" for word in args.all("--pid")):
        findings.add("privilege", "root", "--pid=host")
    for word in args.all("--cap-add"):
        if re.search(
            r"(?i)all|sys_admin|sys_ptrace|sys_module|dac_|sys_rawio|setuid|bpf", word.known
        ):
            findings.add("privilege", "root", f"--cap-add={word.known}")
    for word in args.all("--security-opt"):
        if re.search(r"(?i)unconfined|disable|no-new-privileges[:=]false", word.known):
            findings.add("defence", "system", word.known)
    for word in args.all("--device"):
        place = findings.place(Word(word.known.partition(":")[0]))
        if place.scope == "device" and re.search(
            r"/dev/(?:sd|nvme|vd|xvd|mem|kmem|mapper|dm-|hd|disk)", place.path
        ):
            findings.add("privilege", "device", place.path)
    mounts = False
    for word in [*args.all("-v", "--volume"), *args.all("--mount")]:
        text = word.known
        if "=" in text and (source := re.search(r"(?:source|src)=([^,]+)", text)) is not None:
            path, read_only = source[1], "readonly" in text or ",ro" in text
        else:
            path, _, destination = text.partition(":")
            read_only = destination.endswith(":ro") or ":ro," in destination
        _mount(path, read_only, findings)
        mounts |= path.startswith(("/", "~", ".", "$")) and not read_only
    image = next(iter(args.operands[1 + args.starts("container") :]), Word(""))
    registry = re.match(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?(?=/)", image.known)
    if (
        mounts
        and registry is not None
        and not _OF_CLOUDS.search(registry[0])
        and findings.scope_of_host(Word(registry[0])) == "other"
    ):
        findings.add("execute", "other", image.known)


def _mount(path: str, read_only: bool, findings: Findings) -> None:
    if not path.startswith(("/", "~", ".", "$")):
        return
    place = findings.place(Word(path))
    if (
        "docker.sock" in path
        or "containerd" in path
        or "crio.sock" in path
        or "podman.sock" in path
    ):
        findings.add("privilege", "root", path)
    elif place.scope == "root" or (_VOLUME_HOLES.fullmatch(place.path) and not read_only):
        findings.add("privilege", place.scope, place.path, wide=True)
    elif place.scope == "credentials":
        findings.reads.append(place)
        findings.add("read", "credentials", place.path)


_HERE = re.compile(
    r"(?:kind|k3d|minikube|docker-desktop|docker-for-desktop|rancher-desktop|colima|orbstack|microk8s)(?:-|\Z)"
)
"""Contexts of clusters on this machine, which are made and thrown away with a command."""


_BROAD = re.compile(
    r"ns|namespaces?|pv|pvc|persistentvolume(?:claim)?s?|nodes?|no|crds?|"
    r"customresourcedefinitions?|all|deploy(?:ment)?s?|statefulsets?|sts|storageclass\w*|sc|secrets?|clusters?|ingress\w*|svc|"
    r"services?|configmaps?|cm|daemonsets?|ds|clusterrole\w*"
)
"""Kinds of things in a cluster of which even one is much."""
_GUARDS = re.compile(
    r"networkpolic\w+|netpol|psp|podsecuritypolic\w+|validatingwebhook\w*|mutatingwebhook\w*|"
    r"validatingadmission\w*|podsecurity\w*|events?"
)
"""Kinds of things that keep others from doing harm, or tell of it."""


def _kubectl(command: Command, args: Args, findings: Findings) -> None:
    args = args_of(
        command,
        (
            "-n",
            "--namespace",
            "-f",
            "--filename",
            "-l",
            "--selector",
            "-o",
            "--output",
            "--context",
            "--kubeconfig",
            "-c",
            "--container",
            "--cluster",
            "-k",
            "--image",
            "--overrides",
            "--field-selector",
            "--grace-period",
            "--timeout",
            "-p",
            "--patch",
            "--type",
            "--replicas",
            "--as",
            "--token",
            "-s",
            "--server",
            "--tail",
            "--since",
            "--from-literal",
            "--clusterrole",
            "--user",
            "--serviceaccount",
            "--cascade",
            "--user",
        ),
    )
    texts = args.texts
    verb = texts[0] if texts else ""
    joined = " ".join(texts)
    if args.all("--dry-run") or args.has("--dry-run"):
        return
    kinds = texts[1].lower().split("/")[0].split(",") if len(texts) > 1 else []
    if verb == "delete":
        broad = args.has("--all", "-A", "--all-namespaces") or any(map(_BROAD.fullmatch, kinds))
        guard = any(map(_GUARDS.fullmatch, kinds))
        is_here = any(_HERE.match(word.known) for word in args.all("--context"))
        wide = not is_here and (broad or bool(args.all("-l", "--selector")))
        findings.add("defence" if guard else "delete", "unknown", joined, wide=wide)
    elif verb == "drain" or (
        verb == "scale" and any(word.known == "0" for word in args.all("--replicas"))
    ):
        findings.add("process", "system", joined, wide=True)
    elif (
        (
            verb == "get"
            and any(re.fullmatch(r"secrets?", kind) for kind in kinds)
            and (
                args.all("-o", "--output")
                and not any(word.known in ("name", "wide") for word in args.all("-o", "--output"))
            )
        )
        or (verb == "config" and args.starts("config", "view") and args.has("--raw", "--flatten"))
        or (verb == "create" and len(texts) > 1 and texts[1] == "token")
    ):
        findings.is_secret = True
        findings.add("read", "credentials", joined)
    elif verb == "create" and any("clusterrolebinding" in kind for kind in kinds):
        findings.add("privilege", "unknown", joined)
    elif (
        verb in ("run", "debug")
        and any(
            "privileged" in word.known or "hostPID" in word.known or "hostPath" in word.known
            for word in args.all("--overrides", "--profile")
        )
    ) or (verb == "debug" and len(texts) > 1 and texts[1].startswith("node/")):
        findings.add("privilege", "root", joined)
    elif verb in ("apply", "create", "replace"):
        for word in args.all("-f", "--filename", "-k"):
            if "://" in word.known:
                findings.add("execute", findings.scope_of_host(word), word.known)
            elif word.known != "-":
                findings.read(word)


_GONE = re.compile(
    r"^(?:delete|destroy|terminate|remove|purge|rb|deregister|drop|empty|wipe|flush|detach-and-delete|release|schedule-key-deletion|"
    r"disable-key|erase|nuke|uninstall|reset)(?:[-:].*)?$|"
    r".*[-:](?:delete|destroy|purge)$"
)
_SMALL = re.compile(
    r"tags?|labels?|alias(?:es)?|message|delete-object|item|record|dashboard|alarms?|log-stream|cached?|session|version|"
    r"draft|comment|env|config|unset|remove-tags"
)
_GRANTS = re.compile(
    r"(?:attach|put|create|add|update|set)-(?:user|role|group|iam|org|bucket|resource|key|login|access)?-?(?:policy\w*|access-key|"
    r"login-profile|role|user-to-group|policy-binding|acl|key-policy|assume-role-policy|grant|public-access-block)|"
    r"add-iam-policy-binding|set-iam-policy|create-service-specific-credential|create-user|create-access-key|create-login-profile|"
    r"add-user-to-group|create-grant|add-permission|update-assume-role-policy"
)
_UNGUARDS = re.compile(
    r"stop-logging|delete-trail|delete-detector|disable-security-hub|delete-flow-logs|stop-configuration-recorder|"
    r"delete-configuration-recorder|disable-\w*guardduty\w*|delete-log-group|"
    r"delete-web-acl|deactivate-mfa-device|delete-public-access-block|disable-alarm-actions|delete-bucket-policy|put-bucket-logging|"
    r"update-trail|delete-retention-policy|delete-alarms|"
    r"disassociate-\w*|delete-event-data-store|disable-macie|delete-members"
)
_SECRETS = re.compile(
    r"get-secret-value|batch-get-secret-value|get-session-token|assume-role(?:-with-.*)?|get-federation-token|export-credentials|"
    r"print-access-token|print-identity-token|"
    r"get-access-token|get-authorization-token|get-login-password|get-password-data|get-credentials|list-keys|show-connection-string|"
    r"generate-sas|get-credential-report|access-secret-version"
)


_CLOUD_VALUED = tuple(
    "--profile --region --output --query --project --format --subscription -g -n -o --endpoint-url"
    " --zone".split()
)
"""Options of clouds' commands that take a value."""


_KEEPS = re.compile(
    r"secrets?|env|envs|setenv|auth|login|config|configure|secretsmanager|ssm|keyvault|kms|iam|vars?|variables?|parameters?|credentials?|"
    r"get|list|ls|describe|show|download|pull"
)
"""Words of commands that are for keys and settings of what runs there, or that send nothing."""


def _cloud(command: Command, args: Args, findings: Findings) -> None:
    """`aws`, `gcloud`, `az` and their like: verbs say what is done."""
    texts = [word.known for word in args_of(command, _CLOUD_VALUED).operands]
    flags = [word.known for word in command.words[1:] if word.known.startswith("-")]
    joined = " ".join(word.known for word in command.words[1:])
    if any(
        flag in ("--dry-run", "--dryrun", "--help", "help", "--what-if") for flag in flags
    ) or texts[-1:] == ["help"]:
        return
    # the last words are names of things, the first ones nouns and verbs
    verbs = texts[:5]
    findings.add("network", "listed", " ".join(texts[:2]))
    if not any(
        _KEEPS.fullmatch(part)
        for text in (*texts[:2], *flags)
        for part in re.split(r"[-:=]", text)[:5]
    ):
        findings.sends.append(("unknown", joined, True))
    if command.name not in ("aws", "gcloud", "az"):
        service(command, findings)
    if texts[:1] in (["s3"], ["storage"], ["cp"], ["rsync"], ["mv"], ["rm"]) or command.name in (
        "gsutil",
        "s3cmd",
        "mc",
        "s5cmd",
        "azcopy",
    ):
        _buckets(command, texts, flags, findings)
        return
    if texts[:2] == ["configure", "get"] and re.search("secret|token", joined):
        findings.is_secret = True
        findings.add("read", "credentials", joined)
    if (
        any(_UNGUARDS.fullmatch(verb) for verb in verbs)
        or (texts[:1] == ["logging"] and "delete" in verbs)
        or re.search(
            r"--no-(?:enable-logging|block-public)|--public-network-access enabled",
            joined,
        )
    ):
        findings.add("defence", "unknown", joined)
    elif (
        any(_SECRETS.fullmatch(verb) for verb in verbs)
        or (texts[:1] == ["secrets"] and "access" in verbs)
        or "--with-decryption" in flags
        or (texts[:2] == ["keyvault", "secret"] and "show" in verbs)
    ):
        findings.is_secret = True
        findings.add("read", "credentials", joined)
    elif (
        any(_GRANTS.fullmatch(verb) for verb in verbs)
        or texts[:3] in (["role", "assignment", "create"], ["ad", "sp", "create-for-rbac"])
        or (texts[:2] == ["iam", "service-accounts"] and "create" in verbs)
    ):
        findings.add("privilege", "unknown", joined)
    else:
        _changed(texts, joined, findings)


def _changed(texts: list[str], joined: str, findings: Findings) -> None:
    """What is deleted, stopped or opened to everybody."""
    verbs = texts[:5]
    gone = [i for i, verb in enumerate(verbs) if _GONE.fullmatch(verb)]
    if gone:
        verb = verbs[gone[0]]
        nouns = " ".join(texts[: gone[0] + 1])
        findings.add(
            "delete", "unknown", joined, wide=not _SMALL.search(nouns if "-" not in verb else verb)
        )
    elif any(verb in ("stop-instances", "reboot-instances", "deallocate") for verb in verbs):
        findings.add("process", "unknown", joined)
    elif any(
        word in joined
        for word in ("authorize-security-group-ingress", "firewall-rules create", "nsg rule create")
    ) and re.search(r"0\.0\.0\.0/0|::/0|\*", joined):
        findings.add("defence", "unknown", joined)


def _buckets(command: Command, texts: list[str], flags: list[str], findings: Findings) -> None:
    joined = " ".join([*texts, *flags])
    verbs = [text for text in texts[:3] if not re.search(r"://|/", text)]
    broad = any(
        re.fullmatch(
            r"--recursive|-r|-R|--delete|--force|-d|-rf|--dangerous|--include.*|--incomplete|-m",
            flag,
        )
        for flag in flags
    )
    if any(verb in ("rb", "del", "rm", "remove", "rmb", "delete") for verb in verbs):
        findings.add(
            "delete",
            "unknown",
            joined,
            wide=broad
            or "rb" in verbs
            or "delete" in verbs
            or any(re.search(r"://[^/]+/?\*?$", text) for text in texts),
        )
    elif {"sync", "rsync", "mirror"} & {*verbs} and {
        "--delete",
        "--delete-removed",
        "-d",
        "--remove",
        "--delete-destination=true",
    } & {*flags}:
        findings.add("delete", "unknown", joined, wide=True)
    paths = [
        word
        for word in command.words[1:]
        if "/" in word.known or "." in word.known or word.text is None
    ]
    local = [
        word
        for word in paths
        if "://" not in word.known and not word.known.startswith("-") and not is_remote(word)
    ]
    if (
        any(
            verb in ("cp", "sync", "mv", "put", "upload", "rsync", "copy", "mirror")
            for verb in verbs
        )
        and local
        and command.words[-1] not in local
    ):
        findings.read(*local, wide=broad)
        findings.sends.append(("unknown", joined, True))
    elif local and any(verb in ("cp", "sync", "mv", "get", "download") for verb in verbs):
        findings.write(*local[-1:])
    if re.search(
        r"--acl[= ]public|public-read|allUsers|acl ch .*AllUsers|anonymous set|--make-public",
        joined,
    ):
        findings.add("defence", "unknown", joined)


def _plans(command: Command, args: Args, findings: Findings) -> None:
    """`terraform destroy` and its kind."""
    texts = [word.known for word in command.words[1:]]
    verbs = [text for text in texts if not text.startswith("-")]
    verb = next((v for v in verbs if v not in ("stack", "run-all")), "")
    joined = " ".join(texts)
    if verb in (
        "plan",
        "show",
        "validate",
        "output",
        "list",
        "status",
        "get",
        "history",
        "template",
        "lint",
        "diff",
        "synth",
        "preview",
    ):
        return
    if (
        verb
        in (
            "destroy",
            "uninstall",
            "delete",
            "down",
            "undefine",
            "del",
            "purge",
            "nuke",
            "rm",
            "remove",
        )
        or "-destroy" in texts
        or "--destroy" in texts
        or verbs[:2] in (["state", "rm"], ["workspace", "delete"], ["stack", "rm"])
    ):
        if not any(text in ("--dry-run", "--what-if", "--dry-run=client") for text in texts):
            findings.add("delete", "unknown", joined, wide=not _HERE.fullmatch(command.name))
    elif verb in ("apply", "up", "deploy") and any(
        text
        in (
            "-auto-approve",
            "--auto-approve",
            "--yes",
            "-y",
            "--skip-preview",
            "--require-approval=never",
            "--terragrunt-non-interactive",
        )
        for text in texts
    ):
        findings.add("write", "unknown", joined)
    elif command.name in (
        "virsh",
        "vagrant",
        "VBoxManage",
        "vboxmanage",
        "qm",
        "pct",
        "lxc",
        "incus",
        "multipass",
        "xl",
        "esxcli",
    ) and any(v in ("shutdown", "reboot", "suspend", "halt") for v in verbs):
        findings.add("process", "unknown", joined)


_ENDS = re.compile(
    r"(?:delete|destroy|purge|remove|rm|drop|wipe|reset|erase|terminate|flush|truncate|nuke|del)(?:[-:_]\w+)*|\w+:(?:drop|reset|destroy|"
    r"purge|delete|wipe)"
)
_WEIGHTY = re.compile(
    r"(?:database|db|cluster|namespace|project|org|organization|vault|bucket|stack|backup|stream|volume|app|instance|server|vm|dataset|"
    r"environment|tenant|account|"
    r"keyspace|snapshot|repo|repository|site|collection|index|topic|queue|realm|group|customer|item|archive|pg|kv|secret|pool|table|"
    r"schema|workspace)s?"
)
_LOCAL = frozenset(
    "git npm yarn pnpm pip conda poetry apt brew nmcli ip nmtui tmux screen flatpak snap docker"
    " code pyenv rbenv asdf mise rustup nvm fnm sdk ffmpeg wp jj hg svn fossil dvc bzr stow chezmoi"
    " yadm rcm".split()
)


def service(command: Command, findings: Findings) -> None:
    """Add what the verbs of a client of some service say: `tool noun delete NAME` deletes there
    what no build makes again."""
    texts = [word.known for word in command.words[1:] if not word.known.startswith("-")][:4]
    place = next((i for i, text in enumerate(texts[:3]) if _ENDS.fullmatch(text.lower())), None)
    if (
        place is None
        or command.name in _LOCAL
        or any(re.search(r"[/.~]", text) for text in texts[: place + 1])
    ):
        return
    nouns = [part for text in texts[: place + 2] for part in re.split(r"[-:_]", text.lower())]
    weighty = any(_WEIGHTY.fullmatch(noun) for noun in nouns) and len(texts) > 1
    findings.add("delete", "unknown", " ".join(texts), wide=weighty)


def _vault(command: Command, args: Args, findings: Findings) -> None:
    """Keepers of secrets: what they print is one."""
    texts = args.texts
    joined = " ".join(texts)
    if command.name == "vault":
        if (
            texts[:2] in (["kv", "get"], ["token", "create"])
            or texts[:1] in (["read"], ["unwrap"])
            or texts[:2] == ["print", "token"]
        ):
            findings.is_secret = True
        elif texts[:2] in (
            ["kv", "destroy"],
            ["kv", "delete"],
            ["secrets", "disable"],
            ["auth", "disable"],
            ["kv", "metadata"],
        ) or texts[:1] == ["delete"]:
            findings.add("delete", "unknown", joined, wide=texts[0] != "delete")
        elif texts[:2] == ["audit", "disable"]:
            findings.add("defence", "unknown", joined)
        return
    service(command, findings)
    findings.is_secret = True
    if command.name == "security" and re.search(
        r"dump-keychain|find-(?:generic|internet)-password|export\b", joined
    ):
        findings.add("read", "credentials", joined)
    elif command.name == "security" and re.search(
        r"delete-|add-trusted-cert|authorizationdb", joined
    ):
        findings.add("defence", "system", joined)


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(
        "docker podman nerdctl docker-compose podman-compose ctr buildah".split(), _docker
    ),
    "kubectl": _kubectl,
    "oc": _kubectl,
    "k": _kubectl,
    "k3s": _kubectl,
    "kubecolor": _kubectl,
    **dict.fromkeys(
        "aws gcloud az gsutil s3cmd mc s5cmd azcopy doctl linode-cli hcloud ibmcloud oci aliyun"
        " tccli scw openstack heroku flyctl fly vercel netlify railway render wrangler supabase"
        " firebase eb eksctl sam serverless sls stripe neonctl planetscale pscale b2 exo civo"
        " vultr-cli cf bx".split(),
        _cloud,
    ),
    **dict.fromkeys(
        "terraform tofu terragrunt pulumi cdk helm helmfile kustomize vagrant virsh vboxmanage qm"
        " pct lxc incus multipass cdktf kops kind minikube k3d nomad xl skaffold tilt argocd flux"
        " consul waypoint juju crossplane eksctl".split(),
        _plans,
    ),
    **dict.fromkeys(
        "vault security secret-tool pass gopass op bw lpass keyring keepassxc-cli kpcli chamber"
        " doppler infisical sops aws-vault".split(),
        _vault,
    ),
}
