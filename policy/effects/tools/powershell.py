"""PowerShell and cmd.exe: neither is read as text for a POSIX shell."""


def powershell_to_shell(text: str) -> str:
    """Return what a text of PowerShell does, as text for a shell."""
    return "powershell"


def cmd_to_shell(text: str) -> str:
    """Return what a text of cmd.exe does, as text for a shell."""
    return "cmd"
