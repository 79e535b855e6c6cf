"""Models of transformers with their own forward pass: reading in pieces, states, and the self-check."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from models.formats.round_trip import moved
from torch import Tensor, nn

from ssm.base.errors import CheckpointError
from ssm.evaluation.stream import FORWARD_TOKENS
from ssm.harness.reading import ScoredText, continuations, scores
from ssm.models.foreign import ForeignModel, ReadingMode, load_foreign
from ssm.models.foreign.kernels import without_kernels
from ssm.models.formats.source import find_source
from ssm.models.state import State

VOCABULARY = 67
ATTENTION = {
    "num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48,
}  # fmt: skip
MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8}
HYBRID = ["linear_attention", "full_attention", "linear_attention"]
# Name: config, reading, shapes of the states of two sequences. A release of transformers that corrects a cache changes
# the second column.
MODELS: dict[str, tuple[dict[str, Any], ReadingMode, list[tuple[int, ...]]]] = {
    "Llama": (ATTENTION, ReadingMode(False, True), []),
    "Mistral": (ATTENTION | {"sliding_window": 8}, ReadingMode(False, True), []),
    "GPT2LMHead": ({"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}, ReadingMode(False, True), []),
    "OPT": (
        {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 48,
         "word_embed_proj_dim": 32, "max_position_embeddings": 64},
        ReadingMode(False, True),
        [],
    ),
    "Bloom": ({"hidden_size": 32, "n_layer": 2, "n_head": 4}, ReadingMode(False, False), []),
    "FalconMamba": ({"hidden_size": 32, "num_hidden_layers": 2}, ReadingMode(True, False), [(2, 64, 16)] * 2),
    "Jamba": (
        ATTENTION | {"num_experts": 2, "mamba_d_state": 8, "mamba_dt_rank": 4, "use_mamba_kernels": False,
                     "attn_layer_period": 3, "attn_layer_offset": 1},
        ReadingMode(True, True),
        [(2, 64, 8)] * 2,
    ),
    "Bamba": (ATTENTION | MAMBA2 | {"attn_layer_indices": [1]}, ReadingMode(False, True), [(2, 4, 16, 8)] * 2),
    "FalconH1": (ATTENTION | MAMBA2 | {"mamba_d_ssm": 64}, ReadingMode(False, True), [(2, 4, 16, 8)] * 3),
    "Zamba2": (
        ATTENTION | {"num_hidden_layers": 4, "num_key_value_heads": 4, "n_mamba_heads": 4, "mamba_headdim": 16,
                     "mamba_d_state": 8, "mamba_ngroups": 1, "chunk_size": 8, "num_mem_blocks": 1, "adapter_rank": 4,
                     "layers_block_type": ["linear_attention", "hybrid"] * 2, "use_mem_rope": True},
        ReadingMode(False, True),
        [(2, 4, 16, 8)] * 4,
    ),
    "NemotronH": (
        {"hidden_size": 32, "layers_block_type": ["linear_attention", "mlp", "full_attention", "linear_attention"],
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48,
         "ssm_state_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 1, "chunk_size": 8},
        ReadingMode(False, True),
        [(2, 4, 16, 8)] * 2,
    ),
    "GraniteMoeHybrid": (
        ATTENTION | MAMBA2 | {"layer_types": HYBRID, "num_local_experts": 2, "num_experts_per_tok": 1,
                              "shared_intermediate_size": 48},
        ReadingMode(False, True),
        [(2, 4, 16, 8)] * 2,
    ),
    "OlmoHybrid": (
        ATTENTION | {"layer_types": HYBRID, "num_key_value_heads": 4, "linear_num_key_heads": 2,
                     "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 16},
        ReadingMode(False, True),
        [(2, 2, 8, 16)] * 2,
    ),
    "MiniMax": (
        ATTENTION | {"layer_types": HYBRID, "num_local_experts": 2, "block_size": 8, "head_dim": 8},
        ReadingMode(True, True),
        [(2, 4, 8, 8)] * 2,
    ),
    "xLSTM": (
        {"hidden_size": 128, "num_hidden_layers": 2, "num_heads": 2, "qk_dim_factor": 1.0, "chunk_size": 8,
         "chunkwise_kernel": "chunkwise--native_autograd", "sequence_kernel": "native_sequence__native",
         "step_kernel": "native", "weight_mode": "single"},
        ReadingMode(False, False),
        [(2, 2, 64, 64)] * 2,
    ),
}  # fmt: skip


def made(name: str, **changes: Any) -> Any:
    """A model of transformers with random weights."""
    torch.manual_seed(0)
    model_class = getattr(transformers, f"{name}Model" if name.endswith("LMHead") else f"{name}ForCausalLM")
    tokens = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    sizes = MODELS[name][0] if name in MODELS else {}
    return moved(model_class(model_class.config_class(**(tokens | sizes | changes))))


def tokens(length: int = 45) -> Tensor:
    """(B, T)"""
    return torch.randint(3, VOCABULARY, (2, length), generator=torch.Generator().manual_seed(1))


@torch.inference_mode()
def in_pieces(model: ForeignModel, inputs: Tensor, sizes: tuple[int, ...]) -> tuple[Tensor, Any]:
    """Logits (B, T, V), and the state after them."""
    logits, state = [], None
    for piece in inputs.split(sizes, dim=1):
        hidden, state = model.hidden(piece, state)
        logits.append(model.logits(hidden))
    return torch.cat(logits, 1), state


@pytest.mark.parametrize("name", MODELS)
def test_pieces_equal_the_whole(name: str, tmp_path: Path) -> None:
    _, reading, shapes = MODELS[name]
    peer = made(name)
    peer.save_pretrained(tmp_path)
    model = load_foreign(find_source(tmp_path))
    assert model.readings == {"cpu": reading}
    assert model.unwritable is None
    with torch.inference_mode(), without_kernels(model.code):
        wanted = peer(tokens(), use_cache=False).logits
    assert wanted.std() > 0.3
    for sizes in ((45,), (17, 1, 4, 23)):
        logits, state = in_pieces(model, tokens(), sizes)
        assert (logits - wanted).abs().max() < 1e-3 * wanted.std()
        assert state.seen == 45
        assert [tuple(memory.shape) for memory in state.recurrent_states()] == shapes
    with torch.inference_mode():
        _, state = model.hidden(tokens()[:, :17])
        model.hidden(tokens()[:, 2:9], state.copy())  # reading on from a copy does not change the state
        rest, _ = model.hidden(tokens()[:, 17:], state)
    assert (rest - wanted[:, 17:]).abs().max() < 1e-3 * wanted.std()
    assert model.is_recurrent == bool(shapes)
    assert model.hidden_size == model.vocab_size == wanted.shape[-1] == VOCABULARY
    assert model.parameters_count == sum(p.numel() for p in peer.parameters())


def test_a_model_that_drops_a_limit_of_dt_for_a_single_token_is_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ForeignModel(made("Bamba", time_step_limit=[0.0, 0.3]), "x")
    pieces, _ = in_pieces(model, tokens(), (17, 5, 23))
    assert torch.allclose(pieces, in_pieces(model, tokens(), (45,))[0], atol=1e-4)

    def written(most: int) -> list[list[int]]:
        return continuations(model, tokens().tolist(), most, lambda *_: False, torch.device("cpu"))

    assert [row for (row,) in written(1)] == pieces[:, -1].argmax(-1).tolist()
    with pytest.raises(CheckpointError, match=r"^x: BambaForCausalLM cannot write text: its pass over a single token"):
        written(2)
    text = [ScoredText(tokens(66)[0].tolist(), 1)]  # 65 tokens are read
    ((whole, _),) = scores(model, text, torch.device("cpu"))
    monkeypatch.setitem(FORWARD_TOKENS, "cpu", 64)  # no piece has a single token
    ((parts, _),) = scores(model, text, torch.device("cpu"))
    assert parts == pytest.approx(whole, abs=1e-4)


SLOW = -7.0  # an A_log: a state keeps about 99.9% from token to token
KEEP = [name for name, (_, _, shapes) in MODELS.items() if shapes and name not in ("MiniMax", "xLSTM")]


@pytest.mark.parametrize("name", KEEP)
def test_recurrences_stay_in_float32_under_autocast(name: str) -> None:
    """In short pieces: each would round a state in bfloat16."""
    model, sizes = ForeignModel(made(name), "x"), (1, 3) * 15
    assert model.keeps_scans
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if key.endswith("A_log"):
                parameter.fill_(SLOW)
    wanted = in_pieces(model, tokens(60), sizes)[1].recurrent_states()
    with torch.autocast("cpu", torch.bfloat16):
        found = in_pieces(model, tokens(60), sizes)[1].recurrent_states()
    assert {state.dtype for state in found} == {torch.float32}
    assert (found[0] - wanted[0]).abs().max() < 0.02 * wanted[0].abs().max()  # later layers have other inputs


@torch.inference_mode()
def test_a_slow_decay_is_not_rounded_away_under_autocast() -> None:
    """A large state decays by 0.3% in a piece, which bfloat16 rounds to nothing or to twice as much."""
    model = ForeignModel(made("Bamba"), "x")
    for key, parameter in model.named_parameters():
        if key.endswith("A_log"):
            parameter.fill_(SLOW)
    first, *others = model(tokens(3))[1].layers
    start = State((first | {"memory": torch.full_like(first["memory"], 1e4)}, *others))

    def decayed(precision: torch.dtype) -> Tensor:
        state = start
        with torch.autocast("cpu", precision, enabled=precision == torch.bfloat16):
            for piece in tokens(60).split(2, dim=1):
                _, state = model(piece, state)
        return state.recurrent_states()[0]

    wanted, found = decayed(torch.float32), decayed(torch.bfloat16)
    assert wanted.max() < 0.98e4
    assert (found - wanted).abs().max() < 1e-3 * wanted.max()


def test_float32_is_the_default_if_autocast_would_round_states() -> None:
    assert ForeignModel(made("Llama"), "x").keeps_scans
    assert not any(ForeignModel(made(name), "x").keeps_scans for name in ("MiniMax", "xLSTM"))


def test_states_against_the_recurrence() -> None:
    """FalconMamba's first layer against h = exp(dt A) h + dt B x, token by token."""
    model = ForeignModel(made("FalconMamba"), "x")
    _, state = in_pieces(model, tokens(5), (3, 2))
    mixer: Any = model.inner.backbone.layers[0].mixer  # type: ignore[union-attr]
    seen = []
    mixer.x_proj.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    with torch.inference_mode():
        model.inner(tokens(5), use_cache=False)
        x, projected = seen[0]  # (B, T, D)
        rank, n = mixer.time_step_rank, mixer.ssm_state_size
        norm = lambda part: part * (part.square().mean(-1, keepdim=True) + mixer.rms_eps).rsqrt()  # noqa: E731
        low, b = norm(projected[..., :rank]), norm(projected[..., rank : rank + n])
        dt = nn.functional.softplus(low @ mixer.dt_proj.weight.T + mixer.dt_proj.bias)  # (B, T, D)
        h = torch.zeros(2, x.shape[-1], n)
        for t in range(5):
            decay = torch.exp(-dt[:, t, :, None] * mixer.A_log.exp())
            h = decay * h + (dt[:, t] * x[:, t])[..., None] * b[:, t, None]
    assert h.std() > 1e-2
    assert (state.recurrent_states()[0] - h).abs().max() < 1e-5


@pytest.mark.parametrize(("name", "layers"), [("NemotronH", [0, 3]), ("MiniMax", [0, 2]), ("xLSTM", [0, 1])])
def test_the_layers_of_states(name: str, layers: list[int]) -> None:
    _, state = in_pieces(ForeignModel(made(name), "x"), tokens(5), (3, 2))
    assert state.recurrent_layers() == layers


@pytest.mark.parametrize(
    ("name", "constant", "a_token"),
    [
        ("Llama", 0, 2 * 3 * 2 * 2 * 8),  # keys and values, layers, sequences, heads, numbers
        ("FalconMamba", 2 * 2 * 64 * (16 + 4), 0),  # layers, sequences, channels, state and convolution
        ("xLSTM", 2 * 2 * 2 * (64 * 64 + 64 + 1) + 2, 0),  # the matrix, its normalizer and maximum; a counter (int64)
        ("MiniMax", 2 * 2 * 4 * 8 * 8, 2 * 2 * 2 * 8),
    ],
)
def test_bytes_of_a_state(name: str, constant: int, a_token: int) -> None:
    model = ForeignModel(made(name), "x")
    for length in (10, 30):
        _, state = in_pieces(model, tokens(length), (length - 3, 3))
        assert state.nbytes == 4 * (constant + length * a_token)


def test_the_longest_sequence_of_a_table_of_positions() -> None:
    assert ForeignModel(made("GPT2LMHead"), "x").longest(64) == 64
    assert ForeignModel(made("OPT"), "x").longest(64) == 64  # its table has two more rows
    gptj = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4}
    model = ForeignModel(made("GPTJ", **gptj), "x")
    assert model.longest(64) == 64
    assert ForeignModel(made("Llama", max_position_embeddings=64), "x").longest(64) is None
    assert ForeignModel(made("Llama", max_position_embeddings=VOCABULARY), "x").longest(VOCABULARY) is None
    assert ForeignModel(made("Bloom"), "x").longest(None) is None
    in_pieces(model, tokens(64), (40, 24))
    with pytest.raises(
        CheckpointError, match=r"^x: the forward pass of GPTJForCausalLM fails on device 'cpu' \(index 64 is"
    ):
        in_pieces(model, tokens(65), (40, 25))


LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 4.0, 8.0]}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}


@pytest.mark.parametrize(
    ("name", "changes", "end"),
    [
        ("Llama", {"max_position_embeddings": 32, "rope_parameters": DYNAMIC}, 32),
        ("Llama", {"rope_parameters": LONGROPE | {"original_max_position_embeddings": 32}}, 32),
        ("Llama", {"rope_parameters": YARN}, None),
        ("Gemma3", {"rope_parameters": {"full_attention": DYNAMIC, "sliding_attention": {"rope_type": "default"}}}, 32),
    ],
)
def test_rotary_positions_that_change_at_a_length(name: str, changes: dict[str, Any], end: int | None) -> None:
    if name == "Gemma3":
        kinds = ["sliding_attention", "full_attention", "sliding_attention"]
        changes = ATTENTION | {"head_dim": 8, "max_position_embeddings": 32, "layer_types": kinds} | changes
    model = ForeignModel(made(name, **changes), "x")
    assert model.longest(None) == model.longest(128) == end
    for length in (32, 64):
        whole, pieces = (in_pieces(model, tokens(length), (size,) * (length // size))[0] for size in (length, 16))
        assert torch.allclose(pieces, whole, atol=1e-4) == (length == 32 or end is None)


# --- the self-check, with wrong caches --------------------------------------------------------------------------------


class ToyCache:
    """Keeps states as MiniMax's cache does."""

    reorder_cache: Any = lambda self, rows: None

    def __init__(self, states: list[Tensor]):
        self.linear_cache = states

    def states(self) -> list[Tensor]:
        return self.linear_cache


class SelfishCache(ToyCache):
    """Keeps states where ssm does not find them."""

    def __init__(self, states: list[Tensor]):
        self.own = states

    def states(self) -> list[Tensor]:
        return self.own


class Toy(nn.Module):
    """A recurrence h = 0.9 h + e(x), which can have an error.

    Args:
        error: the error, one of
            "": none;
            "several": several tokens at once ignore the state;
            "always": all tokens ignore the state;
            "positions": without position_ids, positions restart at 0;
            "rows": sequences cannot be reordered;
            "forgotten": reordering misses the state;
            "none": no cache is returned;
            "broken": the forward pass raises an error.
            "memory": it needs too much memory.
        gain: weight of the state in the logits. The token itself has weight 1.
    """

    class Config:
        def __init__(self, vocab_size: int):
            self.vocab_size = vocab_size

        def get_text_config(self) -> Toy.Config:
            return self

    def __init__(self, error: str = "", gain: float = 1.0, decay: float = 0.9, vocab_size: int = 19):
        super().__init__()
        torch.manual_seed(0)
        self.error, self.gain, self.decay, self.config = error, gain, decay, Toy.Config(vocab_size)
        self.embedding = nn.Embedding(19, 8)
        self.head = nn.Linear(8, 19)

    def forward(
        self, input_ids: Tensor, position_ids: Tensor | None = None, past_key_values: Any = None, use_cache: bool = True
    ) -> Any:
        if self.error == "broken":
            raise RuntimeError("no\nsuch kernel")
        if self.error == "memory":
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")
        x = self.embedding(input_ids)  # (B, T, D)
        h = torch.zeros(len(x), 8) if past_key_values is None else past_key_values.states()[0].clone()
        if self.error == "always" or (self.error == "several" and x.shape[1] > 1):
            h.zero_()
        if self.error == "positions":
            start = torch.zeros(1, 1) if position_ids is None else position_ids[:, :1]
            x = x + torch.sin(start + torch.arange(x.shape[1])).unsqueeze(-1)
        states = []
        for t in range(x.shape[1]):
            h = self.decay * h + x[:, t]
            states.append(h)
        logits = self.head(x + self.gain * torch.stack(states, 1))
        cache = SelfishCache([h]) if self.error == "forgotten" else ToyCache([h])
        if self.error == "rows":
            cache.reorder_cache = None
        return SimpleNamespace(logits=logits, past_key_values=None if self.error == "none" else cache)


@pytest.mark.parametrize(
    ("error", "reading"),
    [("", ReadingMode(False, True)), ("several", ReadingMode(True, True)), ("positions", ReadingMode(False, True))],
)
@pytest.mark.parametrize("gain", [1.0, 1e-5])  # with 1e-5 only the states show the difference
@pytest.mark.parametrize("decay", [0.9, 0.3])
def test_the_self_check_finds_the_right_reading(error: str, reading: ReadingMode, gain: float, decay: float) -> None:
    toy = Toy(error, gain, decay)
    model = ForeignModel(toy, "toy")
    assert model.readings == {"cpu": reading}
    inputs = tokens(20) % 19
    wanted = toy(inputs, position_ids=torch.arange(20).expand(2, -1)).logits
    assert torch.allclose(in_pieces(model, inputs, (7, 13))[0], wanted, atol=1e-5)


def test_the_cache_has_other_names_in_other_versions() -> None:
    """transformers 5.24 calls it `cache`, and its Mamba was once read with `cache_params`."""

    class Newer(Toy):
        def forward(self, input_ids: Tensor, cache: Any = None, use_cache: bool = True, **kwargs: Any) -> Any:
            read = super().forward(input_ids, past_key_values=cache)
            return SimpleNamespace(logits=read.logits, cache=read.past_key_values)

    class Older(Toy):
        def forward(self, input_ids: Tensor, cache_params: Any = None, use_cache: bool = True) -> Any:
            read = super().forward(input_ids, past_key_values=cache_params)
            return SimpleNamespace(logits=read.logits, cache_params=read.past_key_values)

    inputs = tokens(20) % 19
    for kind in (Newer, Older):
        pieces, _ = in_pieces(ForeignModel(kind(), "toy"), inputs, (7, 13))
        assert torch.allclose(pieces, Toy()(inputs).logits, atol=1e-5)


@pytest.mark.parametrize("gain", [1.0, 1e-5])
def test_a_model_that_always_ignores_its_state_is_refused(gain: float) -> None:
    with pytest.raises(CheckpointError, match=r"^toy: Toy cannot read a sequence in pieces: in pieces, and also"):
        ForeignModel(Toy("always", gain), "toy")


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("rows", r"^a cache of transformers' class ToyCache cannot be split by sequences \('NoneType' object"),
        ("forgotten", r"^toy: the cache of Toy cannot be split by sequences: a part"),
    ],
)
def test_a_cache_that_cannot_be_split_by_sequences(error: str, why: str) -> None:
    """The model can be read, but a selection of sequences is an error of one line."""
    toy = Toy(error)
    model = ForeignModel(toy, "toy")
    inputs = tokens(20) % 19
    logits, state = in_pieces(model, inputs, (7, 13))
    assert torch.allclose(logits, toy(inputs).logits, atol=1e-5)
    for one in (state, state.copy()):
        with pytest.raises(CheckpointError, match=why) as caught:
            one.select(torch.tensor([1]))
        assert "\n" not in str(caught.value)


def test_each_type_of_device_is_checked() -> None:
    toy = Toy()
    model = ForeignModel(toy, "toy")
    model.readings.clear()
    toy.error = "several"
    model.hidden(tokens(5) % 19)
    assert model.readings == {"cpu": ReadingMode(True, True)}


def test_no_cache_and_no_forward_pass() -> None:
    class Plain(nn.Linear):
        pass

    with pytest.raises(CheckpointError, match=r"^x: the forward pass of Plain takes no cache that ssm supports$"):
        ForeignModel(Plain(2, 2), "x")
    with pytest.raises(CheckpointError, match=r"^x: the forward pass of Toy returns no cache$"):
        ForeignModel(Toy("none"), "x")
    with pytest.raises(CheckpointError, match=r"^x: the forward pass of Toy fails on device 'cpu' \(no\)$"):
        ForeignModel(Toy("broken"), "x")
    with pytest.raises(RuntimeError, match="allocate memory"):  # the caller says what needs less
        ForeignModel(Toy("memory"), "x")
    with pytest.raises(CheckpointError, match=r"^x: returns 19 logits, but its vocab_size is 18$"):
        ForeignModel(Toy(vocab_size=18), "x")
    bert = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    torch.manual_seed(0)
    inner = transformers.BertLMHeadModel(transformers.BertConfig(vocab_size=VOCABULARY, **bert)).eval()
    with pytest.raises(CheckpointError, match=r"^x: the forward pass of BertLMHeadModel returns no cache$"):
        ForeignModel(inner, "x")
