"""The chat templates of llama.cpp and vLLM, judged one by one.

PROMPTLINT_CHAT_TEMPLATES names a folder with the unpacked source archives of llama-cpp-python 0.3.36 and vllm 0.33.0 (`tar xzf ARCHIVE`, nothing is built).
The 70 templates of llama.cpp and 44 of vLLM: its examples, those that it ships, and two older copies in its Rust tests that differ from the
examples. The counts agree with an independent measurement of the same templates by rendering, but for the one that is named below.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from promptlint.frontends import chat_template
from promptlint.frontends.base import Project
from promptlint.ir import TemplateVerdict

FOLDER = os.environ.get("PROMPTLINT_CHAT_TEMPLATES", "")
pytestmark = [pytest.mark.data, pytest.mark.skipif(not FOLDER, reason="not run: PROMPTLINT_CHAT_TEMPLATES is not set")]

PLACES = (
    "llama_cpp_python-0.3.36/vendor/llama.cpp/models/templates/*.jinja",
    "vllm-0.33.0/examples/*.jinja",
    "vllm-0.33.0/vllm/transformers_utils/chat_templates/*.jinja",
    "vllm-0.33.0/rust/src/chat/tests/templates/vllm_examples/tool_chat_template_gemma4.jinja",
    "vllm-0.33.0/rust/src/chat/tests/templates/vllm_examples/tool_chat_template_granite.jinja",
)


@pytest.fixture(scope="module")
def verdicts() -> list[TemplateVerdict]:
    paths = sorted(path for place in PLACES for path in Path(FOLDER).glob(place))
    assert len(paths) == 114
    reading = chat_template.read(Project(Path(FOLDER), paths, frozenset(paths), Path(FOLDER)), paths, seconds=60)
    assert reading.unread == ()
    return list(reading.templates)


def test_counts(verdicts: list[TemplateVerdict]) -> None:
    # The other measurement has 62 and 4. The one that differs must be fireworks-ai-llama-3-firefunction-v2: it renders only when it is given `functions`
    # and `datetime`, and then it opens an answer at the end of every text, as two of the other four do. That is stable in serving.
    assert Counter(verdict.verdict for verdict in verdicts) == {
        "stable": 61,
        "stable-in-serving": 5,
        "generation-prompt-not-replayed": 17,
        "rewrites-history": 31,
    }
    assert Counter(verdict.date for verdict in verdicts) == {"never": 100, "always": 7, "without-system": 7}
    assert sum(verdict.drops_reasoning for verdict in verdicts) == 17
    assert sum(verdict.moves_tools for verdict in verdicts) == 5
    assert sum(verdict.moves_system for verdict in verdicts) == 3
    assert not [verdict for verdict in verdicts if verdict.moves_system and not verdict.moves_tools]


@pytest.mark.parametrize(
    "name, line",
    [
        ("Qwen-Qwen3-0.6B", 39),
        ("GLM-4.6", 60),
        ("mistralai-Mistral-Nemo-Instruct-2407", 51),
        ("meta-llama-Llama-3.2-3B-Instruct", 33),
    ],
)
def test_the_guilty_line(name: str, line: int, verdicts: list[TemplateVerdict]) -> None:
    (verdict,) = [verdict for verdict in verdicts if verdict.path.endswith(f"/{name}.jinja")]
    assert verdict.line == line
