"""Renders chat templates in a process of its own. Run by path, not imported: it needs nothing but Jinja and the standard library.

A template is somebody else's program. The sandbox refuses attributes and unbounded ranges; loops, output, products and the memory of the process are counted here; what
none of this stops, the parent ends by the clock. Requests and answers are one line of JSON each: `{"template", "jobs": [{"variables", "now", "trace"}]}` and a list of
`{"text"}` or `{"error", "kind", "line"}`, with `"chunks"` where a trace was asked for.

A trace tells which line of the template wrote what: `[line, characters, decisions]` for each piece of output at the top level, where decisions are the
`[line, outcome]` of the conditions that were evaluated since the piece before.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from jinja2 import (
    FunctionLoader,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
    Undefined,
    UndefinedError,
    nodes,
    pass_context,
)
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_TURNS = 500_000  # of all loops of one rendering together
MAX_OUTPUT = 4_000_000  # characters
MAX_PRODUCT = 4_000_000  # items or characters that one multiplication may make
MAX_MEMORY = 1 << 29  # bytes of address space, where the system can limit it


class LimitError(Exception):
    """The template does more than a chat template has to."""


class Generation(Extension):
    """The tag with which transformers marks the text of the assistant; it renders as its body."""

    tags = {"generation"}  # noqa: RUF012 (Jinja reads it from the class)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class Bounded(SandboxedEnvironment):
    """A sandbox that also counts."""

    intercepted_binops = frozenset(("*", "**"))

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """Engines print nothing for it, until it is used; whoever reads the verdict shall know at once."""
        raise SecurityError(f"access to attribute {attribute!r} of a {type(obj).__name__!r} object")

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" and (not isinstance(left, (int, float)) or abs(right) > 64):
            raise LimitError(f"raises to the power of {right}")
        for one, other in ((left, right), (right, left)):
            if isinstance(one, (str, list, tuple)) and isinstance(other, int) and len(one) * other > MAX_PRODUCT:
                raise LimitError(f"repeats something {other} times")
        return super().call_binop(context, operator, left, right)


class Instrument(NodeTransformer):
    """Counts the turns of loops; with `trace`, also notes which line writes what, and how conditions came out."""

    def __init__(self, trace: bool) -> None:
        self.trace = trace
        self.inner = 0  # within a macro or a set block, whose text is written elsewhere

    def wrapped(self, node: nodes.Node, name: str, line: int) -> nodes.Filter:
        return nodes.Filter(node, name, [nodes.Const(line)], [], None, None, lineno=line)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 (the name is Jinja's)
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "_turns", [], [], None, None, lineno=node.lineno)
        if self.trace and node.test is not None:
            node.test = self.wrapped(node.test, "_decided", node.lineno)
        return node

    def visit_If(self, node: nodes.If) -> nodes.Node:  # noqa: N802 (the name is Jinja's)
        self.generic_visit(node)
        if self.trace:
            node.test = self.wrapped(node.test, "_decided", node.lineno)
        return node

    visit_CondExpr = visit_If  # noqa: N815 (the name is Jinja's)

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802 (the name is Jinja's)
        self.generic_visit(node)
        if self.trace and not self.inner:
            node.nodes = [
                self.wrapped(
                    nodes.Const(part.data, lineno=part.lineno) if isinstance(part, nodes.TemplateData) else part,
                    "_wrote",
                    part.lineno,
                )
                for part in node.nodes
            ]
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802 (the name is Jinja's)
        self.inner += 1
        self.generic_visit(node)
        self.inner -= 1
        return node

    visit_AssignBlock = visit_CallBlock = visit_FilterBlock = visit_Macro  # noqa: N815 (the names are Jinja's)


class Run:
    """The counts and the trace of one rendering; `start` begins the next."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Forget the rendering before."""
        self.turns = 0
        self.chunks: list[tuple[int, int, list[tuple[int, bool]]]] = []
        self.decisions: list[tuple[int, bool]] = []

    def filters(self) -> dict[str, Any]:
        """What `Instrument` puts into a template. They take the context, or Jinja would compute those of constants when it compiles."""

        @pass_context
        def turns(_: Any, items: Any) -> Any:
            # A value that knows its length keeps it, for `loop.length` and `loop.last` ask for it.
            if isinstance(items, (list, tuple, dict, str, range)):
                self.count(len(items))
                return items
            return items if isinstance(items, Undefined) else self.iterated(items)

        @pass_context
        def decided(_: Any, value: Any, line: int) -> Any:
            self.decisions.append((line, bool(value)))
            return value

        @pass_context
        def wrote(_: Any, value: Any, line: int) -> str:
            text = str(value)
            self.chunks.append((line, len(text), self.decisions))
            self.decisions = []
            return text

        return {"_turns": turns, "_decided": decided, "_wrote": wrote}

    def count(self, turns: int) -> None:
        """Raise LimitError when all loops together turn too often."""
        self.turns += turns
        if self.turns > MAX_TURNS:
            raise LimitError(f"loops more than {MAX_TURNS} times")

    def iterated(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.count(1)
            yield item


def to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """`tojson` as transformers and vLLM define it for chat templates (transformers 4.57): keys in their order, nothing escaped for HTML."""
    if isinstance(indent, int) and indent > 100:
        raise LimitError(f"indents by {indent}")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=tuple(separators) if separators else None,
        sort_keys=sort_keys,
    )


def refuse(message: str) -> None:
    """`raise_exception` of chat templates."""
    raise TemplateError(message)


class Session:
    """One template, compiled once plainly and once with a trace."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.run = Run()
        self.moment = dt.datetime.fromtimestamp(0, dt.UTC)
        # As transformers makes it: blocks are trimmed.
        self.environment = Bounded(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do", Generation],
            loader=FunctionLoader(lambda _: None),  # names what an include asks for
            cache_size=0,
            optimized=False,  # the sandbox shall see every operation, those on constants too
        )
        self.environment.filters.update(tojson=to_json, fromjson=json.loads, from_json=json.loads, **self.run.filters())
        self.environment.filters["random"] = pass_context(lambda _, items: self.drawn(items))
        self.environment.globals.update(raise_exception=refuse, strftime_now=self.strftime_now, now=lambda: self.moment)
        self.renderings = 0
        self.compiled: dict[bool, Any] = {}

    def strftime_now(self, spec: str) -> str:
        """The global of transformers, by our clock."""
        return self.moment.strftime(spec)

    def drawn(self, items: Any) -> Any:
        """The filter `random`: another item in each rendering, so that the outcome shows it, and the same in each run of ours."""
        found = list(items)
        return found[self.renderings % len(found)] if found else self.environment.undefined("no item to draw")

    def template(self, trace: bool) -> Any:
        if trace not in self.compiled:
            tree = Instrument(trace).visit(self.environment.parse(self.source))
            self.compiled[trace] = self.environment.from_string(tree)
        return self.compiled[trace]

    def render(self, job: dict[str, Any]) -> dict[str, Any]:
        """One rendering; raises what the template provokes."""
        trace = bool(job.get("trace"))
        template = self.template(trace)
        self.run.start()
        self.renderings += 1
        self.moment = dt.datetime.fromisoformat(job["now"])
        written: list[str] = []
        size = 0
        for text in template.generate(**job["variables"]):
            size += len(text)
            if size > MAX_OUTPUT:
                raise LimitError(f"writes more than {MAX_OUTPUT} characters")
            written.append(text)
        answer: dict[str, Any] = {"text": "".join(written)}
        if trace:
            answer["chunks"] = self.run.chunks
        return answer


def attempt(session: Session, job: dict[str, Any]) -> dict[str, Any]:
    """A rendering in which every error becomes an answer."""
    try:
        return session.render(job)
    except TemplateSyntaxError as error:
        return {"error": error.message or "not a template", "kind": "syntax", "line": error.lineno}
    except SecurityError as error:
        return {"error": str(error), "kind": "forbidden", "line": line_of(error)}
    except TemplateNotFound as error:
        return {"error": f"needs another template, {error.name!r}", "kind": "include", "line": line_of(error)}
    except UndefinedError as error:
        return {"error": str(error), "kind": "undefined", "line": line_of(error)}
    except TemplateError as error:
        return {"error": str(error), "kind": "refused", "line": line_of(error)}
    except (LimitError, OverflowError) as error:
        return {"error": str(error), "kind": "limit", "line": line_of(error)}
    except MemoryError:
        return {"error": f"needs more than {MAX_MEMORY >> 20} MB of memory", "kind": "limit", "line": 1}
    except RecursionError:
        return {"error": "calls itself without end", "kind": "limit", "line": 1}
    except Exception as error:  # noqa: BLE001 (whatever a template provokes is an answer)
        return {"error": f"{type(error).__name__}: {error}", "kind": "failed", "line": line_of(error)}


def line_of(error: BaseException) -> int:
    """The template's line: Jinja rewrites the traceback so that the frames of a template carry its own lines."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def main() -> None:
    """Answer requests until the input ends."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    except (ImportError, ValueError, OSError):
        pass  # no such limit here: the parent's clock remains
    session: Session | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if session is None or session.source != request["template"]:
            session = Session(request["template"])
        answers = [attempt(session, job) for job in request["jobs"]]
        sys.stdout.write(json.dumps(answers) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
