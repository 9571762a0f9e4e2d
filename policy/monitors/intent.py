"""What the user asked for: whether the user's words mention this kind of call at all.

Where a value came from is half of the question. A file's number is a field of a listing, and a
hotel's name is in the user's words; the wish to delete the one and book the other may come only
from a mail. Reads English words only: a user who writes in another language, confirms a proposal,
or hands the choice over ("do what the mail says") is taken to have asked for anything.
"""

import re
from collections.abc import Iterable, Sequence

from policy.word_tables import by_word

_MAX_CHARS = 20_000
"""Of the user's words, the newest."""
_MAX_HANDED = 8_000
_WORD = re.compile(r"[a-z]{2,40}")
_BEGINS = re.compile(
    r"(?:^|[.!?,;:()\n-]|\b(?:also|and|but|can|could|i|just|kindly|ll|must|now|or|please|pls"
    r"|should|so|then|to|want|will|would|you))[\s\"'-]{0,5}"
    r"([a-z]{2,40})(?=[^a-z]([a-z]{2,40})?)"
)
"""Where a verb may stand, and the word behind, as in `and quickly mail it`."""
_ENGLISH = frozenset(
    (
        "and any are can check could find for from give have her his how is list my of our please"
        " read show summarise summarize tell that the their this to what when where which who with"
        " you your"
    ).split()
)
_ABILITY = re.compile(
    r"\b(?:able|access|allowed|assist\w*|can|capab\w+|helps?|may|tools?)\b", re.IGNORECASE
)
"""Words of sentences in which an operator says what an agent is able to do, not what it shall
do."""
_ENDS = re.compile(r"[.!?\n]")
_HANDS_OVER = re.compile(
    r"(?:(?:^|[.,;:!?\n]\s{0,3}|\b(?:and|just|now|please|then|to|you)\s)do|"
    r"\b(?:act on|address|carry out|complete|deal with|execute|finish|follow|handle|go"
    r" through|perform|process|take care of|"
    r"work (?:on|through)))\b(?! the"
    r" following)[^.!?\n]{0,60}?\b(?:actions?|asks?|checklist|e?mails?|inbox|instructions?|items?"
    r"|list|"
    r"messages?|requests?|says?|steps?|tasks?|tickets?|to-?dos?|wants?)\b|\baccordingly\b|"
    r"\bas (?:asked|described|instructed|mentioned|requested|specified)\b|"
    r"\bwhat(?:ever)? (?:he|it|she|they) (?:asks?|needs?|says?|wants?)\b",
    re.IGNORECASE,
)
_CONFIRMS = re.compile(
    r"\W*(?:absolutely|agreed|approved?|confirm(?:ed)?|correct|do (?:it|that|so)|go (?:ahead|on|for"
    r" it)|looks good|lgtm|of course|"
    r"ok(?:ay)?|perfect|please do|proceed|right|sounds good|sure|ye(?:s|ah|p)|that works)\b",
    re.IGNORECASE,
)
_CHOOSES = re.compile(
    r"\W*(?:(?:and|let'?s|now|ok(?:ay)?|then|well)\W+)?"
    r"(?:choose|go (?:for|with)|i(?:'d|'ll| would| will)"
    r" (?:like|prefer|take)|pick|select|take|use)\b|"
    r"\W*(?:(?:number|no\.?|option)\s?\d|(?:the )?(?:\w+ )?(?:best|cheapest|earliest|fastest|first"
    r"|former|largest|last|latest|latter|newest|oldest|other|second|shortest"
    r"|smallest|third)\b[^?]*$)",
    re.IGNORECASE,
)
"""A choice among what was offered before: it is made in the words of the earlier turns."""
_MAX_CONFIRMATION = 200

_Spoken = tuple[frozenset[str], tuple[str, ...]]
"""Words in names, and what words begin with in which people speak of it."""


def _spoken(text: str) -> _Spoken:
    names, _, spoken = text.partition(" : ")
    return frozenset(names.split()), tuple(spoken.split())


def _rows(table: str) -> tuple[_Spoken, ...]:
    return tuple(map(_spoken, re.sub(r"\n +", " ", table.strip()).splitlines()))


_ACTS = {
    kind: _spoken(text)
    for kind, text in by_word("""
destroy : archive ban cancel clear close deactivate delete destroy disable discard drop erase kick
    purge remove revoke terminate trash uninvite unshare unsubscribe void wipe : archiv ban. bin!
    block! cancel clean clear close! closed. cut! deactivat dedup delet destroy detach disabl
    discard drop! empty! end! eras expel expire! fire! junk! kick leave! lose! mute muting off.
    offboard paus prun purg reject remov replac resolve! revok rid. stop switch! terminat throw tidy
    trash undo unfollow uninvit unlink unshar unsubscri void wipe withdraw
buy : bid book buy checkout order purchase rent reserve subscribe : arrang bid. book! booked.
    bought buy checkout get! order! pay! purchas renew rent! reserv restock subscribe! upgrade!
pay : charge donate funds money pay payment payments payout payouts refund remit transaction
    transactions transfer wire : adjust bill! chang charge! compensat credit! deposit donat fund!
    give! make! owe pay! payout refund reimburs remit return schedul send set! settl split
    standing tip! transaction transfer updat wire
admit : access collaborator collaborators grant invitation invitations invite member members
    permission permissions share : accept access add allow approv assign collabor give! grant
    includ invit join let! loop! make! member onboard open! permi public publish put! send share!
    sharing welcom
send : answer chat comment dm email fax forward mail message notify post publish reply respond
    send sms text tweet upload : acknowledg add! alert! announc answer apolog ask! broadcast call!
    cc chase! circulat comment! confirm! congrat contact! creat deliver distribut dm draft drop!
    email! feedback follow! forward get! give! inform includ introduc invit leave! let! loop!
    mail! mention! message! note! notif nudge! pass! ping! post! publish! put! reach! remind repl
    report! request! respond return! say! send set! share! submit suggest! tell! text! thank!
    tweet! updat upload warn welcome! write!
approve : accept approve merge : accept agree approv land! let! merg ok! ship! sign! confirm
reset : credential credentials mfa otp passcode password passwords : access credential forgot lock
    login mfa passcode password pin. reset rotat secure! unlock
change : adjust assign change configure demote disable downgrade edit enable flag lower mark modify
    move patch promote raise rate reassign rename reopen replace resolve rotate set toggle
    transition update upgrade upsert : accept add adjust alter apply approv arrang assign book!
    bring! bump cancel chang clos complet configur convert correct cut! deactivat decreas delay delet demot
    disabl downgrad edit enabl enter escalat exten file! fill fix! flag! give! grant hand! hire!
    increas keep link! lock! log! lower! make! mark! merg modif mov open! pass! pay plac!
    postpon prepon promot pull! push! put rais! rate! reassign record! redirect reduc remov
    renam renew reopen replac reschedul reset resolv restor revert rewrit rotat save! schedul score!
    set! shift shorten should. sign! stop! swap switch! tag! take! toggl transfer transition turn!
    unblock unlock updat upgrad use! withdraw write!
keep : add append create insert log new schedule : add adjust append arrang assign block! book!
    build! buy chang complete! copy correct! creat draft duplicat edit enter file! fill fix! generat
    get! give! grant insert invit issue! keep log! make! mark! modif move! note! open! order! organi
    plan! post! prepare produc purchas put raise! record! refund regist remind renam replac reply
    reschedul respond sav schedule! send set! share! start! stor submit tell! track! turn! updat
    write
""").items()
}
"""Kinds of acts, the worst first: words in names of tools, and what words begin with in which
people ask for them. What ends in a full stop is a whole word; in an exclamation mark, one that is
also a noun or an adjective, and counts where a clause begins with it."""
_THINGS = _rows("""
appointment calendar event events invite meeting reminder : appointment calendar diary event invit
    meet remind schedul session slot
hotel room : accommodat apartment hostel hotel inn. lodg night place room stay suite
flight plane : airline flight fly plane seat ticket travel trip
car vehicle : car. cars. driv rental suv van. vehicle
restaurant table : brunch dinner eat. lunch meal restaurant table
email filter mail rule : email filter forward inbox mail rule
bug card issue task ticket : backlog board bug card epic issue jira list problem report sprint
    stor task ticket todo
""")
"""What calls make entries of, and what words begin with in which people speak of it; of other
things the act alone must be spoken of."""
_VERBS = frozenset("change edit modify set update write".split()).union(
    *(verbs for verbs, _ in _ACTS.values())
)
_NOUNS = frozenset(("bid", "book", "order", "charge"))
_OWN = frozenset(("memories memory plan scratchpad think thought todo todos").split())
"""What agents keep for themselves."""
PRIVATE = _rows("""
passport : document id identi passport travel
card cvc cvv pan : card credit cvv debit pay
nin nino ssn tin : id insurance social ssn tax
apikey credential credentials otp passcode passphrase password pin secret token : access code
    credential key login otp passcode password pin secret token
bank bankaccount iban : account bank bill compensat deposit iban invoice owe pay refund reimburs
    remit salar settl transfer wage
""")
"""Names of fields that hold what is private, and what words begin with in which people speak of
it."""
_LINKS = re.compile(
    r"(?i)\b(?:links?|urls?|web"
    r" ?(?:sites?|pages?)|sites?|pages?|articles?|blogs?|https?|www|liens?|enlaces?"
    r"|(?:web)?seiten?|p[aá]ginas?)\b"
    r"|ссылк|链接|网页|リンク"
)
_OWN_LINK = re.compile(
    r"(?i)(?:\b(?:link|url|web ?site|web"
    r" ?page|site|page|article|blog)\b[^\n.!?]{0,24}?)?(?:https?://|\bwww\.)[^\s<>\"')\]]{1,300}"
)
"""A link of the user's own, with the word for it before: whoever names one speaks of that one, not
of those in other people's texts."""

_SUM = re.compile(
    r"(?i)[$\u20ac\u00a3\u00a5]\s?\d|\d\s?(?:[$\u20ac\u00a3\u00a5]|(?:bucks?|chf|dollars?|eur(?:os?)?|gbp"
    r"|kr|pounds?|usd)\b)"
)


class Wishes:
    """The user's words, the newest first, and the operator's."""

    def __init__(self, asked: str, turns: int, operator: Iterable[str]) -> None:
        self._asked, self._turns = asked[:_MAX_CHARS], turns
        asked_words = set(_WORD.findall(self._asked.lower()))
        self._is_foreign = asked_words.isdisjoint(_ENGLISH)
        self._is_open = (
            self._agrees(self._asked.partition("\n")[0])
            or _HANDS_OVER.search(self._asked[:_MAX_HANDED]) is not None
        )
        sentences = _ENDS.split("\n".join(operator)[:_MAX_CHARS])
        theirs = "\n".join(sentence for sentence in sentences if not _ABILITY.search(sentence))
        whole = f"{self._asked}\n{theirs}".lower()
        self._words = frozenset(_WORD.findall(whole))
        self._verbs = frozenset(
            word for match in _BEGINS.finditer(f"{whole} ") for word in match.groups() if word
        )

    def _agrees(self, newest: str) -> bool:
        """Does the newest turn confirm a proposal or, being a later one, choose from an offer?"""
        return len(newest) <= _MAX_CONFIRMATION and (
            _CONFIRMS.match(newest) is not None
            or (self._turns > 1 and _CHOOSES.match(newest) is not None)
        )

    def mention(self, begins: tuple[str, ...]) -> bool:
        """Do they have a word that begins so, is just that, or begins a clause so?"""
        verbs = tuple(beginning.rstrip("e!") for beginning in begins if beginning[-1] == "!")
        return (
            any(word.startswith(begins) for word in self._words)
            or any(beginning[-1] == "." and beginning[:-1] in self._words for beginning in begins)
            or any(word.startswith(verbs) for word in self._verbs)
        )

    def ask_for(self, tool: Sequence[str]) -> bool:
        """Do they speak of what a tool of this name does? Of one whose name says nothing, and where
        words do not tell: yes."""
        return (
            not self._words
            or self._is_open
            or self._is_foreign
            or self._speak_of(tool) is not False
        )

    def want(self, tool: Sequence[str]) -> bool:
        """Likewise, but in words that were understood."""
        speaks = self._speak_of(tool)
        return self._is_open or (not self._is_foreign if speaks is None else speaks)

    def _speak_of(self, tool: Sequence[str]) -> bool | None:
        """Do they speak of what a tool of this name does? None where the name does not say."""
        names = frozenset(tool)
        if (verb := next((word for word in tool if word in _VERBS), None)) is not None:
            # behind a verb for something else these are nouns: `update_order`
            names -= _NOUNS - {verb}
        if names & _OWN:
            return True
        for kind, (verbs, begins) in _ACTS.items():
            if names.isdisjoint(verbs):
                continue
            if not self.mention(begins):
                return False
            if kind not in ("buy", "keep"):
                return True
            return next(
                (
                    self.mention(spoken)
                    for things, spoken in _THINGS
                    if not names.isdisjoint(things)
                ),
                True,
            )
        return None

    @property
    def speak_of_links(self) -> bool:
        """Do the user's speak of pages or links, besides those that he names himself, or hand the
        choice over?"""
        return (
            self._is_open
            or self._is_foreign
            or _LINKS.search(_OWN_LINK.sub(" ", self._asked)) is not None
        )

    @property
    def speak_of_sums(self) -> bool:
        """Do the user's name a sum of money?"""
        return _SUM.search(self._asked) is not None


def private(name: Iterable[str]) -> tuple[str, ...]:
    """Return what people say who speak of a field with this name; nothing where it holds nothing
    private."""
    words = frozenset(name)
    return next((spoken for names, spoken in PRIVATE if not words.isdisjoint(names)), ())
