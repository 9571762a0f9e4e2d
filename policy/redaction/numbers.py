"""Which digits are a card's, a bank account's or a telephone's: by check digits, lengths and forms.

Must not know: where the text comes from.
"""

import re
from collections.abc import Iterator

_IBAN_LENGTHS = dict(
    re.findall(
        r"([A-Z]{2})(\d\d)",
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27"
        " DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28"
        " IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22"
        " MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24"
        " SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30",
    )
)
"""Characters of an account number by country (SWIFT's IBAN registry)."""
_CARD = re.compile(
    r"4\d{12}(?:\d{3})?(?:\d{3})?|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}"
    r"|35\d{14}|6(?:011|4[4-9]|5)\d{12,15}|62\d{14,17}"
)
"""Numbers of the brands that issue cards."""
_WRITTEN_CARD = re.compile(
    r"(?<![\w+.,/%-])(?:\d{13,19}|\d{4}([ -])\d{4}\1\d{4}\1\d{4}(\1\d{3})?"
    r"|\d{4}([ -])\d{6}\3\d{4,5})(?![\w%]|[.,-]\d)",
    re.ASCII,
)
"""With or without groups; of the last three digits nobody knows whether they are of the number."""
_PHONE = re.compile(
    # North America, and elsewhere with the country (ITU-T E.164)
    r"(?:\+?1[ .-]?)?(?:\([2-9]\d\d\)[ .-]?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{4}"
    r"|\+1[2-9]\d\d[2-9]\d{6}|\+[2-9](?:[ ().\-/]*\d){5,12}[ ().\-/]?\d\d"
)
_NO_PHONE = re.compile(r"\+(?:(?:19|20)\d\d-[01]?\d-[0-3]?\d(?!\d)|\d{1,3}\.\d+\Z)")
"""A date in a line that a diff adds, a decimal with its sign."""
_NUMBER = re.compile(
    r"(?<![\w+.,/%-])(?:\+|\((?=\d{1,5}\)))?\d(?:[ ().\-/]{0,2}\d){6,18}(?![\w%]|[.,-]\d)", re.ASCII
)
_ACCOUNT = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d\d(?:[ -]?[A-Z0-9]){11,30}")


def numbers(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the cards, accounts and telephone numbers in a text, with their class."""
    for match in _ACCOUNT.finditer(text):
        # the next word may look as if it went on
        number, length = match[0], int(_IBAN_LENGTHS.get(match[0][:2], 99))
        places = [place for place, c in enumerate(number, 1) if c.isalnum()][:length]
        plain = re.sub("[ -]", "", number)[:length]
        end = match.start() + places[-1]
        # ISO 13616: letters count from 10 on, and the whole is 1 modulo 97
        value = int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4]))
        if len(plain) == length and value % 97 == 1 and not text[end : end + 1].isalnum():
            yield match.start(), end, "iban"
    for match in _WRITTEN_CARD.finditer(text):
        start, end = match.span()
        for stop in (end, match.start(2)):
            if stop > start and _is_card(text[start:stop]):
                yield start, stop, "card"
                break
    for match in _NUMBER.finditer(text):
        if _PHONE.fullmatch(match[0]) and _NO_PHONE.match(match[0]) is None:
            yield *match.span(), "phone"


def _is_card(number: str) -> bool:
    """By its brand and Luhn's sum."""
    digits = re.sub("[ -]", "", number)
    if not _CARD.fullmatch(digits):
        return False
    doubled = sum(sum(divmod(int(digit) * 2, 10)) for digit in digits[-2::-2])
    return (doubled + sum(map(int, digits[-1::-2]))) % 10 == 0
