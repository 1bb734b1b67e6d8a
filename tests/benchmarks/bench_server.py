# ruff: noqa: T201 - it prints its results
"""How long the language server takes for a change: CPU time of a quick look after a line of comment, a statement in a function, and a word in a text.

Run: python tests/benchmarks/bench_server.py FOLDER FILE. The time of a fixed loop stands beside it, so that figures from machines under load can be compared.
"""

import ast
import sys
from pathlib import Path
from statistics import median
from time import process_time

from promptlint.app.live import Live
from promptlint.config import Settings

LONG = 160  # characters from which a literal counts as a text


def main(folder, file):
    """Print the CPU times in milliseconds."""
    path = Path(folder, file)
    text = path.read_text("utf-8")
    live = Live(Settings(Path(folder)))
    start = process_time()
    live.look({path: text})
    print(f"first look: {(process_time() - start) * 1000:.0f} ms", flush=True)
    print(
        f"after a change in {len(text.splitlines())} lines, until the file's own diagnostics and until all are there:"
    )
    for name, at, typed in changes(text):
        first, whole = [], []
        for number in range(5):
            new = text[:at] + typed.format(number) + text[at:]
            start = process_time()
            look = live.look({path: new}, quick=True, hasty=True)
            first.append((process_time() - start) * 1000)
            if look.waiting:
                live.look({path: new}, quick=True)
            whole.append((process_time() - start) * 1000)
        line = text.count("\n", 0, at) + 1
        print(f"  {name} (line {line}): median {median(first):.0f} ms, {median(whole):.0f} ms", flush=True)
        live.look({path: text}, quick=True)
    start = process_time()
    sum(number * number for number in range(3_000_000))
    print(f"a loop of 3 million squares: {(process_time() - start) * 1000:.0f} ms")


def changes(text):
    """What is typed, and at which offset: at the top, in a function in the first third of the file, in the middle one of the long texts."""
    tree, starts = ast.parse(text), [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    yield "comment", 0, "# {}\n"
    nodes = sorted((node for node in ast.walk(tree) if hasattr(node, "lineno")), key=lambda node: node.lineno)
    functions = [
        node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.body) > 3
    ]
    if functions:
        statement = functions[len(functions) // 3].body[2]
        yield "statement", starts[statement.lineno - 1], " " * statement.col_offset + "counted_{0} = {0}\n"
    texts = [node for node in nodes if _size(node) >= LONG]
    for node in texts[len(texts) // 2 :] + texts:
        at = text.find(" the ", starts[node.lineno - 1], starts[node.end_lineno])
        if at >= 0 and _parses(text[:at] + " word" + text[at:]):
            yield "text", at, " word{}"
            return


def _size(node):
    if isinstance(node, ast.JoinedStr):
        return sum(map(_size, node.values))
    return len(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else 0


def _parses(text):
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
