"""Shapes of open models (rules/models/*.toml), or of a model described by a Hugging Face `config.json`.

Only what the memory and the time of a forward pass follow from: layers, heads, widths, experts, and how each kind of layer stores what it has read. Parameter
counts are computed from the shape, never typed in, so that a wrong row shows up as a wrong published size (tests/catalog/test_models.py).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

from promptlint.catalog import load_toml, toml_files
from promptlint.errors import UserError

__all__ = ["BITS", "Model", "load_models", "model_from_config", "resolve_model"]

# Bits a weight or a key or value takes, scales included: int4 with one 16-bit scale and a zero point per 128, mxfp4 with 8 bits per 32, nvfp4 with 8 bits per 16.
BITS = {"fp32": 32.0, "bf16": 16.0, "fp16": 16.0, "fp8": 8.0, "int8": 8.0, "int4": 4.15625, "mxfp4": 4.25, "nvfp4": 4.5}

_SUFFIX = re.compile(r"-(instruct|chat|it|hf|base|pt|v0\.[0-9]+|[0-9]{4})$")
# Keys of config.json that change what a layer stores or weighs in a way that is not modelled: better no number than a wrong one.
_UNMODELLED = {
    "compress_ratios": "compressed attention",
    "routed_expert_hidden_size": "experts of another width than the model",
    "cross_attention_layers": "cross-attention layers",
    "num_kv_shared_layers": "layers that share keys and values",
    "block_configs": "layers of different shapes",
    "moe_latent_size": "experts of another width than the model",
    "sparse_attention_config": "block-sparse attention",
    "indexer_types": "an indexer that layers share",
}


@dataclass(frozen=True, slots=True)
class Model:
    """One decoder-only language model. Widths count elements, sizes count tokens; the vision or audio tower, if any, is left out.

    `full_layers` + `window_layers` + `linear_layers` are the layers that mix tokens; `ff_layers` those with a feed-forward part (in most models all layers are
    in both counts). `kv_lora_rank` > 0 means multi-head latent attention: one latent of `kv_lora_rank + rope_dim` elements a token and layer.
    """

    name: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    full_layers: int
    ff: int = 0  # width of a dense feed-forward part
    ff_layers: int = 0  # layers with a feed-forward part, dense or of experts
    ff_matrices: int = 3  # gate, up and down; 2 where there is no gate
    aliases: tuple[str, ...] = ()
    value_dim: int = 0  # width of a head's value where it differs from its key
    tied: bool = False  # input and output embedding are one matrix
    window_layers: int = 0
    window: int = 0  # tokens a window layer looks back
    window_kv_heads: int = 0  # where they differ from the full layers'
    window_head_dim: int = 0
    window_value_dim: int = 0
    chunked: bool = False  # the windows are fixed chunks, not sliding
    linear_layers: int = 0  # Mamba, gated delta net and the like: a fixed state per sequence
    state_bytes: int = 0  # of all linear layers, per sequence
    linear_params: int = 0  # parameters of one linear layer's mixer
    kv_lora_rank: int = 0
    rope_dim: int = 0
    nope_dim: int = 0
    q_lora_rank: int = 0
    index_head_dim: int = 0  # sparse attention: keys of the indexer
    index_heads: int = 0
    index_topk: int = 0
    experts: int = 0
    experts_per_token: int = 0
    shared_width: int = 0  # width of all shared experts together
    expert_width: int = 0
    dense_layers: int = 0  # of the ff_layers, those without experts
    weights: str = "bf16"  # as published, a word of BITS
    quantised: str = "linear"  # what `weights` holds for: linear (all but the embeddings) or experts
    context: int = 0  # longest sequence, 0 unknown
    source: str = ""

    @property
    def layers(self) -> int:
        """Layers that mix tokens."""
        return self.full_layers + self.window_layers + self.linear_layers

    @property
    def attention_layers(self) -> int:
        """Layers whose memory grows with the sequence."""
        return self.full_layers + self.window_layers

    @property
    def is_latent(self) -> bool:
        """Multi-head latent attention: the cached latent cannot be cut by heads."""
        return self.kv_lora_rank > 0

    @property
    def is_moe(self) -> bool:
        """A mixture of experts."""
        return self.experts > 0

    @property
    def special_attention(self) -> str:
        """Why prefix reuse of this model is not the plain case: "hybrid", "sliding-window", "sparse", or "" when it is."""
        if self.linear_layers:
            return "hybrid"
        if self.window_layers:
            return "sliding-window"
        return "sparse" if self.index_topk else ""

    @property
    def attention_params(self) -> int:
        """Parameters of all token-mixing layers."""
        full = self.full_layers * self._attention(self.kv_heads, self.head_dim, self.value_dim)
        kv_heads, head_dim = self.window_kv_heads or self.kv_heads, self.window_head_dim or self.head_dim
        window = self.window_layers * self._attention(kv_heads, head_dim, self.window_value_dim or self.value_dim)
        return full + window + self.linear_layers * self.linear_params

    def _attention(self, kv_heads: int, head_dim: int, value_dim: int) -> int:
        value = value_dim or head_dim
        if not self.is_latent:
            return self.hidden * (self.heads * (head_dim + value) + kv_heads * (head_dim + value))
        key = self.nope_dim + self.rope_dim
        query = (
            self.hidden * self.q_lora_rank + self.q_lora_rank * self.heads * key
            if self.q_lora_rank
            else self.hidden * self.heads * key
        )
        latent = self.hidden * (self.kv_lora_rank + self.rope_dim) + self.kv_lora_rank * self.heads * (
            self.nope_dim + value
        )
        indexer = self.index_heads * self.index_head_dim * self.q_lora_rank + self.hidden * (
            self.index_head_dim + self.index_heads
        )
        return query + latent + self.heads * value * self.hidden + (indexer if self.index_topk else 0)

    @property
    def expert_params(self) -> int:
        """Parameters of all routed experts."""
        return (
            (self.ff_layers - self.dense_layers) * self.experts * self.ff_matrices * self.hidden * self.expert_width
            if self.is_moe
            else 0
        )

    @property
    def feed_forward_params(self) -> int:
        """Parameters of dense feed-forward parts, shared experts and routers."""
        if not self.is_moe:
            return self.ff_layers * self.ff_matrices * self.hidden * self.ff
        sparse = self.ff_layers - self.dense_layers
        dense = self.dense_layers * self.ff_matrices * self.hidden * self.ff
        return dense + sparse * (self.ff_matrices * self.hidden * self.shared_width + self.hidden * self.experts)

    @property
    def embedding_params(self) -> int:
        """Input and output embedding."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def params(self) -> int:
        """All parameters but norms and biases, which are below a thousandth."""
        return self.attention_params + self.expert_params + self.feed_forward_params + self.embedding_params

    @property
    def matmul_params(self) -> int:
        """Parameters that one token is multiplied with in the layers: only the chosen experts; no embeddings (P_mm)."""
        active = self.expert_params * self.experts_per_token // self.experts if self.is_moe else 0
        return self.attention_params + self.feed_forward_params + active

    def weight_bytes(self, weights: str | None = None) -> float:
        """Bytes of all parameters when the linear layers are held as `weights` (default: as published)."""
        return sum(self.weight_parts(weights))

    def weight_parts(self, weights: str | None = None) -> tuple[float, float]:
        """Bytes of (token-mixing layers, everything else), see weight_bytes. Embeddings stay 16-bit."""
        kind = weights or self.weights
        if kind not in BITS:
            raise UserError(f"weights {kind!r}: unknown; one of {', '.join(BITS)}")
        inner = BITS[kind] / 8
        # A quantised checkpoint may leave everything but the experts alone (gpt-oss); a precision asked for by the user holds for all linear layers.
        outer = 2.0 if self.quantised == "experts" and weights is None else inner
        rest = self.expert_params * inner + self.feed_forward_params * outer + self.embedding_params * 2.0
        return self.attention_params * outer, rest


@cache
def load_models(extra: tuple[Path, ...] = ()) -> dict[str, Model]:
    """Every row of rules/models and the user's own, by normalised name and alias. Raises UserError for a row that does not fit."""
    known = {field.name for field in fields(Model)}
    models: dict[str, Model] = {}
    for path in toml_files("models", extra):
        data = load_toml(path)
        for row in data.get("model", ()):
            if unknown := set(row) - known:
                raise UserError(f"{path}: model {row.get('name')!r}: unknown keys {', '.join(sorted(unknown))}")
            try:
                model = Model(
                    **{
                        **row,
                        "aliases": tuple(row.get("aliases", ())),
                        "source": row.get("source", data.get("source", "")),
                    }
                )
            except TypeError as error:
                raise UserError(f"{path}: a row does not fit: {row!r}: {error}") from error
            for name in (model.name, *model.aliases):
                models[_normal(name)] = model
    return models


def _normal(name: str) -> str:
    """A model's name without its owner, case, and the words that do not change its shape ("-Instruct", "-0324")."""
    short = name.rsplit("/", 1)[-1].lower().replace("_", "-").replace(" ", "-").removeprefix("meta-")
    while (shorter := _SUFFIX.sub("", short)) != short:
        short = shorter
    return short


def resolve_model(name: str, extra: tuple[Path, ...] = ()) -> Model:
    """A model by name ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"), or by the path of a `config.json` or of the folder that holds one.

    Raises UserError when there is none; the message names the closest.
    """
    path = Path(name)
    if path.is_dir():
        path /= "config.json"
    if path.suffix == ".json":
        return model_from_config(path)
    models = load_models(extra)
    found = models.get(_normal(name))
    if found is None:
        close = difflib.get_close_matches(_normal(name), models, n=3)
        hint = f"; did you mean {', '.join(dict.fromkeys(models[c].name for c in close))}?" if close else ""
        raise UserError(
            f"model {name!r} is not in rules/models{hint}; the path of a Hugging Face config.json is accepted too"
        )
    return found


def model_from_config(path: Path) -> Model:
    """The shape that a Hugging Face config.json describes. Raises UserError naming the field that is missing, or that is not modelled."""
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: not a model config: a JSON object is expected")
    name = str(data.get("_name_or_path") or "").rsplit("/", 1)[-1] or (
        path.parent.name if path.name == "config.json" else path.stem
    )
    outer = data
    data = {**outer, **outer["text_config"]} if isinstance(outer.get("text_config"), dict) else outer
    return _Config(path, data).model(name or "model")


class _Config:
    """One config.json, read with errors that name the field."""

    def __init__(self, path: Path, data: Mapping[str, Any]) -> None:
        self.path = path
        self.data = data

    def number(self, *names: str, default: int | None = None) -> int:
        """The first of the fields that is a whole number above 0; a missing one falls back to `default`, or is an error without it."""
        for name in names:
            value = self.data.get(name)
            if value is None or value is False:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise UserError(f"{self.path}: {name} = {value!r}: a whole number is expected")
            if value or default is not None:
                return value
            raise UserError(f"{self.path}: {name} = 0: a number above 0 is expected")
        if default is None:
            raise UserError(
                f"{self.path}: {' or '.join(names)} is missing: not the config of a decoder that is modelled"
            )
        return default

    def model(self, name: str) -> Model:
        """The model; see model_from_config."""
        data = self.data
        for key, what in _UNMODELLED.items():
            if data.get(key):
                raise UserError(
                    f"{self.path}: {key}: {what} not modelled; describe the model in a TOML row instead (extra-rules)"
                )
        hidden = self.number("hidden_size", "n_embd", "d_model")
        heads = self.number("num_attention_heads", "n_head", "n_heads")
        kv_heads = self.number("num_key_value_heads", default=heads)
        latent = self.number("kv_lora_rank", default=0)
        head_dim = self.number("head_dim", "attention_head_dim", default=hidden // heads)
        layers = self.number("num_hidden_layers", "n_layer", "n_layers")
        full, window, linear, ff_layers = self._layers(layers)
        experts = self.number("n_routed_experts", "num_local_experts", "num_experts", default=0)
        width = self.number("moe_intermediate_size", default=0) or (self.number("intermediate_size") if experts else 0)
        shared = self.number(
            "moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "share_expert_dim", default=0
        )
        if "llama4" in str(data.get("model_type")):  # one shared expert that the config does not mention
            shared = width
        if data.get("enable_moe_block"):  # Gemma 4: a dense part beside the experts of each layer
            shared = self.number("intermediate_size")
        weights, quantised = self._weights()
        # Gemma 4 widens its global layers, MiMo its windowed ones; elsewhere the two kinds are alike.
        global_dim, global_heads = (
            self.number("global_head_dim", default=0),
            self.number("num_global_key_value_heads", default=0),
        )
        state, linear_params = self._linear(hidden, linear)
        return Model(
            name=name,
            hidden=hidden,
            heads=heads,
            kv_heads=global_heads or kv_heads,
            head_dim=global_dim
            or (self.number("qk_nope_head_dim") + self.number("qk_rope_head_dim") if latent else head_dim),
            value_dim=self.number("v_head_dim", default=0),
            vocab=self.number("vocab_size"),
            tied=bool(data.get("tie_word_embeddings", str(data.get("model_type", "")).startswith("gemma"))),
            full_layers=full,
            window_layers=window,
            window=self.number("sliding_window", "attention_chunk_size", default=0) if window else 0,
            window_kv_heads=self.number("swa_num_key_value_heads", default=kv_heads) if window else 0,
            window_head_dim=self.number("swa_head_dim", default=head_dim) if window else 0,
            window_value_dim=self.number("swa_v_head_dim", default=0) if window else 0,
            chunked=bool(window and not data.get("sliding_window")),
            linear_layers=linear,
            state_bytes=state,
            linear_params=linear_params,
            ff=self.number("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", default=4 * hidden),
            ff_layers=ff_layers,
            ff_matrices=2
            if str(data.get("mlp_hidden_act", data.get("activation_function", "")))
            in {"relu2", "gelu_new", "gelu", "relu"}
            else 3,
            kv_lora_rank=latent,
            rope_dim=self.number("qk_rope_head_dim") if latent else 0,
            nope_dim=self.number("qk_nope_head_dim") if latent else 0,
            q_lora_rank=self.number("q_lora_rank", default=0),
            index_head_dim=self.number("index_head_dim", default=0),
            index_heads=self.number("index_n_heads", default=0),
            index_topk=self.number("index_topk", default=0),
            experts=experts,
            experts_per_token=self.number(
                "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts"
            )
            if experts
            else 0,
            shared_width=shared or self.number("n_shared_experts", default=0) * width,
            expert_width=width,
            dense_layers=self._dense_layers(layers) if experts else 0,
            weights=weights,
            quantised=quantised,
            context=self.number("max_position_embeddings", "n_positions", default=0),
            source=str(self.path),
        )

    def _layers(self, layers: int) -> tuple[int, int, int, int]:
        """(full, window, linear, feed-forward) layers."""
        data = self.data
        if isinstance(
            pattern := data.get("hybrid_override_pattern"), str
        ):  # Nemotron-H: M state, * attention, E experts, - dense
            return pattern.count("*"), 0, pattern.count("M"), pattern.count("E") + pattern.count("-")
        if isinstance(pattern := data.get("layers_block_type"), list) and "moe" in pattern:  # the same, spelled out
            return pattern.count("attention"), 0, pattern.count("mamba"), pattern.count("moe") + pattern.count("mlp")
        if isinstance(pattern := data.get("hybrid_layer_pattern"), list):  # MiMo: 1 is a windowed layer
            return pattern.count(0), pattern.count(1), 0, layers
        if isinstance(kinds := data.get("layer_types"), list) and len(kinds) == layers:
            window = sum(kind in {"sliding_attention", "chunked_attention"} for kind in kinds)
            linear = sum(kind in {"linear_attention", "mamba", "mamba2", "recurrent"} for kind in kinds)
            if unknown := set(kinds) - {
                "full_attention",
                "sliding_attention",
                "chunked_attention",
                "linear_attention",
                "mamba",
                "mamba2",
                "recurrent",
                "attention",
            }:
                raise UserError(f"{self.path}: layer_types: {', '.join(sorted(map(str, unknown)))} not modelled")
            # Qwen lists every layer as full when its window is switched off; a window of None means the same.
            if window and not (data.get("sliding_window") or data.get("attention_chunk_size")):
                return layers - linear, 0, linear, layers
            return layers - window - linear, window, linear, layers
        if interval := self.number("full_attention_interval", default=0):
            return layers // interval, 0, layers - layers // interval, layers
        if isinstance(data.get("attn_layer_period"), int):  # Jamba
            full = len(range(self.number("attn_layer_offset", default=0), layers, data["attn_layer_period"]))
            return full, 0, layers - full, layers
        if data.get("attention_chunk_size") and not data.get("sliding_window"):  # Llama 4: every fourth layer sees all
            full = layers // 4
            return full, layers - full, 0, layers
        if data.get("sliding_window") and data.get("use_sliding_window", True):
            pattern = self.number("sliding_window_pattern", default=0) or (
                2 if data.get("model_type") == "gemma2" else 6 if "gemma3" in str(data.get("model_type")) else 0
            )
            full = layers // pattern if pattern else 0
            return full, layers - full, 0, layers
        return layers, 0, 0, layers

    def _dense_layers(self, layers: int) -> int:
        """Layers of a mixture that have no experts."""
        data = self.data
        if isinstance(pattern := data.get("hybrid_override_pattern"), str):
            return pattern.count("-")
        if isinstance(pattern := data.get("layers_block_type"), list):
            return pattern.count("mlp")
        if isinstance(freq := data.get("moe_layer_freq"), list):
            return freq.count(0)
        step = self.number("decoder_sparse_step", "interleave_moe_layer_step", default=1) or 1
        dense = self.number("first_k_dense_replace", default=0) or len(data.get("mlp_only_layers") or ())
        return dense + (layers - dense) - (layers - dense) // step

    def _linear(self, hidden: int, layers: int) -> tuple[int, int]:
        """(state bytes of all linear layers per sequence, parameters of one). State in 32 bits as both engines keep it, convolution in 16."""
        if not layers:
            return 0, 0
        if value_heads := self.number("linear_num_value_heads", default=0):  # gated delta net (Qwen3-Next, Qwen3.5)
            key_heads, key_dim = self.number("linear_num_key_heads"), self.number("linear_key_head_dim")
            value_dim, kernel = self.number("linear_value_head_dim"), self.number("linear_conv_kernel_dim")
            keys, values = key_heads * key_dim, value_heads * value_dim
            channels = 2 * keys + values
            state = value_heads * key_dim * value_dim * 4 + channels * (kernel - 1) * 2
            return layers * state, hidden * (channels + values + 2 * value_heads) + values * hidden
        heads, dim = (
            self.number("mamba_num_heads", "mamba_n_heads", default=0),
            self.number("mamba_head_dim", "mamba_d_head", default=0),
        )
        size = self.number("ssm_state_size", "mamba_d_state", default=0)
        if not (heads and dim and size):
            raise UserError(
                f"{self.path}: the state of its linear layers is not described in a form that is modelled (mamba_num_heads, linear_num_value_heads)"
            )
        groups, kernel = (
            self.number("n_groups", "mamba_n_groups", default=1),
            self.number("conv_kernel", "mamba_d_conv", default=4),
        )
        channels = heads * dim + 2 * groups * size
        state = heads * dim * size * 4 + channels * (kernel - 1) * 2
        return layers * state, hidden * (heads * dim + channels + heads) + heads * dim * hidden

    def _weights(self) -> tuple[str, str]:
        """(precision, what it holds for) from quantization_config and dtype."""
        config = self.data.get("quantization_config")
        beside = self.path.parent / "hf_quant_config.json"  # ModelOpt writes its settings there
        if not isinstance(config, dict) and beside.is_file():
            config = json.loads(beside.read_text("utf-8")).get("quantization")
        if isinstance(config, dict):
            method = str(config.get("quant_method", ""))
            algo = str(config.get("quant_algo", "")).lower()
            skipped = json.dumps(
                config.get("modules_to_not_convert") or config.get("ignore") or config.get("exclude_modules") or ()
            )
            holds = (
                "experts"
                if "self_attn" in skipped
                and self.number("n_routed_experts", "num_local_experts", "num_experts", default=0)
                else "linear"
            )
            for word in ("mxfp4", "nvfp4", "fp8"):
                if word in method or word in algo or word in str(config.get("format", "")):
                    return word, holds
            groups = config.get("config_groups")
            first: Any = next(iter(groups.values()), {}) if isinstance(groups, dict) else {}
            bits = (first.get("weights") or {}).get("num_bits") if isinstance(first, dict) else None
            bits = bits or config.get("bits") or (4 if config.get("load_in_4bit") else None)
            if bits in {4, 8}:
                return f"int{bits}", holds
            raise UserError(
                f"{self.path}: quantization_config: method {method!r} not modelled; give the weights' precision yourself"
            )
        dtype = str(self.data.get("torch_dtype") or self.data.get("dtype") or "bfloat16")
        return ("fp32" if "32" in dtype else "bf16"), "linear"
