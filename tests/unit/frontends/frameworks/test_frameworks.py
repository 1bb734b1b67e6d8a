"""What frameworks do to a prompt is visible where the user switches it on."""

import textwrap
from pathlib import Path

import pytest

from promptlint.frontends.base import Project
from promptlint.frontends.jinja import read_template
from promptlint.frontends.python import read
from promptlint.ir import BlockKind, Prompt, Reading, blocks_of, holes_of

RULES = 'RULES = "Answer from the manual only and never guess what a customer meant. " * 20\n'


def reading(tmp_path: Path, program: str) -> Reading:
    path = tmp_path / "app.py"
    path.write_text(RULES + textwrap.dedent(program), "utf-8")
    return read(Project(tmp_path, [path], frozenset([path]), tmp_path), templates=read_template)


def shape(prompt: Prompt) -> list[tuple[str, list[str]]]:
    """Kind of each block and the volatilities of its holes."""
    return [
        (block.kind.value, [hole.volatility.word for hole in holes_of(block.segments)])
        for block in blocks_of(prompt.blocks)
    ]


def edits(found: Reading) -> list[tuple[str, int, str]]:
    return [(edit.op, edit.span.line, edit.expression) for edit in found.edits]


AGNO = """
from agno.agent import Agent
bot = Agent(
    description="You help in a bicycle shop.",
    instructions=RULES,
    expected_output="A short answer.",
    {option},
)
"""


def test_an_option_puts_a_clock_where_the_framework_writes_it(tmp_path: Path) -> None:
    (prompt,) = reading(tmp_path, AGNO.format(option="add_datetime_to_context=True")).prompts
    assert shape(prompt) == [
        ("system", []),
        ("system", []),
        ("system", ["request"]),
        ("system", []),
        ("history", ["session"]),
    ]
    (hole,) = [
        hole
        for block in blocks_of(prompt.blocks)
        if block.kind is BlockKind.SYSTEM
        for hole in holes_of(block.segments)
    ]
    assert hole.expression == "add_datetime_to_context=True"
    assert hole.origins[0].kind == "clock"
    assert hole.span.line == 8


def test_an_option_that_is_off_does_nothing(tmp_path: Path) -> None:
    (prompt,) = reading(tmp_path, AGNO.format(option="add_datetime_to_context=False")).prompts
    assert shape(prompt) == [("system", []), ("system", []), ("system", [])]


def test_a_format_of_the_date_makes_it_a_day(tmp_path: Path) -> None:
    option = 'add_datetime_to_context=True, datetime_format="%d %B %Y"'
    (prompt,) = reading(tmp_path, AGNO.format(option=option)).prompts
    assert ("system", ["day"]) in shape(prompt)


def test_crewai_prints_the_day_behind_everything(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """
        from crewai import Agent
        clerk = Agent(role="Clerk", goal="Help", backstory=RULES, inject_date=True)
        """,
    )
    (prompt,) = found.prompts
    assert shape(prompt)[-2:] == [("system", ["day"]), ("history", ["session"])]


MEMORIES = {
    "trim_messages": (
        """
        from langchain_core.messages import trim_messages
        def fit(llm, messages):
            return llm.invoke(trim_messages(messages, max_tokens=4000, token_counter=llm))
        """,
        ["window"],
    ),
    "trim_messages keeps the head": (
        """
        from langchain_core.messages import trim_messages
        def fit(llm, messages):
            return llm.invoke(trim_messages(messages, max_tokens=4000, token_counter=llm, strategy="first"))
        """,
        [],
    ),
    "trim_messages makes one text fit": (
        """
        from langchain_core.messages import HumanMessage, trim_messages
        def fit(text, limit):
            return trim_messages([HumanMessage(content=text)], max_tokens=limit, token_counter=len)[-1].content
        """,
        [],
    ),
    "window memory": (
        """
        from langchain_classic.memory import ConversationBufferWindowMemory
        memory = ConversationBufferWindowMemory(k=5)
        """,
        ["window"],
    ),
    "whole memory": (
        """
        from langchain_classic.memory import ConversationBufferMemory
        memory = ConversationBufferMemory()
        """,
        [],
    ),
    "summary memory": (
        """
        from langchain_classic.memory import ConversationSummaryBufferMemory
        def memory(llm):
            return ConversationSummaryBufferMemory(llm=llm, max_token_limit=400)
        """,
        ["summarise"],
    ),
    "summarising middleware": (
        """
        from langchain.agents import create_agent
        from langchain.agents.middleware import SummarizationMiddleware
        agent = create_agent("gpt-4o", tools=[], system_prompt=RULES, middleware=[SummarizationMiddleware(model="gpt-4o-mini")])
        """,
        ["summarise"],
    ),
    "a model context of the last n": (
        """
        from autogen_core.model_context import BufferedChatCompletionContext
        def agent(client):
            return client.agent(model_context=BufferedChatCompletionContext(buffer_size=5))
        """,
        ["window"],
    ),
    "a memory with a token limit": (
        """
        from llama_index.core.memory import ChatMemoryBuffer
        memory = ChatMemoryBuffer.from_defaults(token_limit=3000)
        """,
        ["window"],
    ),
    "a hand-off between agents": (
        """
        from agents import Agent
        billing = Agent(name="billing", instructions="Answer questions about bills.")
        triage = Agent(name="triage", instructions="Send people on.", handoffs=[billing])
        """,
        ["hand-off"],
    ),
    "no hand-offs": (
        """
        from agents import Agent
        triage = Agent(name="triage", instructions="Send people on.", handoffs=[])
        """,
        [],
    ),
    "the same name from elsewhere": (
        """
        from shop.memory import ConversationBufferWindowMemory
        memory = ConversationBufferWindowMemory(k=5)
        """,
        [],
    ),
    "a relative import gains no library's identity": (
        """
        from .langchain_core.messages import trim_messages
        def fit(llm, messages):
            return llm.invoke(trim_messages(messages))
        """,
        [],
    ),
    "middleware cuts the state's messages": (
        """
        from langchain.agents.middleware import AgentMiddleware
        class Cut(AgentMiddleware):
            def before_model(self, state, runtime):
                return {"messages": state["messages"][-10:]}
        """,
        ["window"],
    ),
    "a retry rebuilds element 0": (
        """
        def extract(client, messages, error):
            for attempt in range(3):
                messages[0] = {"role": "system", "content": f"Extract the fields. Last error: {error}"}
                client.chat.completions.create(model="gpt-4o", messages=messages)
        """,
        ["set-front"],
    ),
}


@pytest.mark.parametrize("name", MEMORIES)
def test_what_happens_to_the_conversation(tmp_path: Path, name: str) -> None:
    program, expected = MEMORIES[name]
    assert [op for op, _, _ in edits(reading(tmp_path, program))] == expected


def test_the_place_of_an_option_is_its_argument(tmp_path: Path) -> None:
    found = reading(tmp_path, AGNO.format(option="num_history_runs=3"))
    assert edits(found) == [("window", 8, "num_history_runs=3")]


SYSTEM_HOOKS = {
    "a function that is the dynamic prompt": """
        import datetime
        from langchain.agents.middleware import dynamic_prompt
        @dynamic_prompt
        def build(request):
            return f"Now: {datetime.datetime.now()} {RULES}"
        """,
    "a wrapper of the model call": """
        import datetime
        from langchain.agents.middleware import AgentMiddleware, ModelRequest
        from langchain_core.messages import SystemMessage
        class Clock(AgentMiddleware):
            def wrap_model_call(self, request: ModelRequest, handler):
                text = f"Now: {datetime.datetime.now()} {RULES}"
                return handler(request.override(system_message=SystemMessage(content=text)))
        """,
    "a decorator of the agent": """
        import datetime
        from pydantic_ai import Agent
        agent = Agent("openai:gpt-4o")
        @agent.instructions
        def build() -> str:
            return f"Now: {datetime.datetime.now()} {RULES}"
        """,
}


@pytest.mark.parametrize("name", SYSTEM_HOOKS)
def test_a_hook_builds_the_system_text_of_each_request(tmp_path: Path, name: str) -> None:
    (prompt,) = reading(tmp_path, SYSTEM_HOOKS[name]).prompts
    assert shape(prompt) == [("system", ["request"]), ("history", ["session"])]


def test_middleware_chooses_the_tools(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """
        from langchain.agents.middleware import ModelRequest
        def choose(request: ModelRequest, handler, wanted):
            return handler(request.override(tools=[tool for tool in request.tools if tool.name in wanted]))
        """,
    )
    (prompt,) = found.prompts
    assert [kind for kind, _ in shape(prompt)] == ["tools", "history"]
    assert prompt.sink == "langchain.override"


def test_a_pulled_prompt_is_not_called_read(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """
        from langchain_classic import hub
        from langchain_openai import ChatOpenAI
        def ask(question):
            chain = hub.pull("owner/prompt") | ChatOpenAI(model="gpt-4o")
            return chain.invoke({"question": question})
        """,
    )
    (prompt,) = found.prompts
    assert [unresolved.reason for unresolved in prompt.unresolved] == ["hub"]
    assert prompt.resolution == 0.0


def test_tools_of_a_server_are_not_called_read(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """
        from mcp import ClientSession
        async def ask(client, session: ClientSession, question):
            tools = await session.list_tools()
            return client.chat.completions.create(
                model="gpt-4o", tools=tools, messages=[{"role": "system", "content": RULES}, {"role": "user", "content": question}]
            )
        """,
    )
    (prompt,) = found.prompts
    assert "remote-tools" in [unresolved.reason for unresolved in prompt.unresolved]


def test_an_import_under_another_name_is_the_same_class(tmp_path: Path) -> None:
    found = reading(
        tmp_path,
        """
        from agents import Agent as Helper
        billing = Helper(name="billing", instructions=RULES)
        triage = Helper(name="triage", instructions=RULES, handoffs=[billing])
        """,
    )
    assert [prompt.sink for prompt in found.prompts] == ["agents.Agent"] * 2
    assert [op for op, _, _ in edits(found)] == ["hand-off"]
