"""How far back text still lowers the loss."""

from __future__ import annotations

import polars as pl

from ssm.claims.estimate import LEVEL
from ssm.claims.panel_tables import by_sequence
from ssm.diagnosis.intervals import exponential
from ssm.diagnosis.result import EffectiveLength

LESS = 1.01  # ratio of perplexities: who gains less by reading twice as far back gains little (Khandelwal et al. 2018)


def effective_length(context_loss: pl.DataFrame) -> EffectiveLength:
    """The effective context length in the sense of Dai et al. (Transformer-XL, 2019, Section 4.3).

    Theirs is the longest length to which a longer context still lowers the loss by more than a threshold; here the
    threshold is the interval of the gain itself. The gain of n is the perplexity of a model that has read n to 2n
    tokens before a target over that of the same model, on the same targets, after 2n to 4n (the last: L/2 to 3/4 L).
    Its interval is Student t over sequences, and all of them hold together with 95% (Bonferroni).

    The effective length is at least the largest n whose gain surely lies above 1: then text more than n tokens back
    lowers the loss. It is at most the least n, above that, from which on no gain can be LESS or more (one percent of
    perplexity, the threshold of Khandelwal et al. 2018); that takes a gain beyond it that was measured.

    Other things are called alike: RULER's "effective length" is the longest at which its tasks are solved as well as a
    reference model solves them at 4k, and Effective Remembrance (lg Definition 3.3) is of predictions, not of losses.

    Args:
        context_loss: in that schema.
    """
    contexts = sorted(context_loss["context"].unique())
    losses = by_sequence(context_loss, ["context"], "loss")  # (sequences, contexts)
    level = 1 - (1 - LEVEL) / (len(contexts) - 1)
    gains = {n: exponential(losses[:, i] - losses[:, i + 1], level) for i, n in enumerate(contexts[:-1])}
    at_least = max((n for n, gain in gains.items() if gain.low > 1), default=None)
    at_most = None
    for n in reversed(gains):
        if not gains[n].high < LESS:
            break
        at_most = n if n != at_least else 2 * n if 2 * n in gains else None
        if n == at_least:
            break
    return EffectiveLength(at_least, at_most, gains)
