"""The pipeline behind `promptlint advise`: workloads, code and traffic to a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from promptlint import __version__
from promptlint.advisor.advice import PoolAdvice, advise_pool
from promptlint.advisor.estimate import MAX_REPLICAS, Given, Lever
from promptlint.advisor.prompts_alone import Order, OrdersAdvice, judge
from promptlint.advisor.verdict import RuleBook, load_rule_book
from promptlint.advisor.workload import Workload, default_requests, load_workloads, tokens_of, with_changes
from promptlint.app.atomic import writing
from promptlint.app.measured import Measured, load_measured
from promptlint.errors import UserError
from promptlint.report.advise import Advice, EngineRow, LeverRow, ReasonRow, Reordering, StructuredRow, VerdictRow
from promptlint.report.words import count

__all__ = ["Asked", "run"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user gave; names and meanings are those of the options of `promptlint advise`."""

    paths: tuple[Path, ...] = ()
    workload: Path | None = None
    traffic: tuple[str, ...] = ()
    apply_order: str | None = None
    batch: bool = False
    write_traffic: Path | None = None
    measured: Path | None = None
    current: str | None = None
    observed: float | None = None
    profile: str = "typical"
    tokenizer: str | None = None
    render: str | None = None
    form: str = "auto"
    tools: Path | None = None
    extra_rules: tuple[Path, ...] = ()
    no_tipping: bool = False


@dataclass(slots=True)
class _Said:
    """What the parts of a run contribute to the report."""

    reorderings: list[Reordering] = field(default_factory=list)
    assumptions: dict[str, Any] = field(default_factory=dict)
    causes: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    current: str | None = None
    given: Given | None = None
    verdicts: list[OrdersAdvice] = field(default_factory=list)
    structured: list[StructuredRow] = field(default_factory=list)


def run(asked: Asked, progress: Callable[[str], None] | None = None) -> Advice:
    """The report. Raises UserError for a workload, a measurement, traffic or a path that does not fit, and when nothing was given to advise on."""
    said = _Said(current=asked.current)
    book = load_rule_book(asked.extra_rules)
    if asked.paths or (asked.workload is None and not asked.traffic):
        _advise_code(asked, said, book)
    if asked.traffic:
        _advise_traffic(asked, said, book, progress)
    elif asked.apply_order or asked.write_traffic:
        raise UserError("--apply-order and --write-traffic need --traffic")
    pools: list[PoolAdvice] = []
    measured = load_measured(asked.measured) if asked.measured is not None else None
    if measured is not None and asked.workload is None:
        said.notes.append(
            f"{asked.measured} was not used: engines are compared for a described workload, give the one that was measured with --workload"
        )
    if asked.workload is not None:
        for workload in load_workloads(asked.workload, described=said.given is None):
            if progress:
                progress(f"simulating {workload.name}")
            if measured is not None and measured.workload and measured.workload != workload.name:
                said.notes.append(
                    f"{workload.name}: the measurement is of another workload, {measured.workload}; what it says of this one is a guess"
                )
            pools.append(
                advise_pool(
                    _changed(workload, asked, said.current, measured),
                    book,
                    tipping=not asked.no_tipping,
                    given=said.given,
                )
            )
            said.causes += [vars_of(cause) for cause in pools[-1].causes]
    return Advice(
        __version__,
        tuple(_verdict(pool) for pool in pools) or tuple(_orders_verdict(one) for one in said.verdicts),
        tuple(row for pool in pools for row in _levers(pool)),
        tuple(row for pool in pools for row in _engines(pool, book, measured)),
        (*said.reorderings, *(row for pool in pools for row in _reordering(pool))),
        {**said.assumptions, **_assumptions(pools, book, given=said.given is not None)},
        tuple(book.text()),
        tuple(said.causes),
        tuple(said.notes),
        tuple(said.structured),
    )


def vars_of(cause: Any) -> dict[str, Any]:
    """A likely cause as a mapping."""
    return {"cause": cause.cause, "why": cause.why, "confirm_with": cause.confirm_with}


def _advise_code(asked: Asked, said: _Said, book: RuleBook) -> None:
    """Recommended orders of the call sites of analysed code, under the traffic profile."""
    from promptlint.advisor.reorder import propose_all
    from promptlint.app.check import Request as CheckRequest
    from promptlint.app.check import analyse, find
    from promptlint.app.discovery import absolute, project_root
    from promptlint.config import load_settings

    paths = asked.paths or (Path(),)
    settings = replace(load_settings(project_root(absolute(paths[0])), None), profile=asked.profile)
    if asked.tokenizer:
        settings = replace(settings, tokenizer=asked.tokenizer)
    request = CheckRequest(paths, Path.cwd())
    analysis = analyse(settings, request, find(settings, request))
    given = {analysis.project.display(path) for path in analysis.project.given}
    sites = [site for site in analysis.result.call_sites if site.prompt.path in given]
    profile = f"profile {asked.profile}, no traffic log"
    said.assumptions |= {"code": ", ".join(map(str, paths)), "call_sites": len(sites), **_profile_words(asked.profile)}
    if not sites:
        said.notes.append(
            "No call site was read in the given paths: `promptlint show` says what was looked at, `promptlint record -- COMMAND` records what is sent."
        )
    inferred = _inferred_current([site.prompt.provider for site in sites])
    if asked.current is None and inferred:
        said.current = inferred
    said.assumptions["current"] = f"{said.current or 'unknown'}" + (
        " (inferred from the sinks)" if asked.current is None and inferred else ""
    )
    _structured_code(sites, said, asked.tokenizer)
    own_server = asked.current in {"vllm", "sglang"}
    # The whole project is context: an order that other call sites have is one to share. Advice is for the given paths.
    asked_for = {site.prompt.id for site in sites}
    proposals = [
        one for one in propose_all(analysis.result.call_sites, own_server=own_server) if one.call_site in asked_for
    ]
    said.verdicts += _code_verdicts(sites, proposals, asked, book, profile)
    for proposal in proposals:
        said.reorderings.append(
            Reordering(
                proposal.call_site,
                proposal.before,
                proposal.after,
                proposal.hit_rate_now,
                proposal.hit_rate_then,
                proposal.tokens_saved,
                proposal.money_saved,
                proposal.meaning_risk,
                (*proposal.moved, *proposal.kept),
                proposal.diff,
                profile,
            )
        )
    if sites and not said.reorderings:
        said.notes.append(
            f"No prompt of the {len(sites)} call sites that were read gains from another order under this profile."
        )
    if asked.workload is None and sites:
        said.notes.append(
            "Nothing is said about engines: that needs a model, a GPU and a load. Describe them in a file (examples/workloads) and give it with --workload."
        )


_NOT_INSTALLED = (
    "What a grammar forces of the answers is computed with llguidance: install promptlint-cache[structured]."
)
_ANSWERS = 50  # of a call site, walked through its grammar


def _structured_code(sites: Sequence[Any], said: _Said, tokenizer: str | None) -> None:
    """The share of call sites with a schema; for those that spell it out, what its grammar forces of an example answer."""
    from promptlint.advisor import structured
    from promptlint.ir import BlockKind, Text

    with_schema = [site for site in sites if site.prompt.structured_output]
    if not with_schema:
        return
    said.assumptions["structured_output"] = f"{len(with_schema)} of {len(sites)} call sites use a schema"
    if not structured.installed():
        said.notes.append(_NOT_INSTALLED)
        return
    unread = []
    for site in with_schema:
        nodes = [item.node for item in site.rendered.items if item.kind is BlockKind.SCHEMA]
        text = "".join(node.value for node in nodes if isinstance(node, Text))
        found = structured.schema_in(text) if all(isinstance(node, Text) for node in nodes) else None
        shares = _example_shares(found[1], tokenizer, said) if found else []
        if found is None or not shares:
            unread.append(site.id)
            continue
        basis = f"an example answer with texts of {structured.SHORT} to {structured.LONG} words"
        said.structured.append(StructuredRow(site.id, found[0], min(shares), max(shares), basis))
    if unread:
        said.notes.append(
            f"What a grammar forces is not known for {len(unread)} of {len(with_schema)} call sites, whose schema is a class or is built at run time "
            f"(the first: {unread[0]}); recorded traffic shows it"
        )


def _example_shares(schema: Any, tokenizer: str | None, said: _Said) -> list[float]:
    """Shares for an example answer with short and with long texts; empty when none can be made up."""
    import json

    from promptlint.advisor import structured

    try:
        answers = [json.dumps(structured.example(schema, words)) for words in (structured.SHORT, structured.LONG)]
    except ValueError:
        return []
    walked = _walked([(schema, answer) for answer in answers], tokenizer, said)
    return [one.share for one in walked] if len(walked) == len(answers) else []


def _structured_traffic(groups: dict[str, list[Any]], said: _Said, tokenizer: str | None) -> None:
    """The same for what was sent: requests with a schema, and what it forced of their answers."""
    from promptlint.advisor import structured
    from promptlint.tokenizers.render import content_text

    schemas = {
        name: [(record, found) for record in group if (found := _sent_schema(record)) is not None]
        for name, group in groups.items()
    }
    with_schema, total = sum(map(len, schemas.values())), sum(map(len, groups.values()))
    if not with_schema:
        return
    said.assumptions["structured_output"] = f"{with_schema:,} of {total:,} requests use a schema"
    if not structured.installed():
        said.notes.append(_NOT_INSTALLED)
        return
    for name, rows in schemas.items():
        answers = [
            (schema, content_text(record.output.get("content") if isinstance(record.output, dict) else record.output))
            for record, (_, schema) in rows[:_ANSWERS]
            if record.output
        ]
        walked = _walked(answers, tokenizer, said)
        if walked:
            share = sum(one.forced for one in walked) / sum(one.tokens for one in walked)
            said.structured.append(
                StructuredRow(name, rows[0][1][0], share, share, f"{len(walked)} answers of the traffic")
            )


def _walked(answers: Sequence[tuple[Any, str]], tokenizer: str | None, said: _Said) -> list[Any]:
    """The answers that follow their schemas, walked through the grammar."""
    from promptlint import tokenizers
    from promptlint.advisor.structured import forced_tokens

    try:
        found = [forced_tokens(schema, answer, tokenizer or tokenizers.DEFAULT) for schema, answer in answers]
    except UserError as error:
        said.notes.append(f"What a grammar forces was not computed: {error}")
        return []
    return [one for one in found if one is not None]


def _sent_schema(record: Any) -> tuple[str, Any] | None:
    from promptlint.advisor.structured import schema_in

    for place in (record.parameters, record.extra):
        for key in ("response_format", "text"):
            if key in place and (found := schema_in(place[key])) is not None:
                return found
    return None


def _code_verdicts(
    sites: Sequence[Any], proposals: Sequence[Any], asked: Asked, book: RuleBook, source: str
) -> list[OrdersAdvice]:
    """A verdict for each model that the call sites name, every call site counted as often as any other."""
    from promptlint.analysis import hit_rate

    own_server = asked.current in {"vllm", "sglang"}
    # What only a server of one's own would gain says nothing about a provider's bill.
    then = {proposal.call_site: proposal.hit_rate_then for proposal in proposals if own_server or proposal.by_terms}
    pools: dict[tuple[str, str], list[Order]] = {}
    known: dict[tuple[str, str], Any] = {}
    for site in sites:
        if not site.prompt_tokens:
            continue
        rendered, pool = site.rendered, (site.prompt.provider or "", site.prompt.model or "")
        terms, profile = None if own_server else rendered.terms, rendered.assumptions.profile
        now = hit_rate(rendered.main(), profile, terms)
        marked = hit_rate(rendered.main(), profile, terms, best_breakpoint=True)
        pools.setdefault(pool, []).append(Order(site.prompt_tokens, now, marked, then.get(site.id, marked)))
        known.setdefault(pool, terms)
    return [
        judge(
            " ".join(filter(None, pool)) or "prompts of an unknown client",
            pool[1],
            asked.current or _inferred_current([pool[0]]) or "none",
            orders,
            known[pool],
            book,
            source=source,
            requests=len(orders),
        )
        for pool, orders in sorted(pools.items(), key=lambda item: -sum(o.tokens * (o.then - o.now) for o in item[1]))
    ]


def _profile_words(name: str) -> dict[str, Any]:
    from promptlint.catalog.profiles import load_profile

    profile = load_profile(name)
    return {"profile": name, "requests_per_day": profile.requests_per_day}


_ENGINES_BY_PROVIDER = {"vllm": "vllm", "sglang": "sglang"}


def _inferred_current(providers: Sequence[str | None]) -> str | None:
    """What serves today, by the sinks: an engine's own client, else a provider's."""
    from collections import Counter

    named = Counter(_ENGINES_BY_PROVIDER.get(provider, "provider") for provider in providers if provider)
    return named.most_common(1)[0][0] if named else None


def _advise_traffic(asked: Asked, said: _Said, book: RuleBook, progress: Callable[[str], None] | None) -> None:
    """Recommended orders by what the values did, each replayed with its own values."""
    from promptlint import tokenizers
    from promptlint.advisor.moves import group_records, rewrite, rewrite_rows
    from promptlint.app.traffic import Tokens, open_traffic
    from promptlint.traffic.read import load

    traffic = open_traffic(asked.traffic, form=asked.form, tools=asked.tools)
    records = load(traffic)
    if not records:
        first = f"; first problem: {traffic.problems[0]}" if traffic.problems else ""
        raise UserError(f"no request could be read from {' '.join(asked.traffic)}{first}")
    tokens = Tokens(asked.tokenizer or tokenizers.DEFAULT, asked.render or "plain-tags")
    said.assumptions |= {
        "traffic": f"{len(records):,} records of {', '.join(asked.traffic)}",
        "replay": f"SGLang 0.5.23, page 1, unlimited capacity, one request at a time; {tokens.tokenizer}, rendered as {tokens.render}",
    }
    if traffic.problems:
        said.notes.append(f"{len(traffic.problems)} records could not be read; the first: {traffic.problems[0]}")
    groups = group_records(records)
    if not groups:
        raise UserError("the traffic holds no prompt text: token ids and block hashes cannot be put into another order")
    moved: dict[int, Any] = {}
    orders: dict[str, list[tuple[_Replayed, float]]] = {}  # by model
    for name, group in groups.items():
        if progress:
            progress(f"replaying {len(group):,} requests of {name}")
        now = _replay(group, tokens)
        if not asked.apply_order:
            # What is recommended below replaces the second figure.
            orders.setdefault(group[0].model, []).append((now, now.hit_rate))
        if asked.apply_order:
            said.reorderings.append(_applied(name, group, tokens, asked.apply_order, now))
            continue
        found = (rewrite_rows(name, group) if asked.batch else None) or rewrite(name, group)
        lists = len({str(record.tools) for record in group})
        if lists > 1 and not (found and any(move.path == "tools" for move in found.moves)):
            said.notes.append(
                f"{name}: {lists} different tool lists in {len(group):,} requests; tools are rendered first, so send one fixed list and restrict it by tool_choice"
            )
        if found is None:
            said.notes.append(f"{name}: nothing has to move; hit rate {now.hit_rate:.4f} in {now.requests:,} requests")
            continue
        then = _replay(found.records, tokens)
        if then.hit_rate - now.hit_rate < 0.001:
            said.notes.append(f"{name}: another order was tried and brings nothing; hit rate {now.hit_rate:.4f}")
            continue
        orders[group[0].model][-1] = (now, then.hit_rate)
        moved |= {
            id(old): new for old, new in zip(group, found.records, strict=True)
        }  # a batch job's rows stand in their new order
        said.reorderings.append(
            Reordering(
                name,
                found.before,
                found.after,
                now.hit_rate,
                then.hit_rate,
                (then.cached_tokens - now.cached_tokens) / max(1, now.requests),
                _money(group[0], (then.cached_tokens - now.cached_tokens) / max(1, now.requests)),
                "unsafe: moving text changes what the model reads; compare answers before and after",
                tuple(move.words() for move in found.moves),
                found.diff,
                f"replay of {count(now.requests, 'request')}",
            )
        )
    said.verdicts = [_traffic_verdict(model, rows, asked, said, book) for model, rows in orders.items()]
    _structured_traffic(groups, said, asked.tokenizer)
    if asked.workload is not None:
        said.given = _given(records, moved, tokens)
    if asked.write_traffic is not None:
        _write([moved.get(id(record), record) for record in records], asked.write_traffic)
    if asked.observed is not None:
        from promptlint.app.diagnose import run as diagnose

        outcome = diagnose(
            open_traffic(asked.traffic, form=asked.form, tools=asked.tools),
            tokenizer=asked.tokenizer,
            observed=asked.observed,
        )
        said.causes += [vars_of(cause) for cause in outcome.diagnosis.likely]


def _traffic_verdict(
    model: str, rows: Sequence[tuple[_Replayed, float]], asked: Asked, said: _Said, book: RuleBook
) -> OrdersAdvice:
    from promptlint.catalog.providers import page_for, resolve

    page = page_for("", model, asked.extra_rules) if model else None
    requests = sum(now.requests for now, _ in rows)
    return judge(
        model or "traffic without a model's name",
        model,
        asked.current or said.current or ("provider" if page is not None else "none"),
        [Order(now.prompt_tokens, now.hit_rate, now.hit_rate, then) for now, then in rows],
        resolve(page, model) if page is not None else None,
        book,
        source=f"replay of {count(requests, 'request')}",
        requests=requests,
    )


@dataclass(frozen=True, slots=True)
class _Replayed:
    requests: int
    prompt_tokens: int
    cached_tokens: int

    @property
    def hit_rate(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


def _replay(records: Sequence[Any], tokens: Any) -> _Replayed:
    """One request after the other through the radix tree, page 1, without a limit: what `promptlint simulate` does by default."""
    return _served(
        request for number, record in enumerate(records) if (request := _request(record, number, tokens)) is not None
    )


def _given(records: Sequence[Any], moved: dict[int, Any], tokens: Any) -> Given:
    """The traffic as requests, as it was sent and as it is recommended."""
    pairs = []
    for number, record in enumerate(records):
        now, then = _request(record, number, tokens), _request(moved.get(id(record), record), number, tokens)
        if now is not None and then is not None:
            pairs.append((now, then))
    if not pairs:
        raise UserError("the traffic holds no prompt text to simulate engines on")
    return Given(tuple(now for now, _ in pairs), tuple(then for _, then in pairs))


def _request(record: Any, number: int, tokens: Any) -> Any:
    """The request of a record, as `promptlint simulate` would replay it; None when it has no text or its template refuses it."""
    from promptlint.caches.request import TOKEN_BYTES, Request, common_prefix
    from promptlint.traffic.record import OUTPUT, Unreadable

    try:
        made = tokens.of(record)
    except Unreadable:
        return None
    if made is None or not made.prompt:
        return None
    output = made.output
    if not output and record.output is not None:
        # Rendered as plain tags the answer stands in what is stored; a scheduler needs it as tokens of its own.
        shared = common_prefix(made.stored, made.prompt, 0, len(made.prompt))
        output = made.stored[shared - shared % TOKEN_BYTES :]
    length = record.output_length or record.usage.get(OUTPUT) or 0
    if not output and length:
        output = tokens_of(0, ("answer", number), length)
    return Request(
        number,
        made.prompt,
        output,
        namespace=(record.model, record.namespace),
        timestamp=(record.timestamp or 0.0) / 1000.0,
        session=record.session_id or None,
        kept=made.stored,
    )


def _served(requests: Iterable[Any]) -> _Replayed:
    from promptlint.caches.radix import RadixCache

    cache = RadixCache()
    outcomes = [cache.admit(request) for request in requests]
    return _Replayed(len(outcomes), sum(o.prompt_tokens for o in outcomes), sum(o.cached_tokens for o in outcomes))


def _applied(name: str, group: Sequence[Any], tokens: Any, order: str, now: _Replayed) -> Reordering:
    """The traffic with the kinds of its blocks in the order that the user wants to try."""
    from promptlint.advisor.moves import blocks_in_order, kinds_of

    kinds = [kind.strip() for kind in order.split(",") if kind.strip()]
    if tokens.render != "plain-tags":
        raise UserError("--apply-order needs --render plain-tags: a chat template fixes the order of its blocks")
    segments = tokens.segments(tokens.tokenizer)
    made = []
    for number, record in enumerate(group, 1):
        request = _request(record, number, tokens)
        if request is None:
            continue
        runs, stored = blocks_in_order(record, kinds)
        made.append(
            replace(request, prompt=segments.packed(runs), kept=segments.packed(stored) if stored is not None else None)
        )
    then = _served(made)
    before = kinds_of(group[0])
    after = tuple(kind for kind in (*kinds, *(kind for kind in before if kind not in kinds)) if kind in before)
    saved = (then.cached_tokens - now.cached_tokens) / max(1, now.requests)
    return Reordering(
        name,
        before,
        after,
        now.hit_rate,
        then.hit_rate,
        saved,
        _money(group[0], saved),
        "unsafe: moving text changes what the model reads; compare answers before and after",
        (f"blocks in the order asked for: {', '.join(kinds)}",),
        "",
        f"replay of {count(now.requests, 'request')}",
    )


def _money(record: Any, tokens_saved: float) -> float | None:
    """Dollars that 1,000 requests save at the listed price of the traffic's model; None where there is none."""
    from promptlint.catalog.providers import page_for, resolve

    page = page_for("", record.model) if record.model else None
    terms = resolve(page, record.model) if page is not None else None
    if terms is None or terms.read is None or terms.input_price is None:
        return None
    return tokens_saved * (1 - terms.read) * terms.input_price / 1e6 * 1000


def _write(records: Sequence[Any], path: Path) -> None:
    import json

    try:
        with writing(path) as file:
            for record in records:
                file.write(
                    (json.dumps(record.to_json(), ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
                )
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror or error}") from error


def _changed(workload: Workload, asked: Asked, current: str | None, measured: Measured | None) -> Workload:
    """The workload with what the command line says, and with the engine that the code's own sinks show where the file names none."""
    changes: dict[str, Any] = {"extra_rules": asked.extra_rules} if asked.extra_rules else {}
    if asked.current is not None:
        changes["current"] = asked.current
    elif workload.current == "none" and current in {"vllm", "sglang"}:
        changes["current"] = current
    if measured is not None:
        changes |= {"measured": measured.requests_per_second, "measured_ratio": measured.ratio}
        changes |= {"measured_words": measured.words} if measured.words else {}
    return with_changes(workload, **changes) if changes else workload


def _verdict(pool: PoolAdvice) -> VerdictRow:
    workload = pool.workload
    return VerdictRow(
        workload.name,
        workload.model or workload.provider,
        workload.current,
        pool.verdict.verdict,
        pool.verdict.rule.name,
        pool.verdict.because,
        tuple(ReasonRow(reason.fact, reason.value, reason.unit, reason.source) for reason in pool.reasons),
        pool.would_change_if,
        pool.caveats,
        pool.measurement,
    )


def _orders_verdict(one: OrdersAdvice) -> VerdictRow:
    return VerdictRow(
        one.pool,
        one.model,
        one.current,
        one.verdict.verdict,
        one.verdict.rule.name,
        one.verdict.because,
        tuple(ReasonRow(reason.fact, reason.value, reason.unit, reason.source) for reason in one.reasons),
        one.would_change_if,
        one.caveats,
        one.measurement,
    )


def _lever_json(lever: Lever) -> dict[str, Any]:
    return {
        "hit_rate": lever.hit_rate,
        "hit_rate_gain": lever.hit_rate_gain,
        "requests_per_second": lever.requests_per_second,
        "gain": lever.gain,
        "gpus": lever.gpus,
    }


def _levers(pool: PoolAdvice) -> list[LeverRow]:
    return [
        LeverRow(pool.workload.name, alone.name, alone.change, _lever_json(alone), _lever_json(stacked))
        for alone, stacked in pool.levers
    ]


def _engines(pool: PoolAdvice, book: RuleBook, measured: Measured | None) -> list[EngineRow]:
    """The engines as simulated; where the user has measured them, as measured."""
    if measured is not None and measured.engines:
        return [
            EngineRow(
                pool.workload.name,
                engine,
                "measured",
                one.hit_rate,
                one.prefill_tokens,
                one.requests_per_second,
                (one.requests_per_second,) * 2,
                one.ttft_p50_ms,
                one.ttft_p99_ms,
                {},
            )
            for engine, one in sorted(measured.engines.items())
        ]
    low, high = book.thresholds["engine_factor_low"], book.thresholds["engine_factor_high"]
    rows = []
    for result in pool.engines:
        # The factor is SGLang's over vLLM's; vLLM is the one that everything is relative to.
        span = (
            (result.requests_per_second * low, result.requests_per_second * high)
            if result.engine == "sglang"
            else (result.requests_per_second,) * 2
        )
        rows.append(
            EngineRow(
                pool.workload.name,
                result.engine,
                result.schedule,
                result.hit_rate,
                result.prefill_tokens,
                result.requests_per_second,
                (span[0], span[1]),
                result.ttft_p50_ms,
                result.ttft_p99_ms,
                result.share,
                result.seconds,
            )
        )
    return rows


def _reordering(pool: PoolAdvice) -> list[Reordering]:
    """The order of the described prompt, where another one caches better."""
    prompts = next((alone for alone, _ in pool.levers if alone.name == "prompts"), None)
    if prompts is None or prompts.hit_rate_gain <= 0.005 or pool.order_now == pool.order_then:
        return []
    workload = pool.workload
    now = float(pool.facts["hit_rate"])
    return [
        Reordering(
            workload.name,
            pool.order_now or ("any order (mixed)",),
            pool.order_then,
            now,
            prompts.hit_rate,
            workload.prompt_tokens * prompts.hit_rate_gain,
            float(pool.facts["input_dollars"]) - float(pool.facts["input_dollars_then"])
            if "input_dollars" in pool.facts
            else None,
            "unsafe: moving text changes what the model reads; compare answers before and after",
            ("blocks by how long they stay the same, longest first",),
            "",
            "simulation of the described traffic",
        )
    ]


def _assumptions(pools: Sequence[PoolAdvice], book: RuleBook, *, given: bool) -> dict[str, Any]:
    if not pools:
        return {}
    found: dict[str, Any] = {
        "prompts": "the given traffic" if given else "synthetic traffic, from the workload description",
    }
    if any(pool.pool is not None for pool in pools):
        low, high = book.thresholds["engine_factor_low"], book.thresholds["engine_factor_high"]
        found |= {
            "engines": "SGLang 0.5.23 and vLLM 0.32.0 as modelled by promptlint; the engine factor beyond that is "
            f"{book.thresholds['engine_factor']:.2f}, range {low:.2f} to {high:.2f}",
            "warm_up": "the first fifth of the requests, and at least one of each session under way, fills the caches before the clock starts",
            "cost_model": "roofline over rules/hardware and rules/models; checked against measured kernel times within 3 to 13 %",
        }
    for pool in pools:
        workload = pool.workload
        prefix = f"{workload.name}: " if len(pools) > 1 else ""
        found[f"{prefix}requests"] = workload.requests or default_requests(workload)
        if pool.pool is not None:
            found[f"{prefix}load"] = (
                f"{workload.arrivals:g} requests a second for times, {workload.concurrency} under way at saturation"
                if workload.arrivals
                else f"{workload.concurrency} requests under way"
            )
            found[f"{prefix}pool"] = (
                f"{pool.pool.tokens:,} tokens a replica ({workload.model} on {workload.gpu}, tensor parallel {workload.tensor_parallel}, KV in {workload.kv_dtype})"
            )
        if workload.replicas > 1:
            found[f"{prefix}replicas"] = f"{workload.replicas} behind {workload.router}" + (
                f", simulated as {MAX_REPLICAS} with the same load each" if workload.replicas > MAX_REPLICAS else ""
            )
    return found
