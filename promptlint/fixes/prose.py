"""Which stretch of a prompt's text goes along when one of its values moves, and where it can go.

A value is not moved alone: its label, its heading, its tags or its sentence go with it, because they say what it is. Where the text around it would no longer
make sense ("the text above", a numbered step, an example in a code fence), nothing is moved. The goal is the end of the text, ahead of what already stands
there for the same reason: a last question, a closing cue ("Answer:").

All of this is about plain text with slots. The slots' own characters are masked, so that no full stop in an expression ends a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["Move", "Prose", "plan", "stretch", "to_the_end"]

MASK = "\ufffc"
MAX_LABEL_WORDS = 8
MAX_SENTENCE_WORDS = 40
MAX_HEADING_WORDS = 40
MAX_CUE_WORDS = 6  # as in the advisor's moves of traffic
MAX_LAST_CUE_WORDS = 12  # of the very last line
MAX_SHAPE_LINES = 6  # behind a cue, that show what an answer looks like
MAX_TAIL_WORDS = 16  # of fixed text that may stay behind a moved value

_WORD = re.compile(r"[^\W_]+")
_BACK = re.compile(
    r"\b(?:above|preceding|aforementioned|foregoing|earlier|just (?:given|shown|described)|so far)\b", re.IGNORECASE
)
_FORTH = re.compile(r"\b(?:following|follows|hereafter|next)\b", re.IGNORECASE)
_BELOW = re.compile(r"\bbelow\b", re.IGNORECASE)
_ANNOUNCES = re.compile(r"\b(?:following|follows|below|here (?:is|are)|here's)\b|以下|下面|如下|下列", re.IGNORECASE)
_JOINS = re.compile(r"\W*(?:and|or|but|nor|plus|as well as|along with|together with)\b", re.IGNORECASE)
"""The begin of what goes on with the sentence above it."""
_OPENS = re.compile(r"^[ \t]*[\W_]*(?:begin|start)\b", re.IGNORECASE | re.MULTILINE)
_ENDS = re.compile(r"^[ \t]*[\W_]*end\b", re.IGNORECASE | re.MULTILINE)
_ANNOUNCED = re.compile(r"\b(?:first see|first (?:be )?(?:given|shown|presented))\b", re.IGNORECASE)
_ROLE = re.compile(r"[ \t]*(?:you are|you're|act as|your role)\b", re.IGNORECASE)
_MARKUP = re.compile(r"<\|[\w ]+\|>|\[/?INST\]|<</?SYS>>|</?s>|<(?:start|end)_of_turn>")
"""Marks by which a chat template tells one message from the next."""
_ANSWER = re.compile(
    r"\W*(?:(?:your|the|final|expected|example|json|here|is|are)\W+)*"
    r"(?:answer|response|reply|output|result|summary|translation|solution|completion|verdict|rating|begin)s?(?:\W+format)?\W*[:：]\W*",
    re.IGNORECASE,
)
_GO = re.compile(r"\W*(?:(?:please|now|let's|you may)\W+)*(?:begin|start|go)\W*", re.IGNORECASE)
_THINK = re.compile(r"\b(?:let's|let us)\b[^.!?\n]*\bstep[ -]by[ -]step\W*\Z", re.IGNORECASE)
"""The sentence that starts a chain of thought, at the end of a text."""
_END_MARK = re.compile(r"[ \t]*(?:[=\-*#~<\[]+[ \t]*(?:/|end\b).*|end of .{1,40})", re.IGNORECASE)
_NAMED_END = re.compile(r"^[ \t]*\W+end(?: of)?[ \t]+(\w[\w \t]*)\W*$", re.IGNORECASE | re.MULTILINE)
_ANAPHOR = re.compile(
    r"(?:it|its|this|that|these|those|they|them|their|he|she|his|her|then|so|but|and|or|however|therefore|thus|otherwise|"
    r"here|also|additionally|furthermore|moreover|finally|instead|likewise|if so|as such|in this case|for example|e\.g\.|i\.e\.)\b",
    re.IGNORECASE,
)
_THIS = re.compile(r"\b(?:this|these|that|those|such)[ \t]+(\w+)", re.IGNORECASE)
_STOP = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bMr)(?<!\bDr)[.!?。！？]+[\"'”’)\]*_`]*(?=\s|$)")
_BULLET = re.compile(r"[ \t]*(?:[-*+•–]|\d+[.)]|[a-zA-Z][.)]|\(\w+\))[ \t]+")
_NUMBERED = re.compile(r"[ \t]*(?:\d+[.)]|\(?[a-z0-9][.)]|step\s+\d)", re.IGNORECASE)
_HEADING = re.compile(r"[ \t]*(?:#{1,6}[ \t]|\*\*[^*]+\*\*:?[ \t]*$|={3,}|-{3,}|\[[^\]]+\][ \t]*$|<[\w-]+>[ \t]*$)")
_UNIT = re.compile(r"[ \t]*[^\W_]+[ \t]*")
"""One word behind a value: "UTC", "tokens"."""
_MORE = re.compile(rf"(?:{MASK}|[ \t,;|]*[^\W_][\w ]{{0,30}}:[ \t]*{MASK})+[ \t]*")
"""More labels with their values on one line."""
_OPEN_TAG = re.compile(r"[ \t]*<([A-Za-z][\w-]*)(?:\s[^<>]*)?>[ \t]*")
_CLOSE_TAG = re.compile(r"[ \t]*</([A-Za-z][\w-]*)>[ \t]*")
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,}|\"{3}|'{3}|-{3,}|={3,}|<{3,}|>{3,})\w*[ \t]*")
_FACT = re.compile(rf"(?:\b(?:is|are|was|were)|[:=])[ \t]*[\"'`*(<\[]*[ \t]*{MASK}")


@dataclass(frozen=True, slots=True)
class Move:
    """The characters from `start` to `end` are to stand at `goal`. `whole_lines`: they are lines, the last line end included where there is one."""

    start: int
    end: int
    goal: int
    whole_lines: bool


class Prose:
    """A text with slots. `slots` and `sections` (template statements with all they enclose) are ranges of its characters."""

    def __init__(self, text: str, slots: Sequence[tuple[int, int]], sections: Sequence[tuple[int, int]] = ()) -> None:
        self.text = text
        self.sections = tuple(sections)
        self.slots = sorted(slots)
        chars = list(text)
        for start, end in (*slots, *sections):
            chars[start:end] = MASK * (end - start)
        self.masked = "".join(chars)
        spoken = list(text)
        for start, end in slots:
            spoken[start:end] = " " * (end - start)
        self.spoken = "".join(spoken)

    # ---- lines

    def line_start(self, at: int) -> int:
        return self.masked.rfind("\n", 0, at) + 1

    def line_end(self, at: int) -> int:
        """Offset behind the line end of the line that holds `at`."""
        found = self.masked.find("\n", at)
        return len(self.masked) if found < 0 else found + 1

    def line(self, start: int) -> str:
        return self.masked[start : self.line_end(start)].rstrip("\n")

    def line_before(self, start: int) -> int | None:
        """Start of the line before a line start; None at the top."""
        return self.line_start(start - 1) if start > 0 else None

    def line_above(self, at: int) -> str:
        """The last line with something on it ahead of an offset, as far as it stands ahead of it."""
        return self.masked[:at].rstrip().rpartition("\n")[2]

    # ---- what lines are

    def words(self, start: int, end: int) -> int:
        """How many words of fixed text stand there, those within template statements included."""
        return len(_WORD.findall(self.spoken[start:end]))

    def has_slot(self, line: str) -> bool:
        return MASK in line

    def is_bare(self, line: str) -> bool:
        """A line that holds slots and no word."""
        return MASK in line and not _WORD.search(line.replace(MASK, " "))

    def is_labelled(self, line: str) -> bool:
        """`Label: {slot}`, perhaps with marks around it, or `<tag>{slot}</tag>`."""
        label, mask, rest = line.partition(MASK)
        more = _MORE.fullmatch(rest)
        rest = rest.replace(MASK, "")
        unit = (more or _UNIT.fullmatch(rest)) and label.rstrip().endswith(":")
        if not mask or (_WORD.search(_CLOSE_TAG.sub("", rest)) and not unit) or _STOP.search(_unbulleted(label)):
            return False
        words = len(_WORD.findall(label))
        tagged = bool(_OPEN_TAG.fullmatch(label)) and bool(_CLOSE_TAG.fullmatch(rest))
        return tagged or (0 < words <= MAX_LABEL_WORDS and label.rstrip(" \t\"'`*([<").endswith((":", "=", "-", "：")))

    def is_cue(self, line: str, most: int = MAX_CUE_WORDS) -> bool:
        """A short line that asks for its continuation."""
        words = _WORD.findall(line)
        return 0 < len(words) <= most and line.rstrip().endswith((":", "：")) and MASK not in line

    def is_last_cue(self, line: str) -> bool:
        """What may end a text so that the model takes over: a cue, also one with a value in it, a heading with nothing below it, "Begin!"."""
        if self.is_bare(line) or self.is_labelled(line):
            return False
        return (self.is_header(line) and len(_WORD.findall(line)) <= MAX_LAST_CUE_WORDS) or bool(
            _GO.fullmatch(line) or _THINK.match(line.strip())
        )

    def is_header(self, line: str) -> bool:
        """A line that says what follows it."""
        bare = line.strip()
        if not bare or len(_WORD.findall(bare)) > MAX_HEADING_WORDS:
            return False
        return bare.rstrip("*_ ").endswith((":", "：")) or bool(_HEADING.match(line))

    def in_fence(self, at: int) -> bool:
        """Whether the place lies between the marks of a code fence."""
        return sum(1 for line in self.masked[:at].split("\n") if line.lstrip().startswith("```")) % 2 == 1


def _unbulleted(line: str) -> str:
    bullet = _BULLET.match(line)
    return line[bullet.end() :] if bullet else line


def plan(prose: Prose, start: int, end: int) -> Move | None:
    """How the slot between two offsets gets behind the fixed text, or None when it cannot without changing what the text says."""
    start, end = _whole_section(prose, start, end)
    unit = _unit(prose, start, end)
    if unit is None:
        return None
    first, last, whole = unit
    goal = _goal(prose)
    if not prose.masked[last:goal].strip() or _breaks_reference(prose, first, last, goal):
        return None
    if any(low < first < high or low < last < high for low, high in (*prose.slots, *prose.sections)):
        return None
    if _MARKUP.search(prose.masked, first, goal) or _inside_frame(prose, first, last):
        return None
    return Move(first, last, goal, whole)


def to_the_end(prose: Prose, move: Move) -> Move | None:
    """The move to the very end, also behind what seems to be the question; None behind words that leave the turn to the model."""
    lines = [line for line in prose.masked[move.goal :].split("\n") if line.strip()]
    closing = bool(lines) and (prose.is_cue(lines[-1], MAX_LAST_CUE_WORDS) or prose.is_last_cue(lines[-1]))
    answered = any(_ANSWER.fullmatch(line) for line in lines)
    closing = closing or _THINK.search(prose.masked) is not None
    if closing or answered or _MARKUP.search(prose.masked, move.goal):
        return None
    return replace(move, goal=len(prose.text))


def _inside_frame(prose: Prose, first: int, last: int) -> bool:
    """Whether a heading above and its end below ("## File content" to "## End file content") hold the stretch."""
    for end in _NAMED_END.finditer(prose.masked, last):
        name = re.compile(rf"^[ \t]*\W*{re.escape(end[1].strip())}\W*$", re.IGNORECASE | re.MULTILINE)
        if name.search(prose.masked, 0, first):
            return True
    return False


def stretch(prose: Prose, start: int, end: int) -> tuple[int, int, bool] | None:
    """What would go along with the slot into another text, and whether it is whole lines; None when it cannot leave this one."""
    unit = _unit(prose, start, end)
    if unit is None or _breaks_reference(prose, unit[0], unit[1], len(prose.text)):
        return None
    return unit


def _whole_section(prose: Prose, start: int, end: int) -> tuple[int, int]:
    for low, high in prose.sections:
        if low <= start and end <= high:
            return low, high
    return start, end


def _unit(prose: Prose, start: int, end: int) -> tuple[int, int, bool] | None:
    """The stretch that goes along, and whether it is whole lines."""
    top, bottom = prose.line_start(start), prose.line_end(max(end - 1, start))
    text = prose.masked[top:bottom].rstrip("\n")
    ahead = prose.masked[:top]
    framed = len(_OPENS.findall(ahead)) > len(_ENDS.findall(ahead)) and _ENDS.search(prose.masked, bottom)
    if framed or _ANNOUNCED.search(ahead):
        return None  # inside a frame ("[BEGIN DATA]" to "[END DATA]"), or where the text says what comes first
    if prose.in_fence(top) or re.search(rf"[\"'][\w ]+[\"']\s*:\s*[\"'\[{{]*{MASK}", text):
        return _fenced(prose, top, bottom)
    if _NUMBERED.match(text) and not prose.is_bare(text):
        return None
    if prose.is_bare(text):
        return _bare(prose, top, bottom)
    if prose.is_labelled(text):
        return _labelled(prose, top, bottom)
    return _sentence(prose, start, end)


def _fenced(prose: Prose, top: int, bottom: int) -> tuple[int, int, bool] | None:
    """A fence that holds nothing but the slot, with its marks and what announces it."""
    before = prose.line_before(top)
    if before is None or not prose.is_bare(prose.masked[top:bottom].rstrip("\n")):
        return None
    mark = _FENCE.fullmatch(prose.line(before))
    behind = _FENCE.fullmatch(prose.line(bottom)) if bottom < len(prose.masked) else None
    if mark is None or behind is None or mark[1] != behind[1]:
        return None
    return _with_header(prose, before, prose.line_end(bottom))


def _bare(prose: Prose, top: int, bottom: int) -> tuple[int, int, bool] | None:
    before = prose.line_before(top)
    behind = prose.line(bottom) if bottom < len(prose.masked) else ""
    if before is not None:
        above = prose.line(before)
        opened, closed = _OPEN_TAG.fullmatch(above), _CLOSE_TAG.fullmatch(behind)
        if opened and closed and opened[1] == closed[1]:
            return _with_header(prose, before, prose.line_end(bottom))
        if opened:
            return None  # one of several things in a tagged part
        mark, other = _FENCE.fullmatch(above), _FENCE.fullmatch(behind)
        if mark and other and mark[1] == other[1]:
            return _with_header(prose, before, prose.line_end(bottom))
    else:
        above = ""
    header = prose.line_before(before) if before is not None and not above.strip() else before
    headed = header is not None and prose.is_header(prose.line(header))
    if _is_entry(prose, above) or (headed and _is_entry(prose, behind)):
        return _labelled(prose, top, bottom)  # one of a list
    return _with_header(prose, top, bottom)


def _with_header(prose: Prose, top: int, bottom: int) -> tuple[int, int, bool] | None:
    """Whole lines together with the line that announces them, over at most one empty line."""
    before = prose.line_before(top)
    blank = before is not None and not prose.line(before).strip()
    if blank and before is not None:
        before = prose.line_before(before)
    if before is None:
        return top, bottom, True
    above = prose.line(before)
    if prose.is_header(above):
        if _NUMBERED.match(above) or _OPEN_TAG.fullmatch(above) or _ROLE.match(above) or _JOINS.match(above):
            return None
        higher = prose.line_before(before)
        if _BULLET.match(above) and higher is not None and prose.line(higher).strip():
            return None  # one of a list
        if bottom < len(prose.masked) and _END_MARK.fullmatch(prose.line(bottom)):
            bottom = prose.line_end(bottom)
        fenced = _within_fence(prose, before, bottom)
        if fenced is not None:
            return _with_header(prose, *fenced)
        return (before, bottom, True) if _free_above(prose, before) else None
    if above.rstrip().endswith((":", "：")):
        return None  # announced by a sentence that stays
    if _ANNOUNCES.search(above):
        alone = len(_STOP.findall(above)) == 1 and not _BULLET.match(above) and not _ROLE.match(above)
        return (before, bottom, True) if alone and _free_above(prose, before) else None
    # Glued to the line above, it is the end of a thought that is not ours to cut.
    if (
        not blank
        and above.strip()
        and not _STOP.search(above.rstrip()[-4:])
        and not prose.is_labelled(above)
        and not prose.is_bare(above)
    ):
        return None
    return top, bottom, True


def _within_fence(prose: Prose, top: int, bottom: int) -> tuple[int, int] | None:
    """The lines with the two marks around them, when one stands right above and the other right below."""
    above = prose.line_before(top)
    if above is None or bottom >= len(prose.masked):
        return None
    opening, closing = _FENCE.fullmatch(prose.line(above)), _FENCE.fullmatch(prose.line(bottom))
    return (above, prose.line_end(bottom)) if opening and closing and opening[1] == closing[1] else None


def _labelled(prose: Prose, top: int, bottom: int) -> tuple[int, int, bool] | None:
    """A labelled line with its neighbours of the same kind: they are a list, whose order says something (a question, then its options)."""
    while (before := prose.line_before(top)) is not None and _is_entry(prose, prose.line(before)):
        top = before
    while bottom < len(prose.masked) and _is_entry(prose, prose.line(bottom)):
        bottom = prose.line_end(bottom)
    bullet = _BULLET.match(prose.line(top))
    following = prose.line(bottom) if bottom < len(prose.masked) else ""
    if bullet and _BULLET.match(following):
        return None  # the list goes on with fixed entries
    before = prose.line_before(top)
    above = prose.line(before) if before is not None else ""
    if before is not None and not above.strip() and prose.is_bare(prose.line(top)):
        return _with_header(prose, top, bottom)
    if before is None or not above.strip():
        return (top, bottom, True) if not bullet or before is None or _free_above(prose, top) else None
    if prose.is_header(above):
        if _OPEN_TAG.fullmatch(above) or _ROLE.match(above) or _NUMBERED.match(above):
            return None
        return (before, bottom, True) if _free_above(prose, before) else None
    return None if bullet else (top, bottom, True)


def _is_entry(prose: Prose, line: str) -> bool:
    return prose.is_labelled(line) or prose.is_bare(line)


def _sentence(prose: Prose, start: int, end: int) -> tuple[int, int, bool] | None:
    """The whole sentence around a slot, when it stands for itself."""
    low, high = _paragraph(prose, start, end)
    first, last = low, high
    for stop in _STOP.finditer(prose.masked, low, high):
        if stop.end() <= start:
            first = stop.end()
        elif stop.start() >= end:
            last = stop.end()
            break
    while first < start and prose.masked[first].isspace():
        first += 1
    sentence = prose.masked[first:last]
    bullet = _BULLET.match(prose.masked, prose.line_start(first))
    head = sentence.lstrip(" \t\"'`*_(")
    if bullet is not None and bullet.end() >= first:
        if not _FACT.search(sentence):
            return None
        head = _unbulleted(sentence)
        first = prose.line_start(first)
    if prose.words(first, last) > MAX_SENTENCE_WORDS or not _stands_alone(head, sentence):
        return None
    following = prose.masked[last:high].lstrip()
    if following and _ANAPHOR.match(following.lstrip("\"'`*_(")):
        return None
    before = prose.masked[low:first].rstrip()
    if before and not _STOP.search(before[-4:]):
        return None  # a heading or a line without an end runs into it
    if before == "" and low > 0 and not _free_above(prose, low):
        return None
    begin = prose.line_start(first)
    whole = (
        not prose.masked[begin:first].strip() and prose.masked[last : prose.line_end(max(last - 1, 0))].strip() == ""
    )
    return (begin, prose.line_end(max(last - 1, first)), True) if whole else (first, last, False)


def _stands_alone(head: str, sentence: str) -> bool:
    if not head or _ANAPHOR.match(head) or not (head[0].isupper() or head[0] == MASK or not head[0].isascii()):
        return False
    bare = sentence.strip()
    if bare.endswith((":", ",", ";", "：")):
        return False
    pairs = all(bare.count(one) == bare.count(other) for one, other in ("()", "[]", "{}", "“”"))
    return pairs and bare.count('"') % 2 == 0 and bare.count("`") % 2 == 0 and "|" not in bare


def _paragraph(prose: Prose, start: int, end: int) -> tuple[int, int]:
    """The lines around a slot that belong together: up to an empty line, a list entry, a heading or a tag."""
    low = prose.line_start(start)
    while (before := prose.line_before(low)) is not None:
        line = prose.line(before)
        if not line.strip() or _BULLET.match(prose.line(low)) or prose.is_header(line) or _ends_block(prose, line):
            break
        low = before
    high = prose.line_end(max(end - 1, start))
    while high < len(prose.masked):
        line = prose.line(high)
        opens = _BULLET.match(line) or _HEADING.match(line) or _OPEN_TAG.match(line) or _CLOSE_TAG.match(line)
        if not line.strip() or opens or prose.is_labelled(line):
            break
        high = prose.line_end(high)
    while high > end and prose.masked[high - 1] in " \t\n":
        high -= 1
    return low, high


def _ends_block(prose: Prose, line: str) -> bool:
    """A line behind which something new begins: a tag, a heading, a label with its value."""
    return bool(_HEADING.match(line) or _OPEN_TAG.fullmatch(line) or _CLOSE_TAG.search(line)) or prose.is_labelled(line)


def _free_above(prose: Prose, low: int) -> bool:
    """Whether the line above a paragraph leaves it alone: no announcement, no opening tag."""
    before = prose.line_before(low)
    while before is not None and not prose.line(before).strip():
        before = prose.line_before(before)
    if before is None:
        return True
    line = prose.line(before)
    if _OPEN_TAG.fullmatch(line):
        return False
    return not line.rstrip().rstrip("*_").endswith((":", "：")) or line.strip().startswith("#")


def _goal(prose: Prose) -> int:
    """Where values belong: the end of the text, ahead of what stands there already: values with their headings, and a cue for the answer."""
    end = len(prose.masked)
    bottom = len(prose.masked.rstrip())
    if not bottom:
        return end
    last = _answer_line(prose, prose.line_start(bottom))
    line: int | None = last
    if prose.is_last_cue(prose.line(last)) or _ANSWER.fullmatch(prose.line(last)):
        end = last  # never behind the words that leave the turn to the model
    found: int | None = None
    words = 0
    closed: list[tuple[str, int]] = []  # tags that end in the tail: name, and where the tail would begin behind them
    while line is not None:
        text = prose.line(line)
        closing, opening = _CLOSE_TAG.fullmatch(text), _OPEN_TAG.fullmatch(text)
        heads = found is not None and prose.is_header(text) and not _NUMBERED.match(text)
        entry = (
            _is_entry(prose, text)
            or prose.is_cue(text, MAX_CUE_WORDS if found is not None else MAX_LAST_CUE_WORDS)
            or closing
            or _FENCE.fullmatch(text)
            or (line == last and (prose.is_last_cue(text) or _ANSWER.fullmatch(text)))
        )
        words += prose.words(line, prose.line_end(line))
        if (text.strip() and not entry and not heads) or words > MAX_TAIL_WORDS:
            if found is not None and prose.is_header(text):
                return end  # what stands in the tail belongs to a line above it
            break
        if closing:
            closed.append((closing[1], prose.line_end(line)))
        elif opening and closed and closed[-1][0] == opening[1]:
            closed.pop()
        if text.strip():
            found = line
        if heads and not entry and not closed:
            break
        line = prose.line_before(line)
    if closed:
        found = closed[0][1] if closed[0][1] < bottom else None
        return end if found is None else found
    if found is None:
        return _before_cue(prose, end)
    if any(low < found < high for low, high in prose.sections) or prose.in_fence(found):
        return end
    return found


def _answer_line(prose: Prose, line: int) -> int:
    """The line that asks for the answer, when only the shape of the answer stands behind it; else the last line."""
    above: int | None = line
    for _ in range(MAX_SHAPE_LINES):
        above = prose.line_before(above) if above is not None else None
        if above is None or prose.words(above, len(prose.masked)) > MAX_TAIL_WORDS or MASK in prose.masked[above:]:
            break
        if _ANSWER.fullmatch(prose.line(above)):
            return above
    return line


def _before_cue(prose: Prose, goal: int) -> int:
    """Ahead of a cue that ends the last line ("... Summary:", "... Let's think step by step.")."""
    think = _THINK.search(prose.masked)
    if think is not None:
        return len(prose.masked[: think.start()].rstrip())
    stops = list(_STOP.finditer(prose.masked.rstrip()))
    if not stops:
        return goal
    at = stops[-1].end()
    rest = prose.masked[at:]
    if "\n" not in rest.strip() and prose.is_cue(rest):
        return at
    return goal


def _breaks_reference(prose: Prose, first: int, last: int, goal: int) -> bool:
    """Whether words that point at places ("above", "the following") would point elsewhere."""
    moved = prose.masked[first:last]
    if _BACK.search(moved) or _BELOW.search(moved):
        return True
    pointing = _FORTH.search(moved)
    if pointing and MASK not in moved[pointing.end() :]:
        return True
    passed = prose.masked[last:goal]
    following = passed.lstrip()
    if _ANAPHOR.match(following.lstrip("\"'`*_(")):
        return True
    words = {word.lower() for word in _WORD.findall(prose.text[first:last])}  # the names of values, too
    beside = (prose.line_above(first), following.partition("\n\n")[0])
    named = (match[1].lower() for text in beside for match in _THIS.finditer(text))
    return any(word in words for word in named) or bool(_BACK.search(passed))
