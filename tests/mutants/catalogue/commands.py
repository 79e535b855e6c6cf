"""Faults in what commands use: ssm/diagnosis, ssm/extension and ssm/harness."""

from __future__ import annotations

from mutants.catalogue.mutant import Mutant

HARNESS = "harness/test_adapter.py"

MUTANTS = (
    Mutant(
        "ssm/diagnosis/comparison.py",
        "cautious(after - before)",
        "cautious(before - after)",
        "a change is told the wrong way round",
        ("diagnosis/test_comparison.py::test_changes_are_paired_by_window",),
    ),
    Mutant(
        "ssm/diagnosis/effective_length.py",
        "if gain.low > 1",
        "if gain.value > 1",
        "a gain that may be chance counts as one",
        ("diagnosis/test_effective_length.py",),
    ),
    Mutant(
        "ssm/diagnosis/effective_length.py",
        "if not gains[n].high < LESS",
        "if not gains[n].value < LESS",
        "a gain that may be a percent counts as less",
        ("diagnosis/test_effective_length.py",),
    ),
    Mutant(
        "ssm/diagnosis/heads.py",
        '(pl.col("low") > np.log(DRIFTS))',
        '(pl.col("log") > np.log(DRIFTS))',
        "a head that may have doubled drifts",
        ("diagnosis/test_readings.py::test_a_head_that_may_have_doubled_does_not_drift",),
    ),
    Mutant(
        "ssm/diagnosis/heads.py",
        'column=pl.col("head") // together',
        'column=pl.col("head") % together',
        "heads that are far apart share a column",
        ("diagnosis/test_readings.py::test_many_heads_share_columns_and_the_one_that_grows_most_is_shown",),
    ),
    Mutant(
        "ssm/diagnosis/painting.py",
        "highest if lost else value",
        "value",
        "a head whose state is no number has no colour",
        ("diagnosis/test_pictures.py::test_the_grid_has_a_cell_for_every_head_that_has_a_number",),
    ),
    Mutant(
        "ssm/diagnosis/readings.py",
        "= len(spans) * looks",
        "= len(spans)",
        "who looks several times does not share the level among the looks",
        ("diagnosis/test_readings.py::test_ratios_are_students_intervals_at_a_shared_level",),
    ),
    Mutant(
        "ssm/diagnosis/readings.py",
        "values = np.nan_to_num(values, nan=BEYOND)",
        "values = np.nan_to_num(values, nan=0.0)",
        "a loss that is not a number is no failure",
        ("diagnosis/test_readings.py::test_a_loss_that_is_no_number_fails_there",),
    ),
    Mutant(
        "ssm/diagnosis/readings.py",
        'share(1 - by[kept_tokens]["share"].to_numpy())',
        'share(by[kept_tokens]["share"].to_numpy())',
        "states that forget are called those that never do",
        ("diagnosis/test_readings.py",),
    ),
    Mutant(
        "ssm/diagnosis/readings.py",
        "/ size.mean()) / log(2))",
        "/ size.mean()))",
        "bits are nats",
        ("diagnosis/test_readings.py",),
    ),
    Mutant(
        "ssm/diagnosis/sampling.py",
        "replace(self.reader.past(read), title=",
        "replace(self.reader, title=",
        "every round reads the first windows again",
        ("diagnosis/test_sampling.py::test_every_window_is_read_once_and_its_numbers_go_on",),
    ),
    Mutant(
        "ssm/extension/choice.py",
        "rise <= log1p(tolerance)",
        "rise <= log1p(tolerance) + 1",
        "weights that have become worse in context are chosen",
        ("extension/test_choice.py::test_the_least_of_the_measure_among_the_admitted",),
    ),
    Mutant(
        "ssm/extension/losses.py",
        "in_context=_mean(mean_loss(restart_loss, context // 2, length)",
        "in_context=_mean(mean_loss(position_loss, context // 2, length)",
        "the loss in context is that of reading on",
        ("extension/test_outcome.py::test_the_losses_that_choose_are_means_over_the_windows",),
    ),
    Mutant(
        "ssm/extension/recipe.py",
        "peak_lr(spec, model) / model.peak_lr",
        "peak_lr(spec, model)",
        "the extension's rate is scaled by the model's peak a second time",
        ("extension/test_recipe.py::test_the_papers_recipe",),
    ),
    Mutant(
        "ssm/extension/recipe.py",
        "return _run(spec, parent, data, source, ZeroState(order=spec.initial_state.order))",
        "return _run(spec, parent, data, source, spec.initial_state)",
        "the control arm has the intervention",
        ("extension/test_recipe.py::test_the_papers_recipe",),
    ),
    Mutant(
        "ssm/harness/reading.py",
        "len(one.tokens) - 1 - one.scored :",
        "len(one.tokens) - one.scored :",
        "an answer's first token is not scored",
        (f"{HARNESS}::test_tasks_of_the_harness_come_to_the_numbers_of_transformers",),
    ),
    Mutant(
        "ssm/harness/reading.py",
        "= len(prompt) < longest",
        "= False",
        "what stands before a shorter prompt is read",
        (f"{HARNESS}::test_neither_the_batch_nor_the_pieces_change_a_number",),
    ),
)
