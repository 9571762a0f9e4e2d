"""What can stop a command, each with its exit code. The message is one sentence that says what to
do.

StartError            cannot start                               exit 1
  SettingsError       the settings or the configuration is wrong exit 2
  Unavailable         Redis or Postgres is away                  exit 3
  NotFit              they are there and must not be used so     exit 4
  Busy                the port or the data directory is taken    exit 5
"""

from typing import ClassVar


class StartError(Exception):
    """A command cannot go on; the message is for the person who called it."""

    exit_code: ClassVar[int] = 1


class SettingsError(StartError):
    """The settings, the configuration file or an argument is wrong."""

    exit_code = 2


class Unavailable(StartError):
    """Redis or Postgres does not answer."""

    exit_code = 3


class NotFit(StartError):
    """A Redis without AOF or with eviction, an unmigrated database."""

    exit_code = 4


class Busy(StartError):
    """The port or the data directory belongs to someone else at the moment."""

    exit_code = 5
