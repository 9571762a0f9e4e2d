"""Access tokens that are requested with a longer-lived credential and hold for an hour: cached, and
renewed before they expire.

One token request at a time, however many requests wait. From 80 % of a token's life on, another is
requested while the old one still serves. A failed token request is not repeated for some seconds:
requests that come meanwhile fail at once.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import urlencode, urlsplit

import msgspec

from protocol.errors import PipelineError, RemoteProtocolError, UpstreamTokenMissing
from providers.http1 import Pool, UpstreamConnection
from providers.origin import Origin
from providers.outbound import outbound
from settings.upstreams import Upstream

EXCHANGE_S = 10.0
"""How long an exchange may take."""
FAILED_S = 5.0
"""How long a failure is remembered."""
_YOUNG_S = 60.0
"""A token of this age that is refused is not asked for anew: the next would be refused as well."""
_SPARE_S = 10.0
"""A token is not used for its last seconds, which the way takes."""
_LIFE = 0.8
_MOST_BYTES = 64 * 1024
_TOKEN = re.compile(r"[!-~]{1,16384}")
_WORD = re.compile(r"[a-z_]{1,40}")
_CODE = re.compile(r"AADSTS[0-9]{1,10}")


class Token(msgspec.Struct, frozen=True):
    """An access token, and how many seconds it holds."""

    text: str
    lives_s: float

    def __repr__(self) -> str:
        return f"Token(..., {self.lives_s})"


class Tokens:
    """The token of one account. `ask` gets a new one, and raises UpstreamTokenMissing."""

    def __init__(
        self, ask: Callable[[], Awaitable[Token]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask, self._clock = ask, clock
        self._token: Token | None = None
        self._since = 0.0
        self._under_way: asyncio.Task[None] | None = None
        self._failed: UpstreamTokenMissing | None = None
        self._failed_at = 0.0
        self.known: tuple[str, ...] = ()
        """The last tokens, which no error may show."""

    async def get(self) -> str:
        """Return a token that holds. Raises UpstreamTokenMissing."""
        age, token = self._clock() - self._since, self._token
        if token is not None and age < token.lives_s * _LIFE:
            return token.text
        if not self._has_just_failed() and self._under_way is None:
            self._under_way = asyncio.get_running_loop().create_task(self._renew())
        if token is not None and age < token.lives_s - _SPARE_S:
            return token.text
        if self._under_way is not None:
            # who asked first may go away, and the others still wait
            await asyncio.shield(self._under_way)
        if self._failed is not None:
            raise UpstreamTokenMissing(self._failed.message)
        if self._token is None:
            raise UpstreamTokenMissing("there is no access token")
        return self._token.text

    def refused(self, text: str) -> bool:
        """A provider refused this token: may another be asked for?"""
        if self._token is None or self._token.text != text:
            return True
        if self._clock() - self._since < _YOUNG_S:
            return False
        self._token = None
        return True

    def _has_just_failed(self) -> bool:
        return self._failed is not None and self._clock() - self._failed_at < FAILED_S

    async def _renew(self) -> None:
        try:
            self._token, self._failed = await self._ask(), None
            self._since = self._clock()
            self.known = (self._token.text, *self.known[:2])
        except UpstreamTokenMissing as error:
            self._failed, self._failed_at = error, self._clock()
        except Exception as error:  # noqa: BLE001 - nobody waits for this task where the old token still serves
            self._failed = UpstreamTokenMissing(
                f"no access token could be had ({type(error).__name__})"
            )
            self._failed_at = self._clock()
        finally:
            self._under_way = None

    async def close(self) -> None:
        """Give up what is under way."""
        if self._under_way is not None:
            self._under_way.cancel()


class _Answer:
    def __init__(self) -> None:
        self.status, self.body = 0, b""

    def on_head(self, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.status = status

    def on_data(self, data: bytes, line: UpstreamConnection) -> None:
        self.body += data
        if len(self.body) > _MOST_BYTES:
            raise RemoteProtocolError("the answer is too large")

    def on_end(self) -> None:
        pass


class _Granted(msgspec.Struct):
    access_token: str
    expires_in: float | str


class _Denied(msgspec.Struct):
    error: str = ""
    error_description: str = ""


async def exchange(pool: Pool, url: str, form: Mapping[str, str], upstream: Upstream) -> Token:
    """Ask for a token at `url`. Raises UpstreamTokenMissing with what the answer says, as far as it
    is a word that can be no secret."""
    parts, answer = urlsplit(url), _Answer()
    base, place = f"{parts.scheme}://{parts.netloc}", parts.hostname
    origin = Origin(base, outbound(base, upstream, is_own=False))
    head = origin.head(
        parts.path,
        {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"},
    )
    try:
        async with asyncio.timeout(EXCHANGE_S):
            await pool.post(origin, head, urlencode(form).encode(), answer)
    except TimeoutError:
        raise UpstreamTokenMissing(f"{place} gave no access token in {EXCHANGE_S:g} s") from None
    except PipelineError as error:
        raise UpstreamTokenMissing(
            f"{place} gave no access token: {error.message} ({error.error_code})"
        ) from None
    if answer.status != 200:
        raise UpstreamTokenMissing(
            f"{place} gave no access token: status {answer.status}{_error_words(answer.body)}"
        )
    try:
        granted = msgspec.json.decode(answer.body, type=_Granted)
        lives_s = float(granted.expires_in)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise UpstreamTokenMissing(f"the answer of {place} holds no access token") from None
    if _TOKEN.fullmatch(granted.access_token) is None or not 0 < lives_s < 1e6:
        raise UpstreamTokenMissing(f"the answer of {place} holds no access token that can be sent")
    return Token(granted.access_token, lives_s)


def _error_words(body: bytes) -> str:
    """What an error answer says: its word, and the number of its sentence, but not the sentence."""
    try:
        denied = msgspec.json.decode(body, type=_Denied)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    words = [denied.error] if _WORD.fullmatch(denied.error) else []
    words += _CODE.findall(denied.error_description)[:1]
    return f" ({', '.join(words)})" if words else ""
