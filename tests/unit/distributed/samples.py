"""Logs in several files and formats, from a seed."""

import json
import random

MODELS = ("gpt-4o", "gpt-4o-mini", "claude-sonnet-4-5")


def rows(count, seed=1):
    """Requests of conversations of several models and tenants that share system prompts; some report usage, some ids repeat."""
    draw = random.Random(seed)
    words = [f"w{number}" for number in range(500)]
    heads = {(model, tenant): " ".join(draw.choices(words, k=60)) for model in MODELS for tenant in ("", "a", "b")}
    open_ = {}
    for number in range(count):
        key = (draw.choice(MODELS), draw.choice(("", "a", "b")), f"s{draw.randrange(count // 6 + 1)}")
        messages = open_.setdefault(key, [{"role": "system", "content": heads[key[:2]]}])
        messages.append({"role": "user", "content": " ".join(draw.choices(words, k=draw.randrange(3, 20)))})
        answer = {"role": "assistant", "content": " ".join(draw.choices(words, k=6))}
        row = {
            "timestamp": 1_700_000_000_000 + number * 50,
            "id": "twice" if number % 97 == 0 else f"r{number}",
            "model": key[0],
            "namespace": key[1],
            "session_id": key[2],
            "messages": list(messages),
            "output": answer,
        }
        if not key[1]:
            del row["namespace"]
        if number % 3 == 0:
            row["usage"] = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": number % 90}}
        messages.append(answer)
        if len(messages) > 8:
            open_.pop(key)
        yield row


def write(folder, records, files=3, *, parquet=True):
    """Some JSONL files with a broken line and a record that is no request, the last one as parquet."""
    folder.mkdir(parents=True, exist_ok=True)
    records = list(records)
    size = -(-len(records) // files)
    for number in range(files):
        part = records[number * size : (number + 1) * size]
        if parquet and number == files - 1:
            import pyarrow as pa
            import pyarrow.parquet as pq

            names = dict.fromkeys(name for row in part for name in row)
            table = [{name: _cell(row.get(name)) for name in names} for row in part]
            pq.write_table(pa.Table.from_pylist(table), folder / f"{number}.parquet")
            continue
        lines = [json.dumps(row) for row in part]
        lines.insert(2, '{"broken": ')
        lines.insert(5, '{"usage": {"prompt_tokens": 5}, "model": "x", "id": "cost"}')
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def _cell(value):
    return json.dumps(value) if isinstance(value, (dict, list)) else value
