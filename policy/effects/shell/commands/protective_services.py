"""Names of services, agents and tools that protect a machine or keep its traces.

The attack: to stop, kill or remove a guard before anything else, as `systemctl stop auditd`
(`tests/unit/test_shell_effects.py`). No labelled call does.
"""

import re

_GUARDS = re.compile(
    r"(?:.*[-_/])?(?:auditd?|auditctl|audisp\w*|r?syslogd?|syslog-ng|rsyslog|journald"
    r"|systemd-journald|systemd-journal\w*|logrotate|"
    r"firewalld?|ufw|iptables|ip6tables|nftables|ebtables|"
    r"ipset|shorewall|csf|apparmor|selinux\w*|setroubleshoot\w*|fail2ban\w*|denyhosts|sshguard"
    r"|crowdsec\w*|ossec\w*|wazuh\w*|aide|"
    r"tripwire|samhain|rkhunter|chkrootkit|"
    r"clamav\w*|clamd|freshclam|clamonacc|falcon\w*|crowdstrike|cbagentd|cbdaemon|carbonblack"
    r"|sentinel(?:one|d|agent|ctl)|sentinelone|"
    r"s1-agent|mdatp|"
    r"microsoft-mdatp|wdavdaemon|osquery\w*|sysmon\w*|falco\w*|tetragon|tracee|cilium"
    r"|elastic-agent|elastic-endpoint|filebeat|auditbeat|"
    r"metricbeat|packetbeat|"
    r"fluentd?|fluent-bit|td-agent\w*|vector|promtail|splunk\w*|splunkforwarder|nxlog|ds_agent|dsa"
    r"|qualys\w*|nessus\w*|sophos\w*|"
    r"sav-protect|savd|eset\w*|esets|"
    r"symantec|symcfgd|sisidsdaemon|mcafee\w*|xagt|cortex|traps_pmd|cybereason\w*|bitdefender"
    r"|bdsec\w*|aegis|aliyun\w*|yunjing\w*|"
    r"ydservice|barad_agent|snort|suricata|zeek|"
    r"defender|windefend|mpssvc|wscsvc|wuauserv|eventlog|sense|amazon-ssm-agent"
    r"|amazon-cloudwatch-agent|google-osconfig-agent|"
    r"datadog-agent|dd-agent|newrelic-infra|"
    r"node_exporter|collectd|zabbix-agent\w*|prometheus|psacct|acct|usbguard|polkit|apport"
    r"|littlesnitch|xprotect|sysdig\w*|teleport|"
    r"opensnitchd?|portsentry|unattended-upgrades)"
    r"(?:[-_](?:sensor|agent|daemon|server|client|service|kernel|desktop|utils|common"
    r"|plugins?))*(?:\.(?:service|socket|timer|target|exe))?"
)


def is_guard(name: str) -> bool:
    """Is this the name of a service, program or package that guards or logs?"""
    return len(name) < 100 and _GUARDS.fullmatch(name.lower()) is not None
