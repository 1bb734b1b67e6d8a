"""Drafts the mail that a person at the desk will check and send."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from openai import OpenAI

from support.desk import GUIDELINES, POLICIES

client = OpenAI()
templates = Environment(loader=FileSystemLoader(Path(__file__).parent / "prompts"), autoescape=False)


def draft(customer_name: str, question: str) -> str:
    """A mail that answers a question."""
    system = templates.get_template("mail.jinja").render(customer_name=customer_name, guidelines=GUIDELINES, policies=POLICIES)
    reply = client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[
            {"role": "system", "content": system},
            {"role": "user", "content": question},
        ],
    )
    return reply.choices[0].message.content
