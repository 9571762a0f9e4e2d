"""Which digits are a card's, a bank account's or a telephone's: by check digits, lengths and forms.

Must not know: where the text comes from.
"""

import re

_IBAN_LENGTHS = {
    pair[:2]: int(pair[2:])
    for pair in (
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27"
        " DK18 DO28 EE20 EG29 ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28"
        " IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22"
        " MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24"
        " SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
    ).split()
}
"""Characters of an account number by country (SWIFT's IBAN registry)."""
_CARDS = re.compile(
    r"4\d{12}(?:\d{3})?(?:\d{3})?|(?:5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720)\d*"
    r"|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}|35\d{14}|6(?:011|4[4-9]|5)\d{12,15}|62\d{14,17}",
    re.ASCII,
)
"""Numbers of the brands that issue cards."""
_CARD_GROUPS = ([4, 4, 4, 4], [4, 4, 4, 4, 3], [4, 6, 5], [4, 6, 4])
_NORTH_AMERICAN = re.compile(
    r"(?:\+?1[ .-]?)?(?:\([2-9]\d\d\)[ .-]?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{4}", re.ASCII
)
_INTERNATIONAL = re.compile(r"\+[1-9][\d ().\-/]{5,}\d\d", re.ASCII)
_NUMBER = re.compile(r"(?<![\w+.,/%-])[+(]?\d(?:[ ().\-/]{0,2}\d){6,18}(?![\w%]|[.,-]\d)", re.ASCII)
_ACCOUNT = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}[ -]?[A-Z0-9]{4}[A-Z0-9 -]{2,40}", re.ASCII)
_MIN_PHONE, _MAX_PHONE = 8, 15
"""Digits of a telephone number with its country (ITU-T E.164), as they are written."""


def numbers(text: str) -> list[tuple[int, int, str]]:
    """Return the cards, accounts and telephone numbers in a text, with their class."""
    spans = [
        (match.start(), end, "iban")
        for match in _ACCOUNT.finditer(text)
        if (end := _account_end(text, match.start()))
    ]
    for match in _NUMBER.finditer(text):
        number = match[0] if ")" in match[0] else match[0].lstrip("(")
        if kind := _kind(number):
            spans.append((match.end() - len(number), match.end(), kind))
    return spans


def _kind(number: str) -> str:
    digits = re.sub(r"\D", "", number)
    if _is_card(number, digits):
        return "card"
    if _NORTH_AMERICAN.fullmatch(number):
        return "phone"
    is_phone = (
        _MIN_PHONE <= len(digits) <= _MAX_PHONE
        and _INTERNATIONAL.fullmatch(number) is not None
        and (digits[0] != "1" or _NORTH_AMERICAN.fullmatch(_grouped(digits)) is not None)
    )
    return "phone" if is_phone else ""


def _grouped(digits: str) -> str:
    return f"+1 {digits[1:4]}-{digits[4:7]}-{digits[7:]}"


def _is_card(number: str, digits: str) -> bool:
    if not 13 <= len(digits) <= 19 or _CARDS.fullmatch(digits) is None or len({*digits}) < 2:
        return False
    groups = re.findall(r"\d+", number)
    if len(groups) > 1 and (
        [len(group) for group in groups] not in _CARD_GROUPS
        or len({*re.findall(r"\D+", number)}) > 1
        or re.search(r"[^\d -]|  ", number) is not None
    ):
        return False
    doubled = sum(sum(divmod(int(digit) * 2, 10)) for digit in digits[-2::-2])
    return (doubled + sum(map(int, digits[-1::-2]))) % 10 == 0


def _account_end(text: str, start: int) -> int:
    """Where an account number ends that begins here, 0 where it is none (ISO 13616: mod 97)."""
    length = _IBAN_LENGTHS.get(text[start : start + 2], 0)
    places = [i for i in range(start, min(start + 2 * length, len(text))) if text[i] not in " -"]
    if not length or len(places) < length:
        return 0
    end = places[length - 1] + 1
    number = "".join(text[i] for i in places[:length])
    if not number.isalnum() or not number.isascii() or text[end : end + 1].isalnum():
        return 0
    turned = "".join(str(int(c, 36)) for c in number[4:] + number[:4])
    return end if int(turned) % 97 == 1 else 0
