"""The names of places that `paths` distinguishes: patterns over a lower-case path, in which `~` is
any home and `.` the project."""

TEMPORARY = tuple(
    """
    /tmp/ /var/tmp/ /private/tmp/ /private/var/tmp/ /var/folders/ /private/var/folders/ /dev/shm/
    /run/user/ /run/lock/ /c:/windows/temp/ /c:/temp/ /c:/tmp/
""".split()
)
SYSTEM = (
    *"""
    /bin/ /sbin/ /lib/ /lib32/ /lib64/ /libx32/ /usr/ /etc/ /boot/ /sys/ /proc/ /var/ /opt/
    /srv/ /run/ /snap/ /nix/ /efi/ /lost+found/ /system/ /library/ /applications/
    /private/etc/ /private/var/ /cores/ /c:/windows/ /c:/programdata/ /c:/boot/
    /c:/recovery/
""".split(),
    "/c:/program files/",
    "/c:/program files (x86)/",
)
MADE_AGAIN = tuple(
    """
    node_modules dist build _build target out output obj __pycache__ .pytest_cache .mypy_cache
    .ruff_cache .tox .nox .venv venv coverage htmlcov .nyc_output .next .nuxt .svelte-kit .output
    .turbo .parcel-cache .vite .angular .cache .gradle .eggs .hypothesis .terraform .dart_tool
    .ipynb_checkpoints bower_components cmake-build-debug cmake-build-release deriveddata .bundle
    _site storybook-static bazel-out bazel-bin .serverless .aws-sam test-results playwright-report
    .sass-cache .eslintcache .stack-work dist-newstyle elm-stuff tmp temp .tmp __tests_tmp__
""".split()
)
"""Folders that a build or an install makes again, wherever they lie outside the system."""
CACHES = tuple(
    f"~/{name}/"
    for name in """
    library/caches library/logs library/pnpm/store library/developer/xcode/deriveddata .npm/_cacache
    .npm/_npx .npm/_logs .cargo/registry .cargo/git go/pkg/mod .m2/repository .nuget/packages
    .local/share/pnpm/store .pnpm-store .pub-cache .bun/install/cache .yarn/cache .yarn/berry/cache
    .ivy2/cache .android/cache .composer/cache .hex/packages .cabal/packages .conda/pkgs
    anaconda3/pkgs miniconda3/pkgs .rustup/downloads .rustup/tmp .terraform.d/plugin-cache .kube/cache
    .cocoapods .expo .konan
""".split()
)
"""Folders in a home in which programs keep what they can fetch again."""
CREDENTIALS = (
    r"^/etc/(?:g?shadow|master\.passwd|security/(?:passwd|opasswd)|krb5\.keytab|ipsec\.secrets"
    r"|ppp/(?:chap|pap)-secrets)(?:[-~]|\.\w+)?$",
    r"^/etc/ssh/ssh_host_\w*key$",
    r"^/etc/(?:ssl/private|wireguard|openvpn/.*\.key|letsencrypt/(?:live|archive)|rancher"
    r"|vault)(?:/|$)",
    r"^/etc/(?:kubernetes/(?:admin|super-admin|kubelet|controller-manager|scheduler)\.conf"
    r"|kubernetes/pki/.*\.key|netplan/.*|"
    r"wpa_supplicant/.*\.conf)$",
    r"^/etc/networkmanager/system-connections(?:/|$)",
    r"^/etc/(?:sssd|mysql/debian\.cnf|postfix/sasl_passwd)",
    r"^/private/etc/master\.passwd$",
    r"^(?:/var)?/run/secrets(?:/|$)",
    r"^/var/lib/(?:kubelet/pki|rancher|sss/(?:db|secrets)|samba/private|letsencrypt)(?:/|$)",
    r"^/var/db/(?:dslocal|shadow)(?:/|$)",
    r"^/proc/(?:(?:[^/]+|\$\{?\w+\}?|\*)/(?:task/[^/]+/)?)?(?:environ|mem|maps\.mem)$",
    r"^/proc/k(?:core|mem)$",
    r"^/sys/fs/pstore(?:/|$)",
    r"^/c:/windows/(?:system32/config/(?:sam|system|security)|repair/sam|ntds/ntds\.dit)",
)
"""Files that hold keys because of where they lie."""
CREDENTIAL_NAMES = (
    r"(?:^|/)\.ssh(?:/?$|/\*|/(?!(?:known_hosts|config|authorized_keys|rc"
    r"|environment)(?:[^/]*)$)(?!.*\.pub$).+)",
    r"(?:^|/)id_(?:rsa|dsa|ecdsa|ed25519|ecdsa_sk|ed25519_sk|xmss)(?:[-_.](?!pub$)[\w.-]+)?$",
    r"(?:^|/)id_(?:\*|[a-z?]*\*)(?!.*\.pub$)",
    r"(?:^|/)\.aws(?:/?$|/\*|/credentials|/config$|/sso(?:/|$)|/cli/cache)",
    r"(?:^|/)\.kube(?:/?$|/\*|/config|/cache/oidc)",
    r"(?:^|/)\.(?:netrc|pgpass|my\.cnf|mylogin\.cnf|git-credentials|vault-token|s3cfg|boto|pypirc"
    r"|yarnrc\.yml|htpasswd|dockercfg|"
    r"terraformrc)$",
    r"(?:^|/)_netrc$",
    r"(?:^|/)\.(?:gnupg|password-store|azure|oci|ibmcloud|bluemix|doctl|chef"
    r"|vagrant\.d/insecure_private_key)(?:/|$)",
    r"(?:^|/)\.(?:docker/config\.json|cargo/credentials(?:\.toml)?|gem/credentials"
    r"|m2/settings(?:-security)?\.xml|"
    r"gradle/gradle\.properties)$",
    r"(?:^|/)\.config/(?:gcloud|gh/hosts\.yml|hub|glab-cli|rclone|op|doctl|heroku|netlify|vercel"
    r"|sops/age|age|composer/auth\.json|"
    r"pip/pip\.conf)(?:/|$)",
    r"(?:^|/)\.(?:terraform\.d/credentials\.tfrc\.json|composer/auth\.json|fly/config\.yml"
    r"|circleci/cli\.yml|kaggle/kaggle\.json|"
    r"databrickscfg)$",
    r"(?:^|/)\.(?:huggingface/token|cache/huggingface/token|openai|anthropic/.*key"
    r"|claude/\.credentials\.json|codex/auth\.json|"
    r"gemini/oauth_creds\.json)$",
    r"(?:^|/)\.(?:bitcoin|ethereum|litecoin|monero|electrum|config/solana/id\.json|dogecoin)(?:/"
    r"|$)",
    r"(?:^|/)wallet\.dat$",
    r"(?:^|/)(?:login data|cookies|key[34]\.db|logins\.json|cookies\.sqlite|web data|local state)$",
    r"\.(?:kdbx?|keychain(?:-db)?|agilekeychain|ppk|jks)$",
    r"(?:^|/)\.(?:mozilla|thunderbird|config/(?:google-chrome|chromium|bravesoftware"
    r"|microsoft-edge))(?:/|$)",
    (
        r"(?:^|/)library/(?:keychains|application"
        r" support/(?:google/chrome|firefox|bravesoftware|com\.apple\.tcc)|cookies)(?:/|$)"
    ),
    r"(?:^|/)\.local/share/(?:keyrings|kwalletd)(?:/|$)",
    r"(?:^|/)appdata/.*(?:/user data/|/microsoft/(?:credentials|protect)|/firefox/profiles)",
    r"(?:^|/)\.(?:bash|zsh|sh|psql|mysql|python|node_repl|sqlite|rediscli|mongo)_history$|(?:^"
    r"|/)\.(?:histfile|zhistory|ash_history)$",
    r"(?:^|/)(?:application_default_credentials|service[-_]account(?:[-_]key)?|gcp[-_]key"
    r"|client_secrets?)\.json$",
    r"(?:^|/)accesstokens\.json$",
    r"(?:^|/)msal_token_cache[^/]*$",
    r"(?:^|/)credentials\.(?:db|csv|xml)$",
)
"""Files that hold keys by their name; examples among tests do not count."""
CREDENTIAL_PARTS = (
    r"(?:^|/)\.env(?:$|\.(?!(?:example|sample|template|dist|defaults?|schema|test|ci)$)[\w.-]+$)",
    r"(?:^|/)\.npmrc$",
    r"(?:^|/)[\w.-]*(?:private|secret)[\w.-]*\.(?:pem|key|json|ya?ml|txt)$",
    r"(?:^|/)(?:server|client|tls|ca|privkey|domain)\.key$",
    r"(?:^|/)privkey\d*\.pem$",
    r"(?:^|/)\.(?:secrets?|credentials?)(?:/|$)",
    r"(?:^|/)(?:secrets?|credentials?|passwords?)\.(?:ya?ml|json|txt|toml|ini|env|csv)$",
    r"(?:^|/)wp-config\.php$",
    r"(?:^|/)[^/]*\.(?:p12|pfx)$",
    r"(?:^|/)(?:id_token|access_token|api_?key|token)(?:\.txt)?$",
)
"""What holds keys outside the project. Within it these are read every day, and only sending them
away counts."""
PROJECT_SECRETS = (
    *CREDENTIAL_NAMES,
    *CREDENTIAL_PARTS,
    r"(?:^|/)(?:settings|local_settings|database|secrets|master)\.(?:secret|key)$",
    r"(?:^|/)config/master\.key$",
    r"(?:^|/)terraform\.tfstate(?:\.backup)?$",
    r"\.tfvars$",
    r"(?:^|/)[^/]+\.(?:pem|key)$",
)
STARTUP = (
    r"^/etc/(?:profile|bash\.?bashrc|bashrc|zshrc|zshenv|zprofile|environment|rc\.local|rc\.conf"
    r"|inittab|crontab|anacrontab|shells|"
    r"modules)$",
    r"^/etc/(?:zsh|fish)(?:/|$)",
    r"^/etc/(?:profile\.d|init\.d|init|rc[0-9s]?\.d|cron\.(?:d|hourly|daily|weekly|monthly|allow"
    r"|deny)|update-motd\.d)(?:/|$)",
    r"^/etc/(?:systemd|xdg/(?:autostart|systemd)|udev/rules\.d|modules-load\.d|modprobe\.d"
    r"|ld\.so\.(?:preload|conf)|dbus-1/system\.d|"
    r"polkit-1)",
    r"^/etc/(?:pam\.d|security/pam_env\.conf|apt/apt\.conf\.d|dpkg/dpkg\.cfg\.d|logrotate\.d"
    r"|network/if-[a-z-]+\.d|"
    r"networkmanager/dispatcher\.d)(?:/|$)",
    r"^/etc/(?:dhcp/dhclient-[a-z]+-hooks\.d|acpi|x11/xsession\.d|grub\.d|kernel/postinst\.d"
    r"|initramfs-tools|binfmt\.d|local\.d|"
    r"launchd\.conf|ssh/sshrc)",
    r"^(?:/usr)?(?:/local)?/lib/(?:systemd|udev/rules\.d|modules-load\.d|binfmt\.d)(?:/|$)",
    r"^/(?:usr/lib|lib|run)/systemd/(?:system|user|system-generators)",
    r"^/usr/share/(?:autostart|dbus-1/(?:system-)?services)(?:/|$)",
    r"^/usr/local/etc/rc\.d(?:/|$)",
    r"^/var/spool/(?:cron|at|anacron)(?:/|$)",
    r"^/usr/lib/cron(?:/|$)",
    r"^/boot/grub",
    r"(?:^|/)library/(?:launch(?:agents|daemons)|startupitems)(?:/|$)",
    r"^/private/etc/(?:profile|zshrc|zprofile|bashrc|periodic|rc\.common|crontab)",
    r"^/etc/periodic(?:/|$)",
    r"^/etc/emond\.d",
    r"/start menu/programs/startup(?:/|$)",
    r"^/c:/windows/(?:tasks|system32/tasks)(?:/|$)",
)
AGENT_SETTINGS = r"""
\.claude/settings(?:\.local)?\.json \.claude/hooks/.* \.claude\.json \.mcp\.json
\.cursor/(?:mcp|hooks|cli|cli-config|permissions)\.json
\.codex/(?:config\.toml|hooks(?:\.json|/.*)) \.gemini/(?:settings\.json|hooks/.*|policies/.*)
\.qwen/settings\.json (?:\.opencode/)?opencode\.jsonc? \.config/opencode/config\.json
\.opencode/plugins?/.* \.roo/mcp\.json \.kilocode/mcp\.json \.windsurf/(?:mcp_config|hooks)\.json
\.codeium/windsurf/mcp_config\.json \.continue/config\.(?:json|ya?ml|ts) \.aider\.conf\.ya?ml
\.config/goose/(?:config|permission)\.ya?ml \.config/amp/settings\.json \.amp/settings\.json
\.kiro/settings/mcp\.json \.amazonq/(?:mcp|cli-agents/.*)\.json \.aws/amazonq/.*
\.copilot/(?:config|mcp-config)\.json \.vscode/mcp\.json \.idea/mcp\.json \.junie/mcp/mcp\.json
(?:cline|kilo|roo|mcp)_(?:mcp_)?settings\.json claude_desktop_config\.json \.crush\.json
crush\.json \.factory/(?:mcp|settings|config)\.json \.trae/mcp\.json
(?:code(?:[ -]+(?:oss|insiders))?|cursor|vscodium|windsurf|trae)/user/settings\.json
\.grok/(?:user-)?settings\.json \.augment/settings\.json managed-settings\.json
"""
"""Settings of agents, of a project or a home: which commands they may run unasked, which programs
and servers they start."""
AGENT_MEMORY = r"""
\.claude/claude\.md$ \.claude/(?:commands|agents|skills|rules|output-styles)/
\.codex/(?:agents|instructions)(?:\.override)?\.md$ \.codex/(?:prompts|rules|skills)/
\.gemini/gemini\.md$ \.gemini/commands/ \.qwen/qwen\.md$
\.config/opencode/(?:agents\.md$|agents?/|commands?/|plugins?/) \.config/goose/\.goosehints$
\.cursor/rules/ \.codeium/windsurf/memories/ \.roo/rules \.config/(?:agents|amp)/agents\.md$
\.agents\.md$ \.copilot/agents/ \.kiro/steering/ \.continue/rules/
\.factory/(?:agents\.md$|droids/|commands/)
"""
"""What agents read at the start of each task, in whatever project: in a home."""
STARTUP_NAMES = (
    r"^~/\.(?:bashrc|bash_profile|bash_login|bash_logout|bash_aliases|profile|zshrc|zshenv"
    r"|zprofile|zlogin|zlogout|kshrc|cshrc|tcshrc|"
    r"login|logout|mkshrc)$",
    r"^~/\.(?:xinitrc|xprofile|xsession|xsessionrc|pam_environment|forward|procmailrc|inputrc)$",
    r"^~/\.config/(?:fish(?!/completions)|autostart|systemd|environment\.d|nushell)(?:/|$)",
    r"^~/\.(?:local/share/systemd|kde/autostart|config/(?:i3|sway|hypr|openbox|upstart)"
    r"|oh-my-zsh/custom)(?:/|$)",
    r"^~/\.config/autostart",
    r"^~/\.bashrc\.d(?:/|$)",
    r"(?:^|/)\.ssh/(?:authorized_keys\d?|rc|environment|config)$",
    r"(?:^|/)(?:sitecustomize|usercustomize)\.py$",
    r"/(?:site|dist)-packages/[^/]*\.pth$",
    r"(?:^|/)(?:release_agent|uevent_helper)$",
    r"(?:^|/)\.git/(?:hooks(?:/(?![^/]*\.sample$)[^/]*)?|config)$",
    r"^~/\.(?:config/git/hooks|git-templates?|git_template)(?:/|$)",
    r"(?:^|/)(?:" + "|".join(AGENT_SETTINGS.split()) + ")$",
    r"^~/(?:" + "|".join(AGENT_MEMORY.split()) + ")",
    r"^~/\.(?:vimrc|config/nvim/init\.(?:vim|lua))$",
    r"^~/\.(?:gdbinit|lldbinit|pythonstartup|pythonrc(?:\.py)?|irbrc|rprofile|npmrc"
    r"|pip/pip\.conf)$",
    r"(?:^|/)\.ipython/profile_[^/]*/startup(?:/|$)",
    r"/powershell/[^/]*profile\.ps1$",
    r"(?:^|/)\.husky/_/",
    r"^~/\.(?:tmux\.conf|screenrc|wgetrc|curlrc|gitconfig)$",
)
