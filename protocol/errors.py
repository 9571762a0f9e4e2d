"""The one tree of errors. Each has a stable `code` and an `http_status`.

    PipelineError
      ProtocolError   LocalProtocolError (ours) | RemoteProtocolError (upstream's) UpstreamError
      UpstreamTimeout | UpstreamUnreachable | UpstreamTokenMissing StreamError     StreamTimeout |
      StreamConnectionLost | StreamProtocolError PolicyError     PolicyFailed | JudgeUnavailable
      AuditError      AuditUnavailable (AuditTooSlow) | OtherDatabase | OldPrimary RequestError
      InvalidRequest | Unauthenticated | Forbidden | NotFound | Conflict | TooLarge | TooSlow |
      RateLimited | Overloaded

A block is a verdict, not an error. Messages are for the client: no keys, no prompts, no paths.
"""

from typing import ClassVar


class TookTooLong(BaseException):
    """A step of a call burned more CPU than it may. Raised from outside into whatever runs; only
    who began the step catches it."""


class PipelineError(Exception):
    """Anything that ends a call. `code` is stable and may be matched by programs; `param` names the
    request field at fault."""

    code: ClassVar[str] = "internal_error"
    http_status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        self.error_code = code or self.code
        self.headers: tuple[tuple[bytes, bytes], ...] = ()
        """Of the answer, besides those of every error."""


class ProtocolError(PipelineError):
    """Bytes or steps that the dialect does not allow."""

    code = "protocol_error"
    http_status = 502


class LocalProtocolError(ProtocolError):
    """We were about to do what the dialect does not allow: a bug of ours."""

    code = "local_protocol_error"
    http_status = 500


class RemoteProtocolError(ProtocolError):
    """Upstream sent what the dialect does not allow."""

    code = "upstream_protocol_error"


class UpstreamError(PipelineError):
    """Upstream did not answer as asked."""

    code = "upstream_error"
    http_status = 502


class UpstreamTimeout(UpstreamError):
    """Upstream was silent for too long."""

    code = "upstream_timeout"
    http_status = 504


class UpstreamUnreachable(UpstreamError):
    """No connection to upstream, or it broke."""

    code = "upstream_unreachable"


class UpstreamTokenMissing(UpstreamError):
    """What a request is signed or let in with cannot be had, so nothing was sent. The message is
    the operator's, and holds no secret."""

    code = "upstream_token"


class StreamError(PipelineError):
    """The path through Redis failed for this call."""

    code = "stream_error"
    http_status = 503


class StreamTimeout(StreamError):
    """No output and no keepalive within the activity timeout."""

    code = "stream_timeout"
    http_status = 504


class StreamConnectionLost(StreamError):
    """Redis, the gateway or the worker went away for good."""

    code = "stream_connection_lost"


class StreamProtocolError(StreamError):
    """Numbers on a stream do not follow each other, or a replay gave other outputs than the first
    run."""

    code = "stream_protocol_error"
    http_status = 500


class PolicyError(PipelineError):
    """A policy could not decide."""

    code = "policy_error"


class PolicyFailed(PolicyError):
    """A policy raised, returned nonsense or could not be loaded."""

    code = "policy_failed"


class JudgeUnavailable(PolicyError):
    """A judge did not answer in time or not as asked."""

    code = "judge_unavailable"


class AuditError(PipelineError):
    """The record could not be kept."""

    code = "audit_error"
    http_status = 503


class AuditUnavailable(AuditError):
    """The backlog of the record is full, or a commit did not come in time."""

    code = "audit_unavailable"


class AuditTooSlow(AuditUnavailable):
    """It took too long: a smaller batch may succeed."""


class OtherDatabase(AuditError):
    """What Redis holds belongs into another database than this process's."""

    code = "other_database"


class OldPrimary(AuditError):
    """This Redis is an old primary: another one holds the calls of this process's database."""

    code = "old_primary"


class RequestError(PipelineError):
    """The client's request cannot be taken."""

    code = "invalid_request"
    http_status = 400


class InvalidRequest(RequestError):
    """The request is wrong; the message says where."""


class OtherDialect(InvalidRequest):
    """The body is one of another dialect than that of its path."""


class Unauthenticated(RequestError):
    """No key, or not one of ours: a sentence for each of the two, the same whatever is wrong with
    the key."""

    code = "invalid_api_key"
    http_status = 401


class Forbidden(RequestError):
    """The key may not do this."""

    code = "forbidden"
    http_status = 403


class NotFound(RequestError):
    """No such path, model, policy or call."""

    code = "not_found"
    http_status = 404


class MethodNotAllowed(RequestError):
    """The path is served with another method; `param` has those that are."""

    code = "method_not_allowed"
    http_status = 405


class Conflict(RequestError):
    """What is asked for does not go with what somebody else did; the message says what to ask for
    instead."""

    code = "conflict"
    http_status = 409


class UnsupportedEncoding(RequestError):
    """The body is compressed in a way that is not taken (RFC 9110, 15.5.16)."""

    code = "unsupported_encoding"
    http_status = 415


class TooLarge(RequestError):
    """The body is past the limit."""

    code = "request_too_large"
    http_status = 413


class TooSlow(RequestError):
    """The body did not come in time."""

    code = "body_timeout"
    http_status = 408


class RateLimited(RequestError):
    """This key has all that it may have at once; the message names how much that is."""

    code = "key_limit"
    http_status = 429


KEY_MEMORY_S = 2


def key_memory() -> RateLimited:
    """Return the error for a key that has used its share of Redis' memory."""
    held = "this key has its share of the memory for requests that are open or not yet on record"
    return RateLimited(
        f"{held}; try again in {KEY_MEMORY_S} seconds",
        code="key_memory",
        retry_after_s=KEY_MEMORY_S,
    )


class Overloaded(RequestError):
    """Past a stated bound (queue, backlog, open calls); try again later."""

    code = "overloaded"
    http_status = 503
