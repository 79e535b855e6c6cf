"""Models of values: a linear map and a class token instead of an embedding, and a head over classes."""

from __future__ import annotations

import pytest
import torch
from models import tiny
from torch import Tensor

from ssm.models.backbone import LanguageModel, build_model
from ssm.plan.parameters import parameter_count

CHANNELS, CLASSES, T = 3, 5, 9


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return tiny.eventful(build_model(tiny.spec(), CLASSES, 0, CHANNELS)).double()


def values(batch: int, marked: tuple[int, ...] = (T - 1,)) -> Tensor:
    found = torch.randn(batch, T, CHANNELS + 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found[..., -1] = 0
    found[:, list(marked), -1] = 1
    return found


def test_values_against_a_model_of_tokens(model: LanguageModel) -> None:
    """Each input becomes a token, with a row of the embedding that is computed by hand."""
    inputs = values(2, (3, T - 1))
    twin = LanguageModel(tiny.spec(tie_embeddings=False), 2 * T).double()
    shared = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(("embedding", "head"))}
    twin.load_state_dict(shared, strict=False)
    weight, bias, token = (
        model.state_dict()[f"embedding.{name}"] for name in ("map.weight", "map.bias", "class_token")
    )
    rows = torch.stack([token if row[-1] else weight @ row[:-1] + bias for row in inputs.flatten(0, 1)])
    with torch.no_grad():
        twin.embedding.weight.copy_(rows)
        twin.head.weight.zero_()
        twin.head.weight[:CLASSES] = model.head.weight
        expected, state = twin(torch.arange(2 * T).view(2, T))
        found, own = model(inputs)
    assert found.shape == (2, T, CLASSES)
    torch.testing.assert_close(found, expected[..., :CLASSES])
    for one, other in zip(tiny.flat(own), tiny.flat(state), strict=True):
        torch.testing.assert_close(one, other)


def test_splits_and_steps_change_nothing(model: LanguageModel) -> None:
    inputs = values(2)
    whole, ended = model(inputs)
    first, state = model(inputs[:, :4])
    second, other = model(inputs[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    stepped, state = [], None
    for place in range(T):
        logits, state = model.step(inputs[:, place], state)
        stepped.append(logits)
    torch.testing.assert_close(torch.stack(stepped, 1), whole)
    for one, two in zip(tiny.flat(ended), tiny.flat(other), strict=True):
        torch.testing.assert_close(one, two)


def test_values_of_a_class_token_are_ignored(model: LanguageModel) -> None:
    inputs, other = values(2), values(2)
    other[:, -1, :-1] = 7
    torch.testing.assert_close(model(inputs)[0], model(other)[0], rtol=0, atol=0)
    model(inputs)[0][:, -1].square().sum().backward()
    assert all(bool(parameter.grad.any()) for parameter in model.embedding.parameters())  # type: ignore[union-attr]
    model.zero_grad()


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": False}, {"norm": "layer", "vocab_multiple": 8}])
def test_the_number_of_parameters(changes: dict[str, object]) -> None:
    spec = tiny.spec(**changes)
    assert parameter_count(spec, CLASSES, CHANNELS) == LanguageModel(spec, CLASSES, CHANNELS).parameters_count
