"""The base of all models, and the tables of tool calls that wait for people."""

from datetime import datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

from sqlalchemy import DateTime, ForeignKey, Index, LargeBinary, Text, func, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The metadata that migrations are compared with."""

    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text,
        bytes: LargeBinary,
        datetime: DateTime(timezone=True),
    }


class ApprovalRow(Base):
    """A tool call that waits for people: what they are asked, and what became of it. Only functions
    of the database write here (`alembic/versions/r0003_approvals.sql`).

    `binding` is the SHA-256 of all that an approval is bound to, `binding_without_policy` of all
    but the policies' revision. `outcome` and `used_by_call` are set once.
    """

    __tablename__ = "approvals"
    __table_args__ = (
        Index("approvals_binding_idx", "binding_without_policy", "at"),
        Index("approvals_open_idx", "key_id", "at", postgresql_where=text("outcome IS NULL")),
        Index("approvals_at_idx", "at", "approval_id"),
        Index("approvals_call_idx", "call_id"),
    )

    approval_id: Mapped[str] = mapped_column(primary_key=True)
    call_id: Mapped[UUID]
    block: Mapped[int]
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime]
    use_within: Mapped[timedelta]
    deny_for: Mapped[timedelta]
    binding: Mapped[bytes]
    binding_without_policy: Mapped[bytes]
    key: Mapped[str]
    key_id: Mapped[str]
    session: Mapped[str]
    policy: Mapped[str]
    revision: Mapped[str]
    tool: Mapped[str]
    server: Mapped[str]
    executor: Mapped[str]
    arguments: Mapped[bytes]
    rule: Mapped[str]
    why: Mapped[str]
    need: Mapped[int]
    approvers: Mapped[list[str]] = mapped_column(ARRAY(Text))
    outcome: Mapped[str | None]
    decided_at: Mapped[datetime | None]
    decided_by: Mapped[str] = mapped_column(server_default="")
    note: Mapped[str] = mapped_column(server_default="")
    edited: Mapped[bytes | None]
    used_by_call: Mapped[UUID | None]
    used_by_block: Mapped[int | None]


class ApprovalAsk(Base):
    """Which call waits for which approval: its own, or that of an identical call before it. None:
    its key has too many open ones."""

    __tablename__ = "approval_asks"
    __table_args__ = (Index("approval_asks_approval_idx", "approval_id"),)

    call_id: Mapped[UUID] = mapped_column(primary_key=True)
    block: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    approval_id: Mapped[str | None] = mapped_column(
        ForeignKey("approvals.approval_id", ondelete="CASCADE")
    )
    is_policy_changed: Mapped[bool]


class ApprovalVote(Base):
    """What an approver said of such a call, once."""

    __tablename__ = "approval_votes"

    approval_id: Mapped[str] = mapped_column(
        ForeignKey("approvals.approval_id", ondelete="CASCADE"), primary_key=True
    )
    voter_id: Mapped[str] = mapped_column(primary_key=True)
    voter: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.now())
    vote: Mapped[str]
    note: Mapped[str]
    edited: Mapped[bytes | None]
