"""Small faults that the tests must see: each a change of one place in the code, as a tired author might make it.

`run.py` beside it makes them, one at a time, in a copy of the project, and wants its tests to fail.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One fault.

    Attributes:
        file: from the project's root.
        old: what stands there once.
        new: what stands there in the mutant.
        breaks: what is wrong with it, in a few words: its name.
        tests: test files from tests/, or tests in them, those that see it first. In brackets stand some of a test's
            parameters, in any order: those that run by default and have them all are meant.
    """

    file: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]


K, M, S = "kernels/ssm_kernels/", "ssm/models/", "ssm/"

OPERATORS, EXACT = "kernels/test_operators.py", "kernels/test_exactness.py"
REFERENCE = f"{EXACT}::test_equals_the_reference"
SELECTIVE = (f"{REFERENCE}[selective_scan-cpp]",)
DIAGONAL = (f"{REFERENCE}[diagonal_scan-cpp]",)
GATED = ("kernels/test_gated_scan_cpp.py::test_borders_of_blocks_and_chunks",)
CONVOLUTION = (f"{REFERENCE}[causal_conv1d-cpp]",)

PROPERTIES = "models/mixers/test_properties.py"
PARALLEL = (f"{PROPERTIES}::test_the_parallel_form_is_the_recurrence[mamba2]",)
RESET = f"{PROPERTIES}::test_a_reset_separates_the_pieces"
INTERPRETED = "kernels/test_triton_interpreter.py::test_equals_the_reference"
PROCESSES = "training/test_processes.py::test_one_two_and_four_processes_train_the_same_run"
RESUMED = "training/test_kill_and_resume.py::test_a_killed_run_resumes_to_the_same_bits[state_passing]"

CPP = (
    Mutant(
        f"{K}selective_scan/forward.h",
        "out = out * z * simd::sigmoid(z);",
        "out = out * simd::sigmoid(z);",
        "the selective scan's gate is a sigmoid, not SiLU",
        SELECTIVE,
    ),
    Mutant(
        f"{K}selective_scan/forward.h",
        "if (p.resets_at(b, t0 + t))",
        "if (p.resets_at(b, t))",
        "every chunk of the selective scan is reset as the first one is",
        SELECTIVE,
    ),
    Mutant(
        f"{K}selective_scan/forward.h",
        "to_vectors(p.h0 + (b * p.channels + d * W) * N",
        "to_vectors(p.h0 + (d * W) * N",
        "every sequence starts from the first one's state",
        SELECTIVE,
    ),
    Mutant(
        f"{K}selective_scan/backward_states.h",
        "dA[i] = simd::fma(w, step, dA[i]);",
        "dA[i] = w * step;",
        "the gradient of A is that of a chunk's first step alone",
        SELECTIVE,
    ),
    Mutant(
        f"{K}selective_scan/problem.h",
        "simd::where_negative(x, e, one) / (one + e)",
        "simd::where_negative(x, one, e) / (one + e)",
        "the derivative of softplus falls where it rises",
        SELECTIVE,
    ),
    Mutant(
        f"{K}selective_scan/backward.h",
        "add_up(&sums.dD[d * W], p.batch,",
        "add_up(&sums.dD[d * W], 1,",
        "the gradient of D is that of the first sequence",
        SELECTIVE,
    ),
    Mutant(
        f"{K}diagonal_scan/diagonal_scan.cpp",
        "before = t ? h + (row - 1) * n.D",
        "before = t ? h + row * n.D",
        "the gradient of a decay is taken with the state behind its step",
        DIAGONAL,
    ),
    Mutant(
        f"{K}diagonal_scan/diagonal_scan.cpp",
        "odd(a, Lane()) * signs(1, -1)",
        "odd(a, Lane()) * signs(-1, 1)",
        "complex gradients without the conjugate",
        DIAGONAL,
    ),
    Mutant(
        f"{K}diagonal_scan/diagonal_scan.cpp",
        "std::copy_n(h0 + batch * n.D + begin, width, state)",
        "std::copy_n(h0 + begin, width, state)",
        "every sequence starts from the first one's state",
        DIAGONAL,
    ),
    Mutant(
        f"{K}gated_scan/per_head.h",
        "whole = from_start[CHUNK - 1];",
        "whole = from_start[CHUNK - 2];",
        "a chunk's last decay does not reach the state",
        GATED,
    ),
    Mutant(
        f"{K}gated_scan/per_head.h",
        "c > 0 || in.h0 != nullptr",
        "c > 0",
        "the first chunk does not read the initial state",
        GATED,
    ),
    Mutant(
        f"{K}gated_scan/per_head_backward.h",
        "gradient[u] = crossing[u] + through + later;",
        "gradient[u] = crossing[u] + later;",
        "the gradient of a decay without what passes the whole chunk",
        GATED,
    ),
    Mutant(
        f"{K}gated_scan/per_key.h",
        "!has_bonus ? decay : reset[t] ? Vec<T>::zero() : before;",
        "!has_bonus ? decay : reset[t] ? Vec<T>::zero() : decay;",
        "with a bonus the state is read behind the token's own decay",
        GATED,
    ),
    Mutant(
        f"{K}gated_scan/per_key_backward.h",
        "if (now.reset[t]) std::fill_n(dM + t * BLOCK, t, (T)0);",
        "if (now.reset[t]) std::fill_n(dM + t * BLOCK, 0, (T)0);",
        "with a bonus gradients flow through a reset",
        GATED,
    ),
    Mutant(
        f"{K}causal_conv1d/causal_conv1d.cpp",
        "if (!MASKED || lag <= reach[r + lag])",
        "if (!MASKED || lag < reach[r + lag])",
        "an input's gradient misses the tap that reaches a reset",
        CONVOLUTION,
    ),
    Mutant(
        f"{K}causal_conv1d/causal_conv1d.cpp",
        "if (c.reach && lag > c.reach[batch * c.T_ + t]) continue;",
        "if (c.reach && lag > c.K) continue;",
        "gradients reach the state before the sequence through a reset",
        CONVOLUTION,
    ),
    Mutant(
        f"{K}gated_rms_norm/gated_rms_norm.cpp",
        "* scale * scale * scale);",
        "* scale * scale);",
        "the norm's own gradient has the wrong power of the scale",
        ("kernels/test_gated_rms_norm.py::test_equals_the_formula",),
    ),
    Mutant(
        f"{K}gated_rms_norm/gated_rms_norm.cpp",
        "for (int64_t unit = 0; unit < n.units(); ++unit) sum +=",
        "for (int64_t unit = 1; unit < n.units(); ++unit) sum +=",
        "the gradient of the norm's weight misses the first rows",
        ("kernels/test_gated_rms_norm.py::test_equals_the_formula",),
    ),
    Mutant(
        f"{K}native/compiler.py",
        "for path in _with_headers(source):",
        "for path in [source]:",
        "a library is not built anew when a header changes",
        ("kernels/test_native.py::test_compiles_again_for_anything_else",),
    ),
)

TORCH = (
    Mutant(
        f"{K}diagonal_scan/pytorch.py",
        "da.masked_fill_(resets.unsqueeze(-1), 0)",
        "da.masked_fill(resets.unsqueeze(-1), 0)",
        "a decay at a reset has a gradient",
        (f"{REFERENCE}[diagonal_scan-torch]",),
    ),
    Mutant(
        f"{K}diagonal_scan/pytorch.py",
        "dh0 = g[:, 0] * (conj if constant else conj[:, 0])",
        "dh0 = g[:, 0].clone()",
        "the initial state's gradient misses the first decay",
        (f"{REFERENCE}[diagonal_scan-torch]",),
    ),
    Mutant(
        f"{K}selective_scan/pytorch.py",
        "dbias += draw.sum((0, 1))",
        "dbias += draw.mean((0, 1))",
        "the bias' gradient is a mean, not a sum",
        (f"{REFERENCE}[selective_scan-torch]",),
    ),
    Mutant(
        f"{K}selective_scan/pytorch.py",
        "h = states[-1].clone()",
        "h = states[-1]",
        "the carried state lies where the next chunk is computed",
        (f"{REFERENCE}[selective_scan-torch]",),
    ),
    Mutant(
        f"{K}gated_scan/scalar_decay.py",
        "(dadded * parts.entering).sum((-1, -2)) * parts.whole[..., 0, 0]",
        "(dadded * parts.entering).sum((-1, -2))",
        "the decays' gradient through a whole chunk is not decayed",
        (f"{REFERENCE}[gated_scan-torch]",),
    ),
    Mutant(
        f"{K}gated_scan/vector_decay.py",
        "_halves(dk, h, 0).add_(into_k)",
        "_halves(dk, h, 1).add_(into_k)",
        "keys of the right halves get the gradients of the left ones",
        (f"{REFERENCE}[gated_scan-torch]",),
    ),
    Mutant(
        f"{K}gated_scan/pytorch.py",
        "dlog += part.sum((0, 1, 2))",
        "dlog.copy_(part.sum((0, 1, 2)))",
        "a constant decay has the gradient of the first span alone",
        (f"{EXACT}::test_the_pieces_of_a_large_call_fit_together[gated_scan]",),
    ),
    Mutant(
        f"{K}causal_conv1d/pytorch.py",
        "dpadded[:, T:] = dstate if age is None else dstate.masked_fill(_forgotten(age, K), 0)",
        "dpadded[:, T:] = dstate",
        "the final state's gradient flows back through a reset",
        (f"{REFERENCE}[causal_conv1d-torch]",),
    ),
    Mutant(
        f"{K}operators.py",
        "    dtype = torch.float32\n    for x in tensors:",
        "    dtype = torch.bfloat16\n    for x in tensors:",
        "half precision is scanned in half precision",
        (f"{EXACT}::test_half_precision_is_scanned_in_float32",),
    ),
    Mutant(
        f"{K}operators.py",
        "if torch.is_autocast_enabled(device) else AS_IT_IS",
        'if torch.is_autocast_enabled("cuda") else AS_IT_IS',
        "autocast reaches into a scan on the CPU",
        (f"{OPERATORS}::test_autocast_does_not_reach_inside",),
    ),
)

GPU = (
    Mutant(
        f"{K}diagonal_scan/triton_kernels.py",
        "tl.where(end, 0.0, -a_im)",
        "tl.where(end, 0.0, a_im)",
        "Triton: complex gradients without the conjugate",
        (f"{INTERPRETED}[diagonal_scan]",),
    ),
    Mutant(
        f"{K}diagonal_scan/triton_kernels.py",
        "past_in = (t > 0)[:, None] & inside",
        "past_in = (t > 1)[:, None] & inside",
        "Triton: the second decay has no gradient",
        (f"{INTERPRETED}[diagonal_scan]",),
    ),
    Mutant(
        f"{K}gated_scan/triton_head.py",
        "mask = i[:, None] > i[None, :]",
        "mask = i[:, None] >= i[None, :]",
        "Triton: with a bonus a token reads its own key twice",
        (f"{INTERPRETED}[gated_scan-4]",),
    ),
    Mutant(
        f"{K}selective_scan/backward.cuh",
        "    load_states(carry, s, at, s.dhT, at.batch);",
        "    load_states(carry, s, at, nullptr, 0);",
        "CUDA: the final state's gradient is left out where a sequence is one segment",
        ("kernels/test_cuda_kernels.py::test_float32_loses_little_even_at_strong_decay",),
    ),
)

MODELS = (
    Mutant(
        f"{M}backbone.py",
        "self.ffn(self.ffn_norm(x if self.parallel else x + y), ffns, resets)",
        "self.ffn(self.ffn_norm(x + y), ffns, resets)",
        "a parallel block runs one behind the other",
        ("models/formats/test_gpt_neox.py::test_round_trip",),
    ),
    Mutant(
        f"{M}state.py",
        "zeros = self.map(torch.zeros_like)",
        "zeros = self",
        "a state with other memories keeps the old inputs of its convolutions",
        ("models/test_state.py::test_zeros_and_with_memories",),
    ),
    Mutant(
        f"{M}state.py",
        "torch.cat([part.layers[i][name] for part in parts])",
        "torch.cat([part.layers[i][name] for part in parts[::-1]])",
        "the states of micro-batches are joined in the wrong order",
        ("training/test_initial_state.py::test_micro_batches_teach_what_their_batch_teaches",),
    ),
    Mutant(
        f"{M}mixers/mamba2.py",
        '(dt * self.continuous_decay()).exp()[..., None, None] * state["memory"]',
        'self.continuous_decay().exp()[..., None, None] * state["memory"]',
        "a decoding step of Mamba-2 decays without its step size",
        PARALLEL,
    ),
    Mutant(
        f"{M}mixers/mamba2.py",
        "y = torch.addcmul(y, x, self.D.unsqueeze(-1).to(y.dtype))",
        "y = torch.addcmul(y, v, self.D.unsqueeze(-1).to(y.dtype))",
        "Mamba-2's skip is multiplied by the step size",
        PARALLEL,
    ),
    Mutant(
        f"{M}mixers/mamba1.py",
        'a = a[int(spec.polarize in ("one", "both")) :][: spec.learned_states]',
        "a = a[: spec.learned_states]",
        "polarized states take the place of the wrong learned ones",
        ("models/mixers/test_mamba1.py::test_polarized_states_stand_beside_the_learned_ones",),
    ),
    Mutant(
        f"{M}mixers/parts.py",
        "before = before.masked_fill(resets.unsqueeze(-1), 0.0)",
        "before = before.masked_fill(resets.unsqueeze(-1), 1.0)",
        "a document's first token is shifted against ones, not zeros",
        (f"{RESET}[rwkv6]",),
    ),
    Mutant(
        f"{M}mixers/parts.py",
        "y if bias is None else y + bias, window[:, 1:]",
        "y if bias is None else y + bias, window[:, :-1]",
        "a convolution's step keeps the oldest input and drops the newest",
        PARALLEL,
    ),
    Mutant(
        f"{M}mixers/linear_ssm.py",
        "late = x if document is None else _only(x, document == document[..., -1:])",
        "late = x",
        "what lies before a reset is added to the state behind it",
        (f"{RESET}[s4d]",),
    ),
    Mutant(
        f"{M}mixers/linear_ssm.py",
        "document[..., -1] > 0",
        "document[..., -1] > 1",
        "a segment with one reset lets the old state through",
        (f"{RESET}[s4d]",),
    ),
    Mutant(
        f"{M}mixers/rwkv4.py",
        "m_before.masked_fill(resets.unsqueeze(-1), EMPTY)",
        "m_before.masked_fill(resets.unsqueeze(-1), 0.0)",
        "RWKV-4 keeps its average through a reset",
        (f"{RESET}[rwkv4]",),
    ),
    Mutant(
        f"{M}mixers/rglru.py",
        'starts[:, 0] |= True if state is None else ~state["begun"].bool()',
        "starts[:, 0] |= True",
        "Griffin's input is unscaled wherever a sequence is cut",
        (f"{PROPERTIES}::test_cutting_it_anywhere_changes_nothing[rglru, unscaled start]",),
    ),
    Mutant(
        f"{M}mixers/gla.py",
        "return q * self.key_dim**-0.5",
        "return q * self.value_dim**-0.5",
        "GLA's queries are scaled by the values' size",
        ("models/formats/test_fla_gla.py::test_round_trip",),
    ),
    Mutant(
        f"{M}mixers/attention.py",
        "mask = mask & (key > query - self.spec.window)",
        "mask = mask & (key >= query - self.spec.window)",
        "a window of attention sees one token more",
        ("models/mixers/test_attention_peers.py::test_logits_and_gradients",),
    ),
    Mutant(
        f"{M}backbone.py",
        "checkpoint(layer, x, layer_state, resets, use_reentrant=False)",
        "checkpoint(layer, x, layer_state, None, use_reentrant=False)",
        "activation checkpointing forgets the documents' resets",
        ("models/test_backbone.py::test_activations_that_are_computed_again_are_the_same",),
    ),
)

TRAINING = (
    Mutant(
        f"{S}training/step.py",
        "return Part(F.cross_entropy(logits.float(), targets), ended.detach())",
        "return Part(F.cross_entropy(logits.float(), targets), ended)",
        "gradients flow back through passed states",
        ("training/test_loop.py::test_the_same_run_twice_is_bitwise_the_same",),
    ),
    Mutant(
        f"{S}training/step.py",
        "batch.starts is not None and training.initial_state.resets",
        "batch.starts is not None",
        "states are reset at documents by policies that do not ask for it",
        ("training/test_loop.py::test_without_document_resets_none_are_passed",),
    ),
    Mutant(
        f"{S}training/step.py",
        "(part.loss * share).backward()",
        "part.loss.backward()",
        "gradients of micro-batches are summed, not averaged",
        ("training/test_loop.py::test_accumulated_micro_batches_give_the_same_run",),
    ),
    Mutant(
        f"{S}training/step.py",
        'derived_seed(job.run.seed, "order", job.run.stage)',
        'derived_seed(job.run.seed, "order")',
        "post-training reads in the order of pre-training",
        ("training/test_loop.py::test_every_stage_reads_in_an_order_of_its_own",),
    ),
    Mutant(
        f"{S}training/ending.py",
        'inherited and f"its parent {inherited}"',
        "None",
        "a parent's divergence is forgotten",
        ("training/test_loop.py::test_a_diverged_parent_is_not_forgotten",),
    ),
    Mutant(
        f"{S}training/keeping.py",
        "step % FLUSH_EVERY == 0 or self._weights_due(step) or",
        "step % FLUSH_EVERY == 0 or self.good.due(step) or",
        "a snapshot between two looks is not kept",
        ("training/test_loop.py::test_every_snapshot_is_kept_however_short_the_run",),
    ),
    Mutant(
        f"{S}training/schedule.py",
        "done = (step - warm) / max(1, steps - warm)",
        "done = (step - warm) / max(1, steps)",
        "the cosine does not come to its end",
        ("training/test_schedule.py::test_cosine_with_ten_percent_of_warm_up",),
    ),
    Mutant(
        f"{S}training/schedule.py",
        'training.weight_decay * (lr / peak if training.weight_decay_schedule == "with_lr"',
        'training.weight_decay * (lr if training.weight_decay_schedule == "with_lr"',
        "the weight decay is scaled by the rate, not by its share of the peak",
        ("training/test_schedule.py::test_weight_decay_follows_the_rate_or_stays",),
    ),
    Mutant(
        f"{S}training/optimizer.py",
        'decay if group["decays"] else 0.0',
        "decay",
        "norms, biases and embeddings decay too",
        ("training/test_optimizer.py::test_exactly_the_linear_maps_decay",),
    ),
    Mutant(
        f"{S}training/checkpoint.py",
        'policy.load(_part(tensors, "policy/"))',
        "policy.load({})",
        "a resumed run has lost the passed states",
        (RESUMED,),
    ),
    Mutant(
        f"{S}training/metrics.py",
        'pl.col("step") <= step',
        'pl.col("step") < step',
        "the row of the checkpoint's own step is lost on resume",
        (RESUMED,),
    ),
    Mutant(
        f"{S}training/metrics.py",
        'for column in ("loss", "grad_norm"):',
        'for column in ("loss",):',
        "an infinite gradient is not called divergence",
        ("training/test_loop.py::test_an_infinite_gradient_of_a_finite_loss_is_divergence",),
    ),
    Mutant(
        f"{S}training/divergence.py",
        "step = max(0, diverged_at - PATIENCE) // self.stride * self.stride",
        "step = diverged_at // self.stride * self.stride",
        "a diverged run goes back to weights from the way up",
        ("training/test_loop.py::test_divergence_is_a_result_and_keeps_the_last_good_weights",),
    ),
    Mutant(
        f"{S}training/gradients.py",
        "(norm / (total + 1e-6)).clamp(max=1.0)",
        "(norm / (total + 1e-6))",
        "small gradients are scaled up to the clipping norm",
        ("training/test_processes.py::test_gradients_of_a_large_model_are_those_of_a_small_one",),
    ),
    Mutant(
        f"{S}training/gradients.py",
        "self.piece /= self.team.size",
        "self.piece /= 1",
        "gradients of processes are summed, not averaged",
        (f"{PROCESSES}[zero]",),
    ),
    Mutant(
        f"{S}training/initial_states/base.py",
        'derived_seed(self.seed, "state", step)',
        'derived_seed(self.seed, "state")',
        "every step draws the same noise",
        ("training/test_initial_state.py::test_a_share_of_rows_starts_from_zero",),
    ),
    Mutant(
        f"{S}training/initial_states/base.py",
        "draw[self.team.rows(batch_size)] < self.spec.p_zero",
        "draw[self.team.rows(batch_size)] > self.spec.p_zero",
        "rows are zeroed with probability 1 - p",
        ("training/test_initial_state.py::test_a_share_of_rows_starts_from_zero",),
    ),
    Mutant(
        f"{S}training/initial_states/base.py",
        "device=generator.device)[self.team.rows(batch_size)]",
        "device=generator.device)[: len(memory)]",
        "every process draws the noise of the first rows",
        (f"{PROCESSES}[fitted_noise]",),
    ),
    Mutant(
        f"{S}training/initial_states/fitted_noise.py",
        "(1 - self.spec.beta) * batch + self.spec.beta * self.moments",
        "self.spec.beta * batch + (1 - self.spec.beta) * self.moments",
        "beta weighs the new average instead of the old one",
        ("training/test_initial_state.py::test_fitted_noise_keeps_moments_by_layer_and_head_with_beta_on_the_old",),
    ),
    Mutant(
        f"{S}training/initial_states/fitted_noise.py",
        "head.var(1, correction=0)",
        "head.std(1, correction=0)",
        "the fitted variance is a standard deviation",
        ("training/test_initial_state.py::test_fitted_noise_keeps_moments_by_layer_and_head_with_beta_on_the_old",),
    ),
    Mutant(
        f"{S}training/initial_states/fitted_noise.py",
        "(variances + (means - mean).square())",
        "variances",
        "the variance between micro-batches is left out",
        ("training/test_initial_state.py::test_pooled_moments_are_those_of_the_whole_batch",),
    ),
    Mutant(
        f"{S}training/initial_states/random_noise.py",
        "self.spec.sigma * self.normal(",
        "self.spec.sigma**2 * self.normal(",
        "noise has the standard deviation sigma squared",
        ("training/test_initial_state.py::test_random_noise_has_mean_zero_and_its_sigma_everywhere",),
    ),
    Mutant(
        f"{S}training/initial_states/state_passing.py",
        "self.last.map(self.team.gathered)",
        "self.last",
        "a checkpoint of several processes holds the first one's states",
        (
            "training/test_processes.py::test_a_stopped_run_goes_on_in_as_many_processes_bitwise_and_in_any_other_number",
        ),
    ),
)

DATA = (
    Mutant(
        f"{S}data/batches.py",
        'numpy_generator(self.seed, "data", epoch)',
        'numpy_generator(self.seed, "data")',
        "every epoch is read in the same order",
        ("data/test_batches.py::test_epochs_differ_in_order_and_offset",),
    ),
    Mutant(
        f"{S}data/batches.py",
        "self.origins[rows] + step * self.context)",
        "self.origins[rows] + step * (self.context + 1))",
        "a stream skips a token between two chunks",
        ("data/test_batches.py::test_streams_are_the_text_without_a_gap",),
    ),
    Mutant(
        f"{S}data/batches.py",
        "offset + self.context * order(indices)",
        "offset + (self.context + 1) * order(indices)",
        "windows leave a token out between them",
        ("data/test_batches.py::test_an_epoch_has_every_window_once_and_no_window_leaves_the_split",),
    ),
    Mutant(
        f"{S}data/order.py",
        "images[outside] = self._feistel(images[outside])",
        "images[outside] = images[outside] % self.n",
        "the shuffled order has some windows twice",
        ("data/test_batches.py::test_a_permutation_holds_everything_once",),
    ),
    Mutant(
        f"{S}data/own_text.py",
        "(length + 1) * order.astype(np.int64)",
        "length * order.astype(np.int64)",
        "windows that are called disjoint share a token",
        ("data/test_own_text.py::test_windows_share_no_token_and_leave_no_room_for_another",),
    ),
    Mutant(
        f"{S}base/seeds.py",
        'f"{seed}/{stream}/{step}"',
        'f"{seed}/{step}"',
        "streams of all names have the same numbers",
        ("base/test_seeds.py::test_every_seed_name_and_step_has_numbers_of_its_own",),
    ),
    Mutant(
        f"{S}data/build.py",
        'writers["held_out" if held_out else "train"].add(tokens)',
        'writers["train"].add(tokens[:1]), writers["held_out" if held_out else "train"].add(tokens[1:])',
        "a held-out document begins among those that train",
        ("data/test_store.py::test_a_store_holds_every_document_whole_in_one_split",),
    ),
)

TASKS = (
    Mutant(
        f"{S}training/step.py",
        "share = micro.asked / asked",
        "share = len(rows) / len(mine)",
        "micro-batches count alike however much they ask",
        ("training/test_tasks.py::test_the_gradient_is_that_of_the_whole_batch",),
    ),
    Mutant(
        f"{S}training/step.py",
        "int(self.job.team.total(torch.tensor(batch.asked))) / self.job.team.size",
        "batch.asked",
        "a process divides by what it asks itself",
        ("training/test_tasks.py::test_two_processes_train_the_run_that_one_trains",),
    ),
    Mutant(
        f"{S}data/tasks/base.py",
        'return self.store.train if self.split == "train" else self.store.held_out',
        "return self.store.train",
        "test examples stand in text that trained",
        ("data/tasks/test_facts.py::test_training_reads_training_documents_and_tests_the_held_out_ones",),
    ),
    Mutant(
        f"{S}data/tasks/draws.py",
        'f"task/{self.split}/{stream}"',
        'f"task/{stream}"',
        "test examples are the first of training",
        ("data/tasks/test_tasks.py::test_training_and_test_examples_never_meet",),
    ),
    Mutant(
        f"{S}data/tasks/draws.py",
        "self.uniform(stream, len(weights))) / weights",
        "self.uniform(stream, len(weights))) * weights",
        "the likely ones are drawn last",
        ("data/tasks/test_draws.py::test_different_things_are_drawn_one_after_the_other_by_their_weights",),
    ),
    Mutant(
        f"{S}data/tasks/recall.py",
        "places - given[rows, places]",
        "places",
        "a question's distance is its place",
        ("data/tasks/test_recall.py::test_every_key_is_asked_once_for_its_value",),
    ),
    Mutant(
        f"{S}data/tasks/base.py",
        "following = _joined(labels) if labels else together[:, 1:]",
        "following = together[:, 1:]",
        "a test set takes the next tokens for its labels",
        ("data/tasks/test_tasks.py::test_a_test_set_reads_its_examples_in_segments",),
    ),
    Mutant(
        f"{S}data/tasks/copy.py",
        "copied = within > length + 1",
        "copied = within >= length + 1",
        "the bar of a string is asked for",
        ("data/tasks/test_copy.py::test_one_string_and_its_copy",),
    ),
    Mutant(
        f"{S}data/tasks/copy.py",
        "whole = stop <= N",
        "whole = stop < N",
        "a string that just fits is not asked for",
        ("data/tasks/test_copy.py::test_a_string_that_just_fits_is_asked_for",),
    ),
    Mutant(
        f"{S}data/tasks/facts.py",
        "slots = sorted(dice.below(len(text) + 1) for _ in facts)",
        "slots = list(dice.below(len(text) + 1) for _ in facts)",
        "a story's sentences stand in any order",
        ("data/tasks/test_facts.py::test_a_story_stands_between_whole_sentences_in_its_order",),
    ),
    Mutant(
        f"{S}data/tasks/passkey.py",
        "places[np.abs(places - wanted).argmin()]",
        "places[(places >= wanted).argmax()]",
        "a key stands behind its depth, not where it is nearest",
        ("data/tasks/test_prompts.py::test_the_key_stands_at_the_sentence_nearest_to_its_depth",),
    ),
)

MEASUREMENTS = (
    Mutant(
        f"{S}evaluation/accuracy.py",
        "hidden, state = model.hidden(written[-1], state)",
        "hidden, state = model.hidden(wanted[rows][:, [len(written) - 1]], state)",
        "decoding reads the answer instead of what it wrote",
        ("evaluation/test_accuracy.py",),
    ),
    Mutant(
        f"{S}evaluation/learning_curve.py",
        'pl.when(pl.col("step") == last)',
        'pl.when(pl.col("step") > last)',
        "the last row of a diverged run looks better than the run",
        ("evaluation/test_learning_curve.py",),
    ),
    Mutant(
        f"{S}evaluation/stream.py",
        "subject.model.hidden(inputs.to(device), state)",
        "subject.model.hidden(inputs.to(device), None)",
        "long sequences start anew at every segment",
        ("evaluation/test_losses.py::test_segments_do_not_change_the_restart_loss",),
    ),
    Mutant(
        f"{S}evaluation/stream.py",
        "    for rows in groups:\n        state: Carried | None = None\n",
        "    state: Carried | None = None\n    for rows in groups:\n",
        "sequences start from the state of those before them",
        ("evaluation/test_losses.py::test_segments_do_not_change_the_restart_loss",),
    ),
    Mutant(
        f"{S}evaluation/subject.py",
        'derived_seed(seed, "windows", self.seed)',
        'derived_seed(seed, "windows")',
        "all seeds are measured on the same text",
        ("evaluation/test_losses.py::test_every_run_and_measurement_of_a_seed_of_its_own_reads_other_windows",),
    ),
    Mutant(
        f"{S}evaluation/by_position.py",
        'np.searchsorted(edges, positions, side="right") - 1',
        'np.searchsorted(edges, positions, side="left") - 1',
        "a bin's first token is counted in the bin before",
        ("evaluation/test_losses.py::test_position_loss_is_the_definition",),
    ),
    Mutant(
        f"{S}evaluation/restart_loss.py",
        "read = max(0, half - segment.start)",
        "read = max(0, half - 1 - segment.start)",
        "the restarted model is scored a token early",
        ("evaluation/test_losses.py::test_restart_loss_is_the_definition",),
    ),
    Mutant(
        f"{S}evaluation/effective_remembrance.py",
        "0.5 * (p - q).abs().sum(-1)",
        "(p - q).abs().sum(-1)",
        "the total variation goes up to 2",
        ("evaluation/test_effective_remembrance.py::test_distances_of_equal_and_of_disjoint_distributions",),
    ),
    Mutant(
        f"{S}evaluation/effective_remembrance.py",
        "_relative_entropy(q, middle)) / math.log(2)",
        "_relative_entropy(q, middle))",
        "the Jensen-Shannon divergence is in nats",
        ("evaluation/test_effective_remembrance.py::test_distances_of_equal_and_of_disjoint_distributions",),
    ),
    Mutant(
        f"{S}evaluation/state_statistics.py",
        "values.std(-1, correction=0)",
        "values.std(-1, correction=1)",
        "a head's standard deviation is that of a sample",
        ("evaluation/test_state_statistics.py::test_statistics_are_those_of_the_states_at_their_positions",),
    ),
    Mutant(
        f"{S}evaluation/passkey.py",
        "right = found.cumprod(1).sum(1)",
        "right = found.sum(1)",
        "digits behind the first wrong one are counted",
        ("evaluation/test_passkey.py::test_digits_count_up_to_the_first_wrong_one",),
    ),
    Mutant(
        f"{S}evaluation/length_class.py",
        "steps - _bound(len(past), len(losses)) * errors",
        "steps - _bound(1, len(losses)) * errors",
        "the level is not shared among the comparisons of a class",
        ("evaluation/test_length_class.py::test_a_small_rise_needs_enough_text_to_be_seen",),
    ),
    Mutant(
        f"{S}evaluation/length_class.py",
        "chosen_on, tested_on = losses[::2], losses[1::2]",
        "chosen_on, tested_on = losses, losses[1::2]",
        "t* is tested on sequences that chose it",
        ("evaluation/test_length_class.py::test_the_best_bin_is_found_on_every_other_sequence_and_tested_on_the_rest",),
    ),
    Mutant(
        f"{S}evaluation/measure.py",
        'sound_until = record["steps"] - PATIENCE if',
        'sound_until = record["steps"] if',
        "a snapshot from the way up to a divergence counts as sound",
        ("evaluation/test_measure.py::test_only_snapshots_from_well_before_a_divergence_are_sound",),
    ),
    Mutant(
        f"{S}evaluation/taxonomy.py",
        "return not _equal(once, elsewhere), _equal(once, twice)",
        "return not _equal(once, elsewhere), _equal(once, once)",
        "every recurrence is called linear",
        ("evaluation/test_taxonomy.py::test_modules_do_what_their_papers_say",),
    ),
    Mutant(
        f"{S}evaluation/bins.py",
        "(1, 2, 3, 4)",
        "(1, 3, 4)",
        "three quarters of an octave are no edge of a bin",
        ("evaluation/test_losses.py::test_bins_tile_every_length",),
    ),
)

CLAIMS = (
    Mutant(
        f"{S}base/curves.py",
        "((value * tokens).sum() / tokens.sum()).alias(column)",
        "value.mean().alias(column)",
        "bins of unlike length count alike in a mean",
        ("base/test_curves.py::test_mean_loss_weights_bins_by_their_tokens",),
    ),
    Mutant(
        f"{S}base/curves.py",
        "float(stdtrit(n - 1, 0.5 + level / 2))",
        "float(stdtrit(n - 1, level))",
        "a two-sided interval is one-sided",
        ("base/test_curves.py::test_seed_interval_is_students",),
    ),
    Mutant(
        f"{S}base/curves.py",
        "(column.std() / column.len().sqrt())",
        "column.std()",
        "a standard error is a standard deviation",
        ("base/test_curves.py::test_position_curve_is_the_mean_over_sequences_with_its_standard_error",),
    ),
    Mutant(
        f"{S}claims/estimate.py",
        "math.hypot(self.error, other.error)",
        "self.error",
        "the other arm's error does not count in a difference",
        ("claims/test_quantities.py::test_length_excess_of_one_seed_uses_its_standard_error",),
    ),
    Mutant(
        f"{S}claims/verdict.py",
        "expected.above is not None and high <= expected.above",
        "expected.above is not None and low <= expected.above",
        "an open claim is refuted",
        ("claims/test_verdict.py::test_the_verdict_is_what_every_point_of_the_interval_says",),
    ),
    Mutant(
        f"{S}claims/verdict.py",
        "(expected.above is None or low > expected.above)",
        "(expected.above is None or low >= expected.above)",
        "an interval that touches its bound is confirmed",
        ("claims/test_verdict.py::test_the_verdict_is_what_every_point_of_the_interval_says",),
    ),
    Mutant(
        f"{S}claims/panel.py",
        'if read_provenance(path).get("diverged"):',
        'if read_provenance(path).get("diverged") is True:',
        "claims rest on runs that diverged",
        ("claims/test_quantities.py::test_the_table_of_a_diverged_run_decides_nothing",),
    ),
    Mutant(
        f"{S}claims/quantities/state_norm_growth.py",
        "return log_mean_reading(late) - log_mean_reading(early)",
        "return log_mean_reading(early) - log_mean_reading(late)",
        "a norm that grows is said to shrink",
        ("claims/test_quantities.py::test_ratios_are_averaged_in_log_space_over_seeds",),
    ),
    Mutant(
        f"{S}claims/quantities/positions.py",
        "3 * stop // 4, stop",
        "stop // 2, stop",
        "the end of a text is its last half",
        ("claims/test_quantities.py::test_the_end_of_a_text_is_its_last_quarter",),
    ),
    Mutant(
        f"{S}claims/quantities/drifting_heads.py",
        "means_late > factor * means_early",
        "means_late > means_early",
        "in the bootstrap a head drifts that grows at all",
        ("claims/test_quantities.py::test_drifting_heads_of_one_seed_is_bootstrapped",),
    ),
)

SWEEPS = (
    Mutant(
        f"{S}figures/data.py",
        "math.nan if kind.is_float() else None, kind",
        "math.nan if kind.is_float() else 0, kind",
        "a diverged run answers no instead of nothing",
        ("figures/test_data.py::test_of_a_diverged_run_nothing_but_where_it_was_measured_is_read",),
    ),
    Mutant(
        f"{S}base/columns.py",
        "return rows.group_by([SAMPLE, *along]).agg(pl.col(column).mean())",
        "return rows",
        "a sample with many rows outweighs the others",
        ("base/test_columns.py",),
    ),
    Mutant(
        f"{S}claims/estimate.py",
        "share = ((1 - LEVEL) / 2) ** (1 / count)",
        "share = (1 - LEVEL) ** (1 / count)",
        "seeds that agree are trusted too much",
        ("claims/test_sweeps.py::test_numbers_that_agree_have_the_interval_of_clopper_and_pearson",),
    ),
    Mutant(
        f"{S}claims/quantities/order.py",
        "1 - (1 - LEVEL) / steps.shape[1])[2]",
        "LEVEL)[2]",
        "the smallest of many steps has the upper end of one",
        ("claims/test_sweeps.py::test_an_order_is_its_smallest_step",),
    ),
    Mutant(
        f"{S}claims/quantities/order.py",
        "low = min(seed_interval(step, LEVEL)[1] for step in steps.T)",
        "low = max(seed_interval(step, LEVEL)[1] for step in steps.T)",
        "an order rests on its largest step",
        ("claims/test_sweeps.py::test_the_interval_of_an_order_holds_the_true_one_often_enough",),
    ),
    Mutant(
        f"{S}claims/quantities/crossing.py",
        "stays[:, count - step :] = False",
        "pass",
        "what cannot be seen to hold holds",
        ("claims/test_sweeps.py::test_a_crossing_that_has_to_hold_is_the_first_that_does",),
    ),
    Mutant(
        f"{S}claims/quantities/curve.py",
        "seeds = set.intersection(*(set(one) for one in numbers))",
        "seeds = set.union(*(set(one) for one in numbers))",
        "a sweep reads seeds that some arms lack",
        ("claims/test_sweeps.py::test_a_sweep_needs_seeds_and_arms_and_sound_runs",),
    ),
    Mutant(
        f"{S}specs/quantities/sweep.py",
        "return tuple(sorted(found))",
        "return tuple(found)",
        "a sweep's numbers stand as they come",
        ("claims/test_sweeps.py::test_a_grid_says_by_its_axes_what_else_is_named_by_arm",),
    ),
    Mutant(
        f"{S}figures/drawings/learning_curves.py",
        "counts = np.diff([*starts, len(line.x)])",
        "counts = size",
        "the end of a learning curve sinks",
        ("figures/test_columns.py::test_a_learning_curve_is_means_of_neighbouring_steps",),
    ),
    Mutant(
        f"{S}figures/numbers.py",
        "np.exp(np.log(self.seeds).mean()) if self.logarithmic else self.seeds.mean()",
        "self.seeds.mean()",
        "ratios are drawn by their arithmetic mean",
        ("figures/test_columns.py::test_a_sweep_of_a_ratio_has_its_geometric_mean",),
    ),
)

PLAN = (
    Mutant(
        f"{S}plan/plan.py",
        "longest[key][0] >= length",
        "longest[key][0] <= length",
        "a collection takes each run's shortest curve",
        ("plan/test_plan.py::test_a_collection_classifies_every_curve_once_at_its_longest",),
    ),
    Mutant(
        f"{S}plan/arms.py",
        '{"initial_state": state | changed}',
        '{"initial_state": changed | state}',
        "an arm's override of its initial state is lost",
        ("plan/test_plan.py::test_the_arm_is_the_recipe_with_its_changes",),
    ),
    Mutant(
        f"{S}plan/groups.py",
        "limit = 60 * cluster.max_hours / ATTEMPTS",
        "limit = 60 * cluster.max_hours",
        "a job of tables asks for more than the limit at its last attempt",
        ("plan/test_resources.py::test_no_job_asks_for_more_than_a_cluster_allows",),
    ),
    Mutant(
        f"{S}plan/resources.py",
        "passes = 4 if training.activation_checkpointing else 3",
        "passes = 3",
        "activation checkpointing costs no time",
        ("plan/test_resources.py::test_training_takes_its_operations_over_the_rate",),
    ),
    Mutant(
        f"{S}plan/resources.py",
        "min(attempt * ceil(seconds / 60), most)",
        "min(ceil(seconds / 60), most)",
        "a job that ran out of time asks for no more",
        ("plan/test_resources.py::test_what_jobs_ask_for_grows_with_the_attempt_and_stays_below_the_limit",),
    ),
    Mutant(
        f"{S}specs/mixers/mamba2.py",
        "by_head = 3 * H",
        "by_head = 2 * H",
        "Mamba-2's parameters miss one a head",
        ("plan/test_parameters.py::test_the_counts_of_all_named_models_are_exact",),
    ),
    Mutant(
        f"{S}specs/initial_states/base.py",
        "gathered = int(micro < mine)",
        "gathered = 0",
        "states of micro-batches that are gathered take no memory",
        ("plan/test_memory.py::test_states_are_reckoned_within_a_fifth",),
    ),
    Mutant(
        f"{S}specs/measurements/base.py",
        "next(iter(found)) if len(found) == 1 else kind",
        "kind",
        "a class of the one curve that an arm has is refused where the curve has a name",
        ("plan/test_plan.py::test_an_arm_may_have_two_of_a_kind_under_two_names",),
    ),
    Mutant(
        f"{S}specs/measurements/restart_loss.py",
        "windows + k // 2",
        "windows + k",
        "restarts are reckoned twice as many",
        ("plan/test_resources.py::test_a_measurement_takes_the_tokens_that_it_reads",),
    ),
    Mutant(
        f"{S}specs/measurements/base.py",
        "min(self.length, caps.max_contexts * context)",
        "min(self.length, caps.max_contexts)",
        "a rehearsed curve is as many tokens long as it should be contexts",
        ("plan/test_plan.py::test_a_rehearsal_caps_everything",),
    ),
    Mutant(
        f"{S}plan/plan.py",
        "dict.fromkeys(reversed(line))",
        "dict.fromkeys(line)",
        "runs stand before their parents",
        ("plan/test_plan.py::test_a_parent_that_no_figure_shows_is_planned",),
    ),
    Mutant(
        f"{S}plan/arms.py",
        "if other and other.snapshot_of == arm}",
        "if other and other.snapshot_of}",
        "every arm keeps the snapshots that are taken of others",
        ("plan/test_plan.py::test_an_arm_keeps_the_snapshots_that_are_taken_of_it_and_no_others",),
    ),
    Mutant(
        f"{S}plan/resources.py",
        "tokens = max((training_tokens(run)",
        "tokens = min((training_tokens(run)",
        "a store is sized by the shortest run that reads it",
        ("plan/test_resources.py::test_a_store_is_sized_by_the_longest_run_that_reads_it",),
    ),
    Mutant(
        f"{S}plan/walltime.py",
        "rest[job] = needs[job].seconds + max(",
        "rest[job] = 1.0 + max(",
        "the way with most jobs goes first, however short they are",
        ("plan/test_walltime.py::test_the_longest_way_is_that_of_most_seconds_and_not_of_most_jobs",),
    ),
)

SPECS = (
    Mutant(
        f"{S}specs/initial_states/state_passing.py",
        "return batch",
        "return 1",
        "a checkpoint of State Passing is reckoned with the state of one sequence",
        ("plan/test_memory.py::test_a_checkpoint_holds_what_is_reckoned_for_its_policy",),
    ),
    Mutant(
        f"{S}specs/training.py",
        "if micro is not None and (micro % self.context or self.batch_tokens % micro):",
        "if micro is not None and micro % self.context:",
        "micro-batches that do not divide the batch are taken",
        ("extension/test_refused.py::test_numbers_that_make_no_sense",),
    ),
    Mutant(
        f"{S}specs/training.py",
        "return 0 if self.parent is None else self.parent.stage + 1",
        "return 0 if self.parent is None else 1",
        "the third stage reads in the order of the second",
        ("training/test_loop.py::test_every_stage_reads_in_an_order_of_its_own",),
    ),
    Mutant(
        f"{S}specs/training.py",
        "(self.chinchilla or 0) * TOKENS_PER_PARAMETER * parameters",
        "(self.chinchilla or 0) * parameters",
        "a multiple of Chinchilla's budget is a multiple of the parameters",
        ("training/test_loop.py::test_budgets_in_tokens_and_chinchilla",),
    ),
    Mutant(
        f"{S}specs/claim.py",
        "self.above >= self.below:",
        "self.above > self.below:",
        "a claim may have an empty region",
        ("claims/test_verdict.py::test_a_region_is_neither_unbounded_nor_empty",),
    ),
)

DIAGNOSIS = (
    Mutant(
        f"{S}diagnosis/readings.py",
        "(len(spans) * looks)",
        "len(spans)",
        "who looks several times does not share the level among the looks",
        ("diagnosis/test_readings.py::test_ratios_are_students_intervals_at_a_shared_level",),
    ),
    Mutant(
        f"{S}diagnosis/readings.py",
        "values = np.nan_to_num(values, nan=BEYOND)",
        "values = np.nan_to_num(values, nan=0.0)",
        "a loss that is not a number is no failure",
        ("diagnosis/test_readings.py::test_a_loss_that_is_no_number_fails_there",),
    ),
    Mutant(
        f"{S}diagnosis/comparison.py",
        "exponential(after - before)",
        "exponential(before - after)",
        "a change is told the wrong way round",
        ("diagnosis/test_comparison.py::test_changes_are_paired_by_window",),
    ),
    Mutant(
        f"{S}diagnosis/sampling.py",
        "replace(self.reader.past(read), title=",
        "replace(self.reader, title=",
        "every round reads the first windows again",
        ("diagnosis/test_sampling.py::test_every_window_is_read_once_and_its_numbers_go_on",),
    ),
)

EXTENSION = (
    Mutant(
        f"{S}extension/choice.py",
        "rise <= log1p(tolerance)",
        "rise <= log1p(tolerance) + 1",
        "weights that have become worse in context are chosen",
        ("extension/test_choice.py::test_the_least_of_the_measure_among_the_admitted",),
    ),
    Mutant(
        f"{S}extension/recipe.py",
        "peak_lr(spec, model) / model.peak_lr",
        "peak_lr(spec, model)",
        "the extension's rate is scaled by the model's peak a second time",
        ("extension/test_recipe.py::test_the_papers_recipe",),
    ),
    Mutant(
        f"{S}extension/recipe.py",
        "return _run(spec, parent, data, source, ZeroState(order=spec.initial_state.order))",
        "return _run(spec, parent, data, source, spec.initial_state)",
        "the control arm has the intervention",
        ("extension/test_recipe.py::test_the_papers_recipe",),
    ),
    Mutant(
        f"{S}extension/losses.py",
        "in_context=_mean(mean_loss(restart_loss, context // 2, length)",
        "in_context=_mean(mean_loss(position_loss, context // 2, length)",
        "the loss in context is that of reading on",
        ("extension/test_outcome.py::test_the_losses_that_choose_are_means_over_the_windows",),
    ),
)

GRIDS = (
    Mutant(
        f"{S}specs/grid.py",
        "{axis: chosen[axis].name for axis in axes[source]}",
        "{axis: axes[source][axis][0].name for axis in axes[source]}",
        "every member goes on from the first one",
        ("specs/test_grid.py",),
    ),
    Mutant(
        f"{S}specs/grid.py",
        "    return found | own[name]",
        "    return own[name]",
        "an arm has not the axes of the arm whose weights it takes",
        ("specs/test_grid.py",),
    ),
    Mutant(
        f"{S}specs/grid.py",
        "    if count > most:",
        "    if count > most**2:",
        "a grid of thousands is spanned",
        ("specs/test_grid.py",),
    ),
    Mutant(
        f"{S}specs/families.py",
        "return stands_at(these, {axis: those[axis] for axis in these.keys() & those.keys()})",
        "return True",
        "a claim about two families takes any of their members together",
        ("plan/test_grid.py",),
    ),
    Mutant(
        f"{S}plan/keys.py",
        "if len(found) == 1:",
        "if found:",
        "of two fields that a key may mean the first one is set",
        ("plan/test_grid.py",),
    ),
    Mutant(
        f"{S}plan/keys.py",
        "    if name is None or before == after:",
        "    if name is None or True:",
        "models that differ bear one name",
        ("plan/test_grid.py",),
    ),
    Mutant(
        f"{S}plan/arms.py",
        "data if entry.data else above[",
        "data if True else above[",
        "what goes on from a member reads other data",
        ("plan/test_grid.py",),
    ),
    Mutant(
        f"{S}plan/rehearsal.py",
        "(values[axis][0], values[axis][-1])",
        "(values[axis][0],)",
        "a rehearsal takes the first value of every axis alone",
        ("plan/test_grid.py",),
    ),
    Mutant(
        f"{S}figures/style.py",
        "order = sorted(values[leading]) if leading in numbers else values[leading]",
        "order = values[leading]",
        "colours of a family do not follow its numbers",
        ("figures/test_style.py",),
    ),
    Mutant(
        f"{S}figures/drawings/sweep.py",
        'key = (series.family or "", member_name("", axes))',
        'key = ("", member_name("", axes))',
        "families on one axis are one curve",
        ("figures/test_sweeps.py",),
    ),
    Mutant(
        f"{S}specs/quantities/sweep.py",
        "family in (None, one.family) and stands_at",
        "stands_at",
        "a sweep over a family reads the others too",
        ("figures/test_sweeps.py",),
    ),
    Mutant(
        f"{S}evaluation/learning_curve.py",
        '(pl.col("step") - 1) // spec.every',
        'pl.col("step") // spec.every',
        "the first row of a learning curve is short of a step",
        ("evaluation/test_learning_curve.py",),
    ),
    Mutant(
        f"{S}evaluation/measure.py",
        'frame = frame.filter(pl.col("step") <= step)',
        'frame = frame.filter(pl.col("step") >= 0)',
        "a snapshot's learning curve goes on past it",
        ("evaluation/test_learning_curve.py",),
    ),
)

REPORT = (
    Mutant(
        f"{S}base/formulas.py",
        'tag = "msubsup" if len(scripts) == 2 else "msub" if node.low is not None else "msup"',
        'tag = "msubsup" if len(scripts) == 2 else "msub"',
        "a page sets powers low",
        ("base/test_formulas.py",),
    ),
    Mutant(
        f"{S}base/formulas.py",
        "return prose(text, html.escape, mathml)",
        "return prose(text, str, mathml)",
        "prose with formulas is not escaped",
        ("base/test_formulas.py", "report/test_page.py"),
    ),
    Mutant(
        f"{S}report/gather.py",
        'return "unregistered" if self.unregistered else self.style',
        "return self.style",
        "a claim that was not registered has the mark of its verdict",
        ("report/test_page.py::test_a_mark_says_why_a_verdict_does_not_count",),
    ),
    Mutant(
        f"{S}report/board.py",
        "'' if target in here else",
        "'' if target else",
        "the front page's marks lead to figures that are on other pages",
        ("report/test_page.py::test_every_page_stands_alone_and_every_link_leads_somewhere",),
    ),
    Mutant(
        f"{S}report/gather.py",
        "                if target in needed:\n                    raise\n",
        "",
        "a figure that was asked for is left out where it is broken",
        ("report/test_page.py::test_a_figure_of_an_older_plan_keeps_no_page_from_being_written",),
    ),
    Mutant(
        f"{S}report/compare.py",
        "if here.number != there.number:",
        "if False:",
        "a claim agrees with one that other seeds decided",
        ("report/test_reference.py::test_another_verdict_or_another_claim_is_no_agreement",),
    ),
    Mutant(
        f"{S}report/compare.py",
        "size = max(abs(there.estimate), (there.high - there.low) / 2)",
        "size = abs(there.estimate)",
        "estimates near zero never agree",
        ("report/test_reference.py::test_an_estimate_near_zero_is_held_against_its_interval",),
    ),
    Mutant(
        f"{S}report/held.py",
        'claim for claim in reference.claims if claim.registered and claim.sort != "elsewhere"]',
        "claim for claim in reference.claims]",
        "README counts what was not registered",
        ("report/test_reference.py::test_what_was_not_registered_is_no_result",),
    ),
    Mutant(
        f"{S}plan/resources.py",
        "layers * hardware.cpu_layer_ms / 1e3\n",
        "layers * hardware.layer_ms / 1e3\n",
        "a CPU's layers take what a GPU's do",
        ("plan/test_resources.py::test_a_cpu_does_operations_and_python_one_after_the_other",),
    ),
)

IMPORTED = ("training/test_imported.py",)
PUBLISHED = (
    Mutant(
        f"{S}training/imported.py",
        "_check_model(model.spec, run.model, opened.name)",
        "model.spec = run.model",
        "published weights of another architecture are taken",
        IMPORTED,
    ),
    Mutant(
        f"{S}training/imported.py",
        "_check_tokenizer(opened, run.data)",
        "opened.model.eval()",
        "published weights read the numbers of another tokenizer",
        IMPORTED,
    ),
    Mutant(
        f"{S}training/imported.py",
        "weights, run, 0, opened.fingerprint)",
        "weights, run, 0, checkpoint.name)",
        "weights that changed under their name are those of before",
        IMPORTED,
    ),
    Mutant(
        f"{S}training/imported.py",
        "resized[: model.vocab_size] = tensor[: model.vocab_size]",
        "resized[: model.vocab_size - 1] = tensor[: model.vocab_size - 1]",
        "the last token of an imported vocabulary has no embedding",
        IMPORTED,
    ),
    Mutant(
        f"{S}training/ending.py",
        '**({"published": parent["published"]} if "published" in parent else {}),',
        "",
        "post-training forgets whose weights it started from",
        IMPORTED,
    ),
    Mutant(
        f"{S}claims/verdict.py",
        "or len(published) > 1",
        "",
        "seeds decide between weights that were published once each",
        ("claims/test_verdict.py::test_published_weights_are_of_one_training_whatever_seeds_read_them",),
    ),
    Mutant(
        f"{S}plan/arms.py",
        "context = entry.context or",
        "context = 32 or",
        "every checkpoint was trained on 32 tokens",
        ("plan/test_published.py",),
    ),
    Mutant(
        f"{S}plan/resources.py",
        "gpus = int(self.gpu and run.checkpoint is None)",
        "gpus = int(self.gpu)",
        "an import asks for a GPU",
        ("plan/test_published.py",),
    ),
)

INSIDE = "evaluation/test_inside.py"
READING = (
    Mutant(
        f"{M}inspect/influence.py",
        "return (squares * (width / len(rows))).sqrt()",
        "return squares.sqrt()",
        "fewer directions are taken for less influence",
        ("models/test_influence.py",),
    ),
    Mutant(
        f"{M}inspect/influence.py",
        "inputs[0].detach().requires_grad_()",
        "inputs[0].detach().clone().relu().requires_grad_()",
        "the influence is that at another input",
        ("models/test_influence.py",),
    ),
    Mutant(
        f"{S}evaluation/influence.py",
        "torch.arange(spec.length - 1, -1, -1)",
        "torch.arange(spec.length)",
        "distances are counted from the first token",
        (INSIDE,),
    ),
    Mutant(
        f"{S}evaluation/smoothness.py",
        "* (T / (T - 1))",
        "* (T / (T + 1))",
        "the pairwise distance is a little too small",
        (INSIDE,),
    ),
    Mutant(
        f"{S}evaluation/smoothness.py",
        '"b": signals.bare_b',
        '"b": signals.b',
        "the step size is left in b",
        (INSIDE,),
    ),
    Mutant(
        f"{S}evaluation/decay_range.py",
        "return sizes.amax(1) - sizes.amin(1)",
        "return sizes.amax(1) - sizes.mean(1)",
        "ranges end at the mean decay",
        (INSIDE,),
    ),
    Mutant(
        f"{S}evaluation/decay_range.py",
        "sizes.amax((1, 3)) - sizes.amin((1, 3))",
        "(sizes.amax(1) - sizes.amin(1)).amax(-1)",
        "a channel's range is the widest of its states",
        (INSIDE,),
    ),
    Mutant(
        f"{S}evaluation/histograms.py",
        "if not coefficients.averages:",
        "if True:",
        "weights of a running average count as decays",
        (INSIDE,),
    ),
    Mutant(
        f"{S}evaluation/histograms.py",
        "right=True",
        "right=False",
        "what is just as much as a threshold lies above it",
        (INSIDE,),
    ),
    Mutant(
        f"{S}evaluation/memory_length.py",
        "sizes.double().log().mean(1)",
        "sizes.double().mean(1).log()",
        "memory is that of the arithmetic mean of decays",
        (INSIDE,),
    ),
    Mutant(
        f"{S}evaluation/memory_length.py",
        ".clamp_max(0.0).abs()",
        ".neg()",
        "a decay of 1 remembers nothing",
        (INSIDE,),
    ),
    Mutant(
        f"{S}claims/quantities/curve.py",
        "(x <= spec.between[1])",
        "(x < spec.between[1])",
        "the last point of a curve between two is left out",
        ("claims/test_sweeps.py::test_a_curve_between_two_points",),
    ),
    Mutant(
        f"{S}claims/quantities/r_squared.py",
        "(height @ distance) ** 2 /",
        "np.abs(height @ distance) /",
        "R^2 is no square",
        ("claims/test_sweeps.py::test_how_straight_a_curve_is",),
    ),
    Mutant(
        f"{S}figures/data.py",
        "line.y[own] - other.y[its]",
        "line.y[own] - other.y[own]",
        "points of two curves are paired by their place",
        ("figures/test_columns.py::test_a_curve_against_that_of_another_panel",),
    ),
    Mutant(
        f"{S}diagnosis/readings.py",
        '_share(1 - by[kept_tokens]["share"].to_numpy())',
        '_share(by[kept_tokens]["share"].to_numpy())',
        "states that forget are called those that never do",
        ("diagnosis/test_readings.py",),
    ),
    Mutant(
        f"{S}plan/resources.py",
        "return self.training(run) if _steps(run) else",
        "return self.training(run) if run.checkpoint is None else",
        "initial weights ask for what training takes",
        ("plan/test_resources.py::test_a_run_of_zero_steps_takes_its_weights_alone",),
    ),
)

MUTANTS = (
    *CPP,
    *TORCH,
    *GPU,
    *MODELS,
    *TRAINING,
    *DATA,
    *TASKS,
    *MEASUREMENTS,
    *CLAIMS,
    *SWEEPS,
    *PLAN,
    *SPECS,
    *DIAGNOSIS,
    *EXTENSION,
    *GRIDS,
    *REPORT,
    *PUBLISHED,
    *READING,
)
