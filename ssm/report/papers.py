"""The four papers with the 49 figures and tables that are rebuilt, and our added comparisons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ssm.base.names import natural


@dataclass(frozen=True)
class Paper:
    """A paper, or the group of our added comparisons.

    Attributes:
        shows: target -> what the figure or table shows, in a few words and in the paper's order.
        added: True: our comparisons, not a paper.
    """

    short: str
    citation: str
    shows: dict[str, str]
    added: bool = False


PAPERS = {
    paper.short: paper
    for paper in (
        Paper(
            "lg",
            "Buitrago Ruiz & Gu, Understanding and Improving Length Generalization in Recurrent Models (ICML 2025)",
            {
                "lg_fig1": "perplexity by position, and Effective Remembrance",
                "lg_fig2": "several training contexts",
                "lg_fig3": "several training budgets",
                "lg_fig4": "the norm of the state",
                "lg_fig5": "four interventions",
                "lg_fig6": "BABILong",
                "lg_fig7": "passkeys by length and depth",
                "lg_fig8": "a passkey prompt",
                "lg_fig9": "heads that drift",
                "lg_fig10": "RWKV-6",
                "lg_fig11": "length of the warm-up",
                "lg_fig12": "size of the random state",
                "lg_fig13": "Effective Remembrance with three distances",
                "lg_tab1": "copying beyond the training length",
                "lg_tab2": "model configurations",
            },
        ),
        Paper(
            "ls",
            "Wang, LongSSM: On the Length Extension of State-space Models in Language Modelling (2024)",
            {
                "ls_def21": "strong, weak and no length extension",
                "ls_fig2": "official Mamba, by length and size",
                "ls_fig4": "zero or previous states, text in order or shuffled",
                "ls_fig5": "previous states at many lengths",
                "ls_fig6": "zero and previous states at many lengths",
                "ls_fig7": "instability of previous states",
                "ls_fig8": "S5: zero or previous states",
                "ls_fig9": "training length by evaluation length",
                "ls_fig10": "GRU: zero or previous states",
                "ls_tab1": "cost by length",
                "ls_tab2": "S5, Mamba and gated linear attention",
                "ls_eq12": "extrapolation of polynomials",
                "ls_eq40": "the largest recurrent weight",
            },
        ),
        Paper(
            "bn",
            "Wang et al., Understanding and Mitigating Bottlenecks of SSMs through the Lens of Recency and "
            "Over-smoothing (ICLR 2025)",
            {
                "bn_fig1": "influence by distance",
                "bn_fig2": "a needle in a haystack",
                "bn_fig3": "attacks on a target class",
                "bn_fig4": "loss by size and depth",
                "bn_fig5": "smoothness by layer",
                "bn_fig6": "the spread of decays by channel",
                "bn_fig7": "influence in Mamba and Pythia",
                "bn_tab1": "corrupted pixels",
                "bn_tab2": "recall with polarized channels",
                "bn_appB": "one formulation for every system",
            },
        ),
        Paper(
            "mi",
            "Trockman et al., Mimetic Initialization Helps State Space Models Learn to Recall (2024)",
            {
                "mi_fig1": "attention maps while learning to copy",
                "mi_fig2": "a hybrid with one attention layer",
                "mi_fig3": "four parts of the initialization",
                "mi_fig4": "stack-order copying, recall, sorting",
                "mi_fig5": "linear attention in place of Mamba",
                "mi_fig6": "vocabulary size",
                "mi_fig7": "state size",
                "mi_fig8": "width and depth",
                "mi_fig9": "training length",
                "mi_fig10": "pre-trained, or from scratch",
                "mi_fig11": "each layer of a teacher",
            },
        ),
    )
}
ADDED = Paper(
    "x",
    "Added comparisons",
    {
        "x_first": "three systems that break, and three that hold",
        "x_systems": "which systems break, and what repairs them",
        "x_cause": "one factor at a time",
        "x_dose": "how much State Passing a model needs",
        "x_memory": "does what is left of a state predict the break?",
        "x_capacity": "state size and training length",
        "x_size": "large and small models",
        "x_bridges": "one paper's cure, another paper's measurement",
        "x_repairs": "repairs with and without training",
        "x_prose": "headline findings on English prose",
    },
    added=True,
)
GROUPS = PAPERS | {ADDED.short: ADDED}  # one page for each
NAMES = {"fig": "Figure", "tab": "Table", "def": "Definition", "eq": "Equation", "app": "Appendix"}
NUMBERS = {"ls_def21": "2.1"}  # a target has no dots
FRONT, FINDINGS = "index", "findings"
PAGES = tuple(f"{name}.html" for name in (FRONT, FINDINGS, *GROUPS))  # all files of a report


def spoken(target: str) -> str:
    """The name of a figure or table in its paper.

    >>> spoken("lg_fig5"), spoken("bn_appB"), spoken("ls_def21"), spoken("x_repairs")
    ('Figure 5', 'Appendix B', 'Definition 2.1', 'Repairs')
    """
    rest = target.partition("_")[2]
    kind = next((kind for kind in NAMES if rest.startswith(kind)), "")
    return f"{NAMES[kind]} {NUMBERS.get(target, rest.removeprefix(kind))}" if kind else rest.capitalize()


def in_order(targets: Iterable[str]) -> list[str]:
    """Targets in the order of the papers; unknown ones follow."""
    order = [target for paper in GROUPS.values() for target in paper.shows]
    wanted = set(targets)
    known = [target for target in order if target in wanted]
    return [*known, *sorted(wanted - set(known), key=natural)]
