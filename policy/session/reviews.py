"""The texts of a request that judges decide about before it is sent.

Theory. What is new of the user's words is judged as one text: words of earlier turns were judged
when they were new, and one bad sentence must not end a conversation for ever. Results of tools come
again with each request, so each is judged each time, and judges remember their answers. Must not
know: sessions, what judges are asked.
"""

from collections.abc import Sequence

import msgspec

from policy.base import TextPiece
from policy.session.answer.windows import FIRST_OF_REQUEST, TextWindow
from policy.session.chain import Chain
from policy.session.notices import Notices
from protocol.bounds import MAX_REVIEWED
from protocol.errors import Forbidden
from protocol.policy_changes import Unclear, reconciled
from protocol.request import ChatRequest, OtherPart, Part, TextPart, ToolResultPart, Turn
from protocol.request_texts import map_contents


def reviewed(request: ChatRequest, chain: Chain) -> list[TextWindow]:
    """Return the texts to decide about. Raises Forbidden where there are too many."""
    wanted = {source for policy in chain.text_judges for source in policy.judges_text}
    turns, pieces = request.turns, list[TextPiece]()
    newest = max((n for n, turn in enumerate(turns) if turn.role == "user"), default=0)
    # an answer behind it is one that the client begins
    last = max((n for n in range(newest) if turns[n].role == "assistant"), default=-1)
    if "request" in wanted:
        new = [part for turn in turns[last + 1 :] if turn.role == "user" for part in turn.parts]
        words = "\n\n".join(text for part in new for text in _words(part, request))
        pieces += [TextPiece(words, "request")] if words else ()
    if "tool_results" in wanted:
        parts = [part for turn in turns for part in turn.parts]
        # the newest first: the oldest go where there are more than may be asked about
        results = [part.text for part in reversed(parts) if isinstance(part, ToolResultPart)]
        numbered = enumerate(dict.fromkeys(results))
        pieces += [TextPiece(text, "tool_results", "", number) for number, text in numbered]
    if len(pieces) > MAX_REVIEWED:
        raise Forbidden(
            f"the request has over {MAX_REVIEWED:,} results of tools, too many to judge: begin a"
            " new conversation",
            code="blocked_by_policy",
        )
    return [TextWindow(key, piece, chain) for key, piece in enumerate(pieces, FIRST_OF_REQUEST)]


def _words(part: Part, request: ChatRequest) -> list[str]:
    """The user's words in a part of a turn: text, and what of a document or its title is text."""
    words = list[str]()

    def take(text: str, _: str) -> str:
        words.append(text)
        return text

    if isinstance(part, OtherPart):
        turn = Turn("user", (part,))
        map_contents(ChatRequest(dialect=request.dialect, model="", turns=(turn,)), take)
    return [part.text] if isinstance(part, TextPart) else words


def without(request: ChatRequest, windows: Sequence[TextWindow], notices: Notices) -> ChatRequest:
    """Return a request with the results of tools replaced that may not pass. Raises Forbidden where
    one cannot be."""
    shown = {w.piece.text: notices.tool_result(w.final) for w in windows if w.verdict == "block"}
    if not shown:
        return request
    turns = tuple(
        msgspec.structs.replace(
            turn,
            parts=tuple(
                msgspec.structs.replace(part, text=shown[part.text])
                if isinstance(part, ToolResultPart) and part.text in shown
                else part
                for part in turn.parts
            ),
        )
        for turn in request.turns
    )
    try:
        return reconciled(request, msgspec.structs.replace(request, turns=turns))
    except Unclear as error:
        message = f"a tool's result that may not pass cannot be taken out: {error}"
        raise Forbidden(message, code="blocked_by_policy") from error
