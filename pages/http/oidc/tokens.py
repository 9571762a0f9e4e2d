"""Checks what an OpenID Connect provider signed: who somebody is, and who is logged out.

Pure but for the clock that it is given. Rules: OpenID Connect Core 3.1.3.7, Back-Channel Logout
2.6. Must not know: where tokens and keys come from.
"""

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from joserfc import jwk, jwt
from joserfc.errors import InvalidKeyIdError, JoseError, SecurityWarning
from joserfc.jws import JWSRegistry

from db.page_sessions import Person, person_sha256
from protocol.errors import Forbidden
from settings.login import Oidc

LEEWAY_S = 60
"""How far the provider's clock may be off."""
LOGOUT_S = 600
"""How old a logout token may be."""
MAX_KEYS = 64
"""Keys of a provider that are looked at."""
_SIGNED = JWSRegistry(
    # signatures alone: with a shared secret whoever may check a token may make one, and a public
    # key taken for a secret lets anybody
    algorithms="RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 Ed25519".split(),
    strict_check_header=False,
)
_LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
MAX_CHARS = 255
"""Of a subject (OpenID Connect Core 2), of a name, and of the name of a session."""
Claims = Mapping[str, Any]


class LoginRefused(Forbidden):
    """This is no login: what came is not of the provider, not for us, or not of this browser."""

    code = "login_refused"


class KeyUnknown(LoginRefused):
    """A token is signed with a key that is not among those that are known."""


@dataclass(frozen=True, slots=True)
class Logout:
    """Who is logged out at the provider: the digest of a person, or a session, or both; and when
    the provider said so."""

    person: str | None
    sid: str | None
    issued_s: float


def key_set(keys: object) -> jwk.KeySet:
    """Return the keys that may sign tokens; those that are too short or of another kind are left
    out."""
    known = list[jwk.Key]()
    for key in keys[:MAX_KEYS] if isinstance(keys, list) else ():
        if not isinstance(key, dict) or key.get("use", "sig") != "sig" or key.get("kty") == "oct":
            continue
        try:
            with warnings.catch_warnings(action="error", category=SecurityWarning):
                known.append(jwk.import_key(key))
        except (JoseError, SecurityWarning, ValueError, TypeError, KeyError, OverflowError):
            continue
    return jwk.KeySet(known)


def id_claims(token: str, keys: jwk.KeySet, oidc: Oidc, now_s: float, nonce: str) -> Claims:
    """Return the claims of an ID token. Raises LoginRefused, of these KeyUnknown."""
    claims = _claims(token, keys, oidc, now_s, ("sub", "exp", "nonce"), nonce)
    audience, party = claims["aud"], claims.get("azp")
    if party != oidc.client_id and (
        party is not None or (isinstance(audience, list) and audience[1:])
    ):
        raise LoginRefused("the provider's answer was made for another program")
    _subject(claims)
    return claims


def logout_of(token: str, keys: jwk.KeySet, oidc: Oidc, now_s: float) -> Logout:
    """Return who is logged out by a logout token. Raises LoginRefused, of these KeyUnknown."""
    claims = _claims(token, keys, oidc, now_s, ("events",))
    events, sid = claims["events"], _text(claims.get("sid"))
    is_logout = isinstance(events, dict) and isinstance(events.get(_LOGOUT), dict)
    if not is_logout or "nonce" in claims or claims["iat"] < now_s - LOGOUT_S - LEEWAY_S:
        raise LoginRefused("this token ends no login, or is too old")
    person = person_sha256(oidc.issuer, _subject(claims)) if "sub" in claims else None
    if person is None and not sid:
        raise LoginRefused("this token names nobody who is logged out")
    return Logout(person, sid or None, claims["iat"] + LEEWAY_S)


def person_of(claims: Claims, oidc: Oidc) -> Person:
    """Return the person whom checked claims name, with the roles that the configuration gives.
    Raises LoginRefused for a person without any."""
    values = _claim(claims, oidc.roles_claim)
    roles = {
        role
        for value in (values if isinstance(values, list) else [values])
        if isinstance(value, str)
        for role in oidc.roles.get(value, ())
    }
    if not roles:
        raise LoginRefused(
            "the provider knows you, but you have no role here: ask whoever runs this gateway",
            code="no_role",
        )
    subject, name = _subject(claims), _text(_claim(claims, oidc.name_claim)).strip()
    return Person(oidc.issuer, subject, name or subject, frozenset(roles), _text(claims.get("sid")))


def lacks(claims: Claims, oidc: Oidc) -> bool:
    """Does something lack that UserInfo may have?"""
    return any(_claim(claims, name) is None for name in (oidc.roles_claim, oidc.name_claim))


def _claims(
    token: str,
    keys: jwk.KeySet,
    oidc: Oidc,
    now_s: float,
    needed: Iterable[str],
    nonce: str | None = None,
) -> dict[str, Any]:
    wanted: dict[str, jwt.ClaimsOption] = {name: {"essential": True} for name in needed}
    wanted["iss"] = {"essential": True, "value": oidc.issuer}
    wanted["aud"] = {"essential": True, "value": oidc.client_id}
    wanted["iat"] = {"essential": True}
    if nonce is not None:
        wanted["nonce"] = {"essential": True, "value": nonce}
    try:
        claims = jwt.decode(token, keys, registry=_SIGNED).claims
        jwt.JWTClaimsRegistry(int(now_s), LEEWAY_S, **wanted).validate(claims)
    except InvalidKeyIdError as error:
        raise KeyUnknown(
            "the provider's answer is signed with a key that it does not have"
        ) from error
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        # `error` says which claim or what of the signature, and nothing of the content
        reason = getattr(error, "description", "") or type(error).__name__
        raise LoginRefused(f"the provider's answer is not valid: {reason}") from error
    return claims


def _subject(claims: Claims) -> str:
    if not (subject := _text(claims.get("sub"))):
        raise LoginRefused("the provider does not say who this is")
    return subject


def _text(value: object) -> str:
    """A claim that is a text for people and the database; of another kind, or too long, none."""
    is_text = isinstance(value, str) and len(value) <= MAX_CHARS and value.isprintable()
    return value if is_text and isinstance(value, str) else ""


def _claim(claims: Claims, name: str) -> Any:
    """A claim by its name, or else the way to it through objects."""
    if name in claims:
        return claims[name]
    first, dot, others = name.partition(".")
    inner = claims.get(first)
    return _claim(inner, others) if dot and isinstance(inner, dict) else None
