"""Containers, clusters, clouds and virtual machines: what is deleted there, and containers that do
not isolate."""

import re

from policy.effects.shell.command import Command, Word
from policy.effects.shell.commands.args import Args
from policy.effects.shell.commands.file_commands import is_remote
from policy.effects.shell.commands.findings import Findings, Handler
from policy.effects.shell.commands.rule_table import rows
from policy.effects.stored import MAX_CHARS, handed_over, mounted

_OF_CLOUDS = re.compile(
    r"(?:^|\.)(?:amazonaws\.com|ecr\.aws|azurecr\.io|pkg\.dev|gcr\.io|ocir\.io|icr\.io"
    r"|digitalocean\.com|gitlab\.com|elastic\.co|nvcr\.io|"
    r"redhat\.(?:com|io)|lscr\.io|cgr\.dev|scaleway\.com|suse\.com|oracle\.com"
    r"|fedoraproject\.org|opensuse\.org|k8s\.io)(?::\d+)?\Z"
)
"""Registries where one needs an account to put images."""


def _container(command: Command, args: Args, findings: Findings) -> None:
    """`docker run`: what it hands over, and who made an image that gets it."""
    handed = " ".join(word.known for word in (*args.all("-v|--volume"), *args.all("--mount")))
    effects = mounted(
        handed, lambda path: findings.place(Word(path)), by=command.name, is_applied=True
    )
    findings.effects += effects
    image = next(iter(args.texts[1 + args.starts("container") :]), "")
    registry = re.match(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?(?=/)", image)
    if (
        re.search(r"(?:^| |\b(?:source|src)=)[/~.$](?!\S*(?:[:,]ro\b|readonly))", handed)
        and registry is not None
        and not _OF_CLOUDS.search(registry[0])
        and findings.scope_of_host(Word(registry[0])) == "other"
    ):
        findings.add("execute", "other", image)


def _manifests(command: Command, args: Args, findings: Findings) -> None:
    for word in args.all("-f|--filename|-k"):
        if "://" in word.known:
            findings.add("execute", findings.scope_of_host(word), word.known)
        elif word.known != "-":
            findings.read(word)
    _described(command, findings)


def _described(command: Command, findings: Findings) -> None:
    """A description of containers that it reads from its input."""
    if command.stdin.kind == "text":
        findings.effects += handed_over(command.stdin.text[:MAX_CHARS], is_applied=True)
        if len(command.stdin.text) > MAX_CHARS:
            findings.unsure.append("size: a description of containers longer than is looked at")


def _compose(command: Command, args: Args, findings: Findings) -> None:
    if any(word.known in ("-", "/dev/stdin") for word in args.all("-f|--file")):
        _described(command, findings)


_GONE = re.compile(
    r"(?:delete|destroy|terminate|remove|purge|rb|deregister|drop|empty|wipe|flush|detach-and-delete|release|schedule-key-deletion|disable-key|erase|nuke|uninstall|reset)(?:[-:].*)?|.*[-:](?:delete|destroy|purge)"
)
_SMALL = re.compile(
    r"tags?|labels?|alias(?:es)?|message|delete-object|item|record|dashboard|alarms?|log-stream"
    r"|cached?|session|version|"
    r"draft|comment|env|config|unset|remove-tags"
)


def _gone(command: Command, args: Args, findings: Findings) -> None:
    """What is deleted: much, unless the words before the verb name something small."""
    verbs = args.texts[:5]
    first = next(i for i, verb in enumerate(verbs) if _GONE.fullmatch(verb))
    nouns = verbs[first] if "-" in verbs[first] else " ".join(verbs[: first + 1])
    joined = command.line
    findings.add("delete", "unknown", joined, wide=not _SMALL.search(nouns))


_PUTS = frozenset("cp sync mv put upload rsync copy mirror".split())
_GETS = frozenset("cp sync mv get download".split())


def _buckets(command: Command, args: Args, findings: Findings) -> None:
    """What is put into an object store, and got from there."""
    paths = [
        word for word in command.words[1:] if word.text is None or re.search("[/.]", word.text)
    ]
    local = [w for w in paths if not re.match("-|.*://", w.known) and not is_remote(w)]
    verbs = {text for text in args.texts[:3] if "/" not in text}
    if local and verbs & _PUTS and command.words[-1] not in local:
        findings.read(*local)
        findings.sends.append(("unknown", command.line, True))
    elif local and verbs & _GETS:
        findings.write(*local[-1:])


_SERVICES = rows(
    r"""
WORD := [^\s/.~]+
NOUN := (?i)(?:[^-:_]*[-:_])*<WEIGHTY>(?:[-:_].*)?
BROAD := --recursive|-r|-R|--delete|--force|-d|-rf|--dangerous|--include.*|--incomplete|-m
ENDS := (?:(?:delete|destroy|purge|remove|rm|drop|wipe|reset|erase|terminate|flush|truncate|nuke
        |del)(?:[-:_]\w+)*|[\w]+:(?:drop|reset|destroy|purge|delete|wipe))
WEIGHTY := (?:(?:database|db|cluster|namespace|project|org|organization|vault|bucket|stack|backup
        |stream|volume|app|instance|server|vm|dataset|environment|tenant|account|keyspace|snapshot
        |repo|repository|site|collection|index|topic|queue|realm|group|customer|item|archive|pg|kv
        |secret|pool|table|schema|workspace)s?)
LOCAL := git|npm|yarn|pnpm|pip|conda|poetry|apt|brew|nmcli|ip|nmtui|tmux|screen|flatpak|snap|docker
        |code|pyenv|rbenv|asdf|mise|rustup|nvm|fnm|sdk|ffmpeg|wp|jj|hg|svn|fossil|dvc|bzr|stow
        |chezmoi|yadm|rcm

buckets
    + 1-3=rb|del|rm|remove|rmb|delete
        -> delete unknown {all} wide:words~<BROAD> wide:1-3=rb|delete wide:1-~(?s).*://[^/]+/?\*?
    + 1-3=sync|rsync|mirror words=--delete|--delete-removed|-d|--remove|--delete-destination=true
        -> delete unknown {all} wide
    + line~'--acl[= ]public|public-read|allUsers|acl ch .*AllUsers|anonymous set|--make-public'
        -> defence unknown {line}
    -> call buckets
service
    name=<LOCAL> -> nothing
    1~(?i)<ENDS> -> delete unknown {1-4} wide:1-2~<NOUN>
    1~<WORD> 2~(?i)<ENDS> -> delete unknown {1-4} wide:1-3~<NOUN>
    1~<WORD> 2~<WORD> 3~(?i)<ENDS> -> delete unknown {1-4} wide:1-4~<NOUN>
""",
    buckets=_buckets,
)
service = _SERVICES["service"]
"""What the verbs of a client of some service say: `tool noun delete NAME` deletes there what no
build makes again."""


HANDLERS: dict[str, Handler] = rows(
    r"""
GRANTED := (?:policy\w*|access-key|login-profile|role|user-to-group|policy-binding|acl|key-policy
        |assume-role-policy|grant|public-access-block)
GONE := (?:delete|destroy|terminate|remove|purge|rb|deregister|drop|empty|wipe|flush
        |detach-and-delete|release|schedule-key-deletion|disable-key|erase|nuke|uninstall
        |reset)(?:[-:].*)?|.*[-:](?:delete|destroy|purge)
KEEPS := (?:[^-:=]*[-:=]){0,4}(?:secrets?|env|envs|setenv|auth|login|config|configure|secretsmanager
        |ssm|keyvault|kms|iam|vars?|variables?|parameters?|credentials?|get|list|ls|describe|show
        |download|pull)(?:[-:=].*)?
RUNS := '^(?:<NOUN> )?(?:run|create|exec)(?: |$)|^(?:container )?start(?: |$)'
NOUN := (?:container|image|volume|network|system|builder|compose|stack|service|secret|swarm|node
        |buildx|pod|machine|context)
HERE := (?:kind|k3d|minikube|docker-desktop|docker-for-desktop|rancher-desktop|colima|orbstack
        |microk8s)
PLANS := '^(?:(?:stack|run-all) )*(?:plan|show|validate|output|list|status|get|history|template|lint
        |diff|synth|preview)(?: |$)'
ENDS := '^(?:(?:stack|run-all) )*(?:destroy|uninstall|delete|down|undefine|del|purge|nuke|rm
        |remove)(?: |$)|^(?:state rm|workspace delete)(?: |$)'
APPLIES := '^(?:(?:stack|run-all) )*(?:apply|up|deploy)(?: |$)'
BROAD := (?:ns|namespaces?|pv|pvc|persistentvolume(?:claim)?s?|nodes?|no|crds?
        |customresourcedefinitions?|all|deploy(?:ment)?s?|statefulsets?|sts|storageclass\w*|sc
        |secrets?|clusters?|ingress\w*|svc|services?|configmaps?|cm|daemonsets?|ds|clusterrole\w*)
GUARDS := (?:networkpolic\w+|netpol|psp|podsecuritypolic\w+|validatingwebhook\w*|mutatingwebhook\w*
        |validatingadmission\w*|podsecurity\w*|events?)
BEFORE := (?is)(?:[^/,]*,)*
BEHIND := (?:,[^/]*)?(?:/.*)?

docker podman nerdctl docker-compose podman-compose ctr buildah : -v --volume --mount --name -e --env --env-file -p
        --publish -w --workdir -u --user --network --net --entrypoint -f --file --filter -t --tag --platform --pid --ipc
        --uts --userns --cap-add --security-opt --device -m --memory --cpus --gpus --restart --hostname -h --label -l
        --add-host --build-arg --target -H --host --context -c --log-driver --log-opt --tmpfs --ulimit --dns --ip --link
        --volumes-from --cidfile --shm-size --format -n --tail --since --project-name --profile --secret --ssh
        --cgroupns --runtime --stop-signal --group-add --cache-from --cache-to --output -o
    + text~<RUNS> --privileged -> privilege root --privileged
    + text~<RUNS> --pid=host -> privilege root --pid=host
    + text~<RUNS>
        --cap-add=(?i).*(?:all|sys_admin|sys_ptrace|sys_module|dac_|sys_rawio|setuid|bpf).* ->
        privilege root --cap-add
    + text~<RUNS> --security-opt=(?i).*(?:unconfined|disable|no-new-privileges[:=]false).* ->
        defence system --security-opt
    + text~<RUNS> --device=/dev/(?:sd|nvme|vd|xvd|mem|kmem|mapper|dm-|hd|disk).* -> privilege device
        --device
    + text~<RUNS> -> call container
    + -f|--file=-|/dev/stdin -> call compose
    text~'^system prune(?: |$)' words=--volumes|--volumes=true -> delete unknown {} wide
    text~'^system prune(?: |$)' -a|--all -> delete temp {} wide
    text~'^volume (?:rm|prune|remove)(?: |$)' -> delete unknown {} wide
    text~'^compose (?:down|rm)(?: |$)' words=-v|--volumes|-fv|-vf -> delete unknown {} wide
    text~'^(?:down|rm)(?: |$)' words=-v|--volumes|-fv|-vf name=docker-compose|podman-compose
        -> delete unknown compose {} wide
    text~'^(?:stack|swarm|service|secret|machine) (?:rm|remove|leave|down)(?: |$)'
        -> delete unknown {} wide
    text~'^(?:<NOUN> )?(?:rm|rmi|kill|stop)(?: |$)' @printed 1-2=rm -v|--volumes|-f|--force ->
        delete unknown {} wide
    text~'^(?:<NOUN> )?(?:rm|rmi|kill|stop)(?: |$)' @printed -> process unknown {} wide
    text~'^(?:<NOUN> )?(?:push|save|export|login|pull)(?: |$)' -> network listed {2}
    text~'^(?:<NOUN> )?cp(?: |$)' -> reads 2-:(?![\w.-]+:)(.*)
kubectl oc k k3s kubecolor : -n --namespace -f --filename -l --selector -o --output --context --kubeconfig -c --container --cluster -k
        --image --overrides --field-selector --grace-period --timeout -p --patch --type --replicas --as --token -s --server --tail
        --since --from-literal --clusterrole --user --serviceaccount --cascade
    --dry-run !--dry-run=none|false -> nothing
    1=delete --context=(?s)<HERE>(?:-.*)? 2~<BEFORE><GUARDS><BEHIND> -> defence unknown {}
    1=delete 2~<BEFORE><GUARDS><BEHIND>
        -> defence unknown {} wide:--all|-A|--all-namespaces wide:2~<BEFORE><BROAD><BEHIND> wide:-l|--selector=(?s).*
    1=delete --context=(?s)<HERE>(?:-.*)? -> delete unknown {}
    1=delete
        -> delete unknown {} wide:--all|-A|--all-namespaces wide:2~<BEFORE><BROAD><BEHIND> wide:-l|--selector=(?s).*
    1=drain -> process system {} wide
    1=scale --replicas=0 -> process system {} wide
    1=get 2~<BEFORE>secrets?<BEHIND> -o|--output=(?s).* !-o|--output=name|wide
        -> prints-secret ; read credentials {}
    1=config 2~(?i)view --raw|--flatten -> prints-secret ; read credentials {}
    1=create 2=token -> prints-secret ; prints-token
    1=create 2~(?is)[^/]*clusterrolebinding.* -> privilege unknown {}
    1=run words=--privileged|--privileged=true -> privilege root {}
    1=patch|set -p|--patch=(?s).*(?:privileged\W+true|hostPID|hostIPC|hostNetwork|hostPath).*
        -> privilege root {}
    1=run|debug --overrides|--profile=(?s).*(?:privileged|hostPID|hostPath).* -> privilege root {}
    1=debug 2~(?s)node/.* -> privilege root {}
    1=apply|create|replace -> call manifests
aws gcloud az gsutil s3cmd mc s5cmd azcopy doctl linode-cli hcloud ibmcloud oci aliyun tccli scw openstack heroku flyctl
        fly vercel netlify railway render wrangler supabase firebase eb eksctl sam serverless sls stripe neonctl
        planetscale pscale b2 exo civo vultr-cli cf bx : --profile --region --output --query --project --format
        --subscription -g -n -o --endpoint-url --zone
    words=--dry-run|--dryrun|--help|--what-if -> nothing
    last=help -> nothing
    + -> network listed {1-2}
    + !1-2~<KEEPS> !words~(?=-)<KEEPS> -> send unknown {line} account
    + !name=aws|gcloud|az -> call service
    1=s3|storage|cp|rsync|mv|rm -> call buckets
    name=gsutil|s3cmd|mc|s5cmd|azcopy -> call buckets
    + 1=configure 2=get line~secret|token -> prints-secret ; read credentials {line}
    1-5~stop-logging|delete-trail|delete-detector|disable-security-hub|delete-flow-logs|stop-configuration-recorder|update-trail
        -> defence unknown {line}
    1-5~delete-configuration-recorder|disable-\w*guardduty\w*|delete-log-group|delete-web-acl|deactivate-mfa-device|disable-macie
        -> defence unknown {line}
    1-5~delete-public-access-block|disable-alarm-actions|delete-bucket-policy|put-bucket-logging|delete-retention-policy|delete-alarms
        -> defence unknown {line}
    1-5~disassociate-\w*|delete-event-data-store|delete-members -> defence unknown {line}
    1=logging 2-5=delete -> defence unknown {line}
    line~'--no-(?:enable-logging|block-public)|--public-network-access enabled'
        -> defence unknown {line}
    1-5~get-secret-value|batch-get-secret-value|get-password-data
        -> prints-secret ; read credentials {line}
    1-5~get-session-token|assume-role(?:-with-.*)?|get-federation-token|export-credentials
        -> prints-secret ; prints-token
    1-5~print-access-token|print-identity-token|get-access-token|get-authorization-token|get-login-password
        -> prints-secret ; prints-token
    1-5=get-credentials words~--?f(?:ile)?(?:=-)? words~-|--file=-
        -> prints-secret ; read credentials {line}
    1=container|aks 2-5=get-credentials -> nothing
    1-5~get-credentials|list-keys|show-connection-string|generate-sas|get-credential-report|access-secret-version
        -> prints-secret ; read credentials {line}
    1=secrets 2-5=access -> prints-secret ; read credentials {line}
    words=--with-decryption -> prints-secret ; read credentials {line}
    1=keyvault 2=secret 3-5=show -> prints-secret ; read credentials {line}
    1-5~(?:attach|put|create|add|update|set)-(?:user|role|group|iam|org|bucket|resource|key|login|access)?-?<GRANTED>
        -> privilege unknown {line}
    1-5~add-iam-policy-binding|set-iam-policy|create-service-specific-credential|create-user|create-access-key|create-login-profile
        -> privilege unknown {line}
    1-5~add-user-to-group|create-grant|add-permission|update-assume-role-policy
        -> privilege unknown {line}
    1=role 2=assignment 3=create -> privilege unknown {line}
    1=ad 2=sp 3=create-for-rbac -> privilege unknown {line}
    1=iam 2=service-accounts 3-5=create -> privilege unknown {line}
    1-5~<GONE> -> call gone
    1-5=stop-instances|reboot-instances|deallocate -> process unknown {line}
    line~'authorize-security-group-ingress|firewall-rules create|nsg rule create'
        line~0\.0\.0\.0/0|::/0|\* -> defence unknown {line}
terraform tofu terragrunt pulumi cdk helm helmfile kustomize vagrant virsh vboxmanage qm pct lxc incus multipass cdktf kops kind minikube
        k3d nomad xl skaffold tilt argocd flux consul waypoint juju crossplane eksctl
    text~<PLANS> -> nothing
    + name=helm|helmfile line~'(?:privileged|hostPID|hostIPC|hostNetwork)=true'
        -> privilege root {line}
    text~<ENDS> words=--dry-run|--what-if|--dry-run=client -> nothing
    words=-destroy|--destroy words=--dry-run|--what-if|--dry-run=client -> nothing
    text~<ENDS> -> delete unknown {line} wide:!name~<HERE>
    words=-destroy|--destroy -> delete unknown {line} wide:!name~<HERE>
    text~<APPLIES>
        words=-auto-approve|--auto-approve|--yes|-y|--skip-preview|--require-approval=never|--terragrunt-non-interactive
        -> write unknown {line}
    name=virsh|vagrant|vboxmanage|qm|pct|lxc|incus|multipass|xl|esxcli
        1-=shutdown|reboot|suspend|halt -> process unknown {line}
vault
    1=kv 2=get -> prints-secret
    1=token 2=create -> prints-secret
    1=print 2=token -> prints-secret
    1=read|unwrap -> prints-secret
    1=kv 2=destroy|delete|metadata -> delete unknown {} wide
    1=secrets|auth 2=disable -> delete unknown {} wide
    1=delete -> delete unknown {}
    1=audit 2=disable -> defence unknown {}
security secret-tool pass gopass op bw lpass keyring keepassxc-cli kpcli chamber doppler infisical sops aws-vault
    + -> call service ; prints-secret
    name=security text~dump-keychain|find-(?:generic|internet)-password|export\b
        -> read credentials {}
    name=security text~delete-|add-trusted-cert|authorizationdb -> defence system {}
""",
    container=_container,
    manifests=_manifests,
    compose=_compose,
    gone=_gone,
    buckets=_SERVICES["buckets"],
    service=service,
)
