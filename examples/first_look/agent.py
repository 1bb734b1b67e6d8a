from datetime import datetime

from openai import OpenAI

client = OpenAI()
RULES = """You answer questions about bicycles that our shop has sold.
Answer from the manual and from nothing else. When the manual is silent, say so and offer to ask the workshop.
Give torque values in newton metres, and name the bolt that they belong to. Never guess a torque value.
Brakes and forks are repaired by the workshop only: describe the fault, ask for the frame number, and offer a date.
Prices are those of the list, with tax. Promise no discount, and no date that the calendar does not hold.
Answer in the language of the question, in at most five sentences, and end with the number of the manual's page."""


def answer(question: str, history: list[dict[str, str]]) -> str:
    system = {"role": "system", "content": f"It is {datetime.now():%Y-%m-%d %H:%M:%S}.\n{RULES}"}
    messages = [system, *history, {"role": "user", "content": question}]
    reply = client.chat.completions.create(model="gpt-4o-mini", messages=messages)
    return reply.choices[0].message.content
