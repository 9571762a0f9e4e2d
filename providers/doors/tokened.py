"""A door whose requests carry an access token, which changes."""

from collections.abc import Mapping, Sequence

from protocol.request import Endpoint
from providers.doors.plain import Door, Sent, longest_first
from providers.http1 import Pool
from providers.tokens import EXCHANGE_S, Token, Tokens
from settings.upstreams import Upstream

_CONNECT_S = 5.0


class TokenedDoor(Door):
    """Asks for tokens on connections of its own; a door's class says how, in `ask`."""

    is_fixed = False

    def __init__(self, upstream: Upstream) -> None:
        super().__init__(upstream)
        self._pool = Pool(connect_s=_CONNECT_S, first_byte_s=EXCHANGE_S, idle_s=EXCHANGE_S)
        self._tokens = Tokens(self.ask)

    async def ask(self) -> Token:
        """Get a token. Raises UpstreamTokenMissing."""
        raise NotImplementedError

    async def authorization(self) -> dict[str, str]:
        """Return the header with a token that holds."""
        return {"authorization": f"Bearer {await self._tokens.get()}"}

    async def request(self, endpoint: Endpoint, body: bytes, betas: Sequence[str]) -> Sent:
        """Return a request with the token of this moment."""
        token = await self._tokens.get()
        headers = {**self.headers, **self.betas(betas), "authorization": f"Bearer {token}"}
        path, edited = await self.edited(endpoint, body)
        return Sent(self.origin, self.origin.head(path, headers), edited, token)

    async def edited(self, endpoint: Endpoint, body: bytes) -> tuple[str, bytes]:
        """Return a request's path and body."""
        return self.path(endpoint), body

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The last tokens besides."""
        return longest_first((*(word.decode() for word in self._words), *self._tokens.known))

    def is_stale(self, status: int, headers: Mapping[bytes, bytes], let_in: object) -> bool:
        """A token that was refused after a minute or more may have been taken back."""
        return status == 401 and isinstance(let_in, str) and self._tokens.refused(let_in)

    async def close(self) -> None:
        """Give up an exchange under way."""
        await self._tokens.close()
        await self._pool.close()
