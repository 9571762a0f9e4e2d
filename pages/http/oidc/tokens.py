"""Checks what an OpenID Connect provider signed: who somebody is, and who is logged out.

Pure but for the clock. Rules: OpenID Connect Core 3.1.3.7, Back-Channel Logout 2.6. Must not know:
where tokens and keys come from.
"""

from collections.abc import Mapping
from typing import Any

from joserfc import jwk, jwt
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from db.page_sessions import Person, person_digest
from protocol.errors import InvalidRequest
from settings.login import Oidc

LEEWAY_S = 60
"""How far the provider's clock may be off."""
MAX_CHARS = 255
"""Of a subject (OpenID Connect Core 2), of a name, and of the name of a session."""
_SIGNED = JWSRegistry(
    # signatures alone: with a shared secret whoever may check a token may make one, and a public
    # key taken for a secret lets anybody
    algorithms="RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 Ed25519".split(),
    strict_check_header=False,
)
_LOGOUT = "http://schemas.openid.net/event/backchannel-logout"
Claims = Mapping[str, Any]


class LoginRefused(InvalidRequest):
    """This is no login: what came is not of the provider, not for us, or not of this browser."""

    code = "login_refused"


def logout_of(claims: Claims, oidc: Oidc) -> dict[str, Any]:
    """Return whose logins the claims of a logout token end, as `PageSessions.end_of_person` takes
    it. Raises LoginRefused."""
    sid, subject, events = text_of(claims, "sid"), text_of(claims, "sub"), claims["events"]
    is_logout = isinstance(events, dict) and _LOGOUT in events and "nonce" not in claims
    if not is_logout or not (sid or subject):
        raise LoginRefused("this token ends no login")
    digest = person_digest(oidc.issuer, subject)
    before_s = claims["iat"] + LEEWAY_S
    return {"subject": subject, "key": digest, "sid": sid, "before_s": before_s}


def person_of(claims: Claims, oidc: Oidc) -> Person:
    """Return the person whom checked claims name, with the roles that the configuration gives.
    Raises LoginRefused."""
    subject, values = text_of(claims, "sub"), claim_of(claims, oidc.roles_claim)
    # made for several, a token says for whom
    is_ours = claims.get("azp", claims["aud"]) in (oidc.client_id, [oidc.client_id])
    if not subject or not is_ours:
        raise LoginRefused("the provider names nobody, or for another program")
    known = values if isinstance(values, list) else [values]
    roles = {role for name, given in oidc.roles.items() if name in known for role in given}
    # no key's name has a blank, so nobody takes a name at the provider to pass for one
    name = f"{text_of(claims, oidc.name_claim)} (oidc:{subject})".strip()
    digest = person_digest(oidc.issuer, subject).hex()
    return Person(oidc.issuer, digest, name, text_of(claims, "sid"), sorted(roles), oidc.login_s)


def claim_of(claims: Claims, name: str) -> Any:
    """Return a claim by its name, or else by the way to it through objects; None without."""
    if name in claims:
        return claims[name]
    first, _, others = name.partition(".")
    inner = claims.get(first)
    return claim_of(inner, others) if isinstance(inner, dict) else None


def text_of(claims: Claims, name: str) -> str:
    """Return a claim that is a text for people and the database; empty where it is not, or too
    long."""
    value = claim_of(claims, name)
    if isinstance(value, str) and len(value) <= MAX_CHARS and value.isprintable():
        return value.strip()
    return ""


def verified(token: str, keys: jwk.KeySet, oidc: Oidc, **wanted: object) -> dict[str, Any]:
    """Return the claims of a token that the provider signed for us, and that holds now, with these
    claims; None: of any value. Raises LoginRefused."""
    wanted |= {"iss": oidc.issuer, "aud": oidc.client_id, "iat": None}
    options: dict[str, Any] = {
        name: {"essential": True, "value": value} for name, value in wanted.items()
    }
    try:
        claims = jwt.decode(token, keys, registry=_SIGNED).claims
        jwt.JWTClaimsRegistry(leeway=LEEWAY_S, **options).validate(claims)
    except (JoseError, ValueError, TypeError, RecursionError) as error:
        # it says which claim or what of the signature, and nothing of the content
        reason = getattr(error, "description", "") or type(error).__name__
        raise LoginRefused(f"the provider's answer is not valid: {reason}") from error
    return claims
