// The backward scan of one segment, from the last tile to the first. With g = dy (times the gate), and in reverse time,
//
//     x_t = C_t g_t + carry_{t+1}        the gradient of h_t
//     carry_t = a_t x_t                  the gradient of h_{t-1} through h_t
//
// the gradients are  dC_t = sum_d g h_t,  dB_t = sum_d x delta u,  d(delta A) = carry_t h_{t-1},  and so on. The
// forward saved the state before every tile. A first pass through the tile recomputes the states of every SUB-th step.
// Then SUB steps at a time, in reverse, are computed with states and decays in registers. Every block of channels
// writes its sums over channels to a separate buffer.
#pragma once

#include "local_adjoint.cuh"

constexpr int CHECKPOINTS = (SUBS - 1) * CHANNELS * STATES_HERE * THREADS;

constexpr int backward_shared(bool gated) {
  return (gated ? 6 : 5) * SLOTS + TILE * (2 * PADDED + 1 + WARPS * 2 * PADDED) + CHECKPOINTS;
}

static_assert(backward_shared(true) * sizeof(float) <= 163 * 1024);  // the limit per block on sm_80

// The values of a step, from shared memory.
struct Step {
  float delta[CHANNELS], u[CHANNELS], b[STATES_HERE];
  bool reset;
};

template <bool GATED>
__global__ void __launch_bounds__(THREADS, WARPS == 4 ? 2 : 1) backward_kernel(const Scan s) {
  const Place at(s);
  SHARED_FLOATS(shared);
  float* deltas = shared;                                   // (TILE, BLOCK_CHANNELS) each
  float* us = deltas + SLOTS;
  float* gradients = us + SLOTS;            // g
  float* input_gradients = gradients + SLOTS;  // of delta * u
  float* rate_gradients = input_gradients + SLOTS;  // of delta, through the decays
  float* b_tile = rate_gradients + SLOTS;   // (TILE, PADDED) each
  float* c_tile = b_tile + TILE * PADDED;
  float* warp_sums = c_tile + TILE * PADDED;                // (WARPS, TILE, 2 * PADDED): dB and dC per warp
  float* checkpoints = warp_sums + WARPS * TILE * 2 * PADDED;  // (SUBS - 1, states of a thread, THREADS)
  float* readouts = checkpoints + CHECKPOINTS;              // (TILE, BLOCK_CHANNELS) if GATED: C . h
  float* resets = readouts + (GATED ? SLOTS : 0);  // (TILE,)

  const Rates rates(s, at);
  const float bias = s.dt_bias != nullptr && at.inside ? s.dt_bias[at.channel] : 0.0f;
  const float skip = s.D != nullptr && at.inside ? s.D[at.channel] : 0.0f;
  const int64_t tiles = (s.length + TILE - 1) / TILE, outer = at.batch * s.segments + at.segment;

  States carry, dA;
  if (s.segments > 1)
    load_states(carry, s, at, s.states, outer);
  else
    load_states(carry, s, at, s.dhT, at.batch);
  load_states(dA, s, at, nullptr, 0);
  float dD = 0.0f, dbias = 0.0f;

  for (int64_t start = at.begin + (at.end - at.begin - 1) / TILE * TILE; start >= at.begin; start -= TILE) {
    const int steps = at.end - start < TILE ? static_cast<int>(at.end - start) : TILE;
    const int subs = (steps + SUB - 1) / SUB;
    {
      float b[PROJECTIONS], c[PROJECTIONS];
      load_projection(b, s.B, s, at, start);
      load_projection(c, s.C, s, at, start);
#pragma unroll
      for (int i = 0; i < ELEMENTS; i++) {
        const int place = i * THREADS + static_cast<int>(threadIdx.x);
        deltas[place] = for_decay(step_size(element(s.dt, s, at, start, i), bias));
        us[place] = element(s.u, s, at, start, i);
        gradients[place] = gated_gradient<GATED>(s, at, start, i);
      }
      store_projection(b_tile, b);
      store_projection(c_tile, c);
      store_resets(resets, s, at, start);
    }
    __syncthreads();
    prefetch_tile_before<GATED, false>(s, at, start);

    const auto step_at = [&](int t) {
      Step step;
      load_pack(step.delta, deltas + t * BLOCK_CHANNELS + at.own);
      load_pack(step.u, us + t * BLOCK_CHANNELS + at.own);
      load_pack(step.b, b_tile + t * PADDED + at.part * STATES_HERE);
      step.reset = resets[t] != 0.0f;
      return step;
    };

    States h;
    load_states(h, s, at, s.saved, at.batch * tiles + start / TILE);
    for (int sub = 0; sub + 1 < subs; sub++) {
#pragma unroll
      for (int i = 0; i < SUB; i++) {
        const Step step = step_at(sub * SUB + i);
#pragma unroll
        for (int j = 0; j < CHANNELS; j++)
#pragma unroll
          for (int n = 0; n < STATES_HERE; n++) {
            const float decay = step.reset ? 0.0f : rates.decay(j, n, step.delta[j]);
            h[j][n] = fmaf(decay, h[j][n], step.delta[j] * step.u[j] * step.b[n]);
          }
      }
#pragma unroll
      for (int j = 0; j < CHANNELS; j++)
#pragma unroll
        for (int n = 0; n < STATES_HERE; n++)
          checkpoints[((sub * CHANNELS + j) * STATES_HERE + n) * THREADS + threadIdx.x] = h[j][n];
    }

    for (int sub = subs - 1; sub >= 0; sub--) {
      States before[SUB + 1], decays[SUB];  // before[i + 1] is the state after step i
      if (sub == 0) {
        load_states(before[0], s, at, s.saved, at.batch * tiles + start / TILE);
      } else {
#pragma unroll
        for (int j = 0; j < CHANNELS; j++)
#pragma unroll
          for (int n = 0; n < STATES_HERE; n++)
            before[0][j][n] = checkpoints[(((sub - 1) * CHANNELS + j) * STATES_HERE + n) * THREADS + threadIdx.x];
      }
#pragma unroll
      for (int i = 0; i < SUB; i++) {
        const Step step = step_at(sub * SUB + i);
#pragma unroll
        for (int j = 0; j < CHANNELS; j++)
#pragma unroll
          for (int n = 0; n < STATES_HERE; n++) {
            decays[i][j][n] = step.reset ? 0.0f : rates.decay(j, n, step.delta[j]);
            before[i + 1][j][n] = fmaf(decays[i][j][n], before[i][j][n], step.delta[j] * step.u[j] * step.b[n]);
          }
      }
#pragma unroll
      for (int i = SUB - 1; i >= 0; i--) {
        const int t = sub * SUB + i;
        if (t >= steps) continue;  // the sequence ends within these SUB steps
        const Step step = step_at(t);
        float g[CHANNELS], cs[STATES_HERE];
        load_pack(g, gradients + t * BLOCK_CHANNELS + at.own);
        load_pack(cs, c_tile + t * PADDED + at.part * STATES_HERE);
        float by_channel[2 * CHANNELS] = {};   // pairs: for delta * u, for delta
        float by_state[2 * STATES_HERE] = {};  // dB, then dC
        float readout[CHANNELS] = {};
#pragma unroll
        for (int j = 0; j < CHANNELS; j++) {
          const float input = step.delta[j] * step.u[j];
#pragma unroll
          for (int n = 0; n < STATES_HERE; n++) {
            const float x = fmaf(g[j], cs[n], carry[j][n]);
            by_state[n] = fmaf(x, input, by_state[n]);
            by_state[STATES_HERE + n] = fmaf(g[j], before[i + 1][j][n], by_state[STATES_HERE + n]);
            by_channel[2 * j] = fmaf(x, step.b[n], by_channel[2 * j]);
            carry[j][n] = x * decays[i][j][n];
            const float rate = carry[j][n] * before[i][j][n];
            by_channel[2 * j + 1] = fmaf(rate, rates.log2[j][n], by_channel[2 * j + 1]);
            dA[j][n] = fmaf(rate, step.delta[j], dA[j][n]);
            if (GATED) readout[j] = fmaf(cs[n], before[i + 1][j][n], readout[j]);
          }
        }
        const Reduction<2 * CHANNELS, LANES, 1> channel_sums(by_channel, at.lane);
        if (channel_sums.writes) {
#pragma unroll
          for (int k = 0; k < channel_sums.HELD; k++) {
            const int which = channel_sums.first + k;
            float* sums = which % 2 ? rate_gradients : input_gradients;
            sums[t * BLOCK_CHANNELS + at.own + which / 2] = by_channel[k];
          }
        }
        const Reduction<2 * STATES_HERE, GROUPS, LANES> state_sums(by_state, at.lane);
        if (state_sums.writes) {
          float* sums = warp_sums + (static_cast<int>(threadIdx.x) / 32 * TILE + t) * 2 * PADDED;
#pragma unroll
          for (int k = 0; k < state_sums.HELD; k++) {
            const int which = state_sums.first + k;
            sums[which / STATES_HERE * PADDED + at.part * STATES_HERE + which % STATES_HERE] = by_state[k];
          }
        }
        if (GATED) {
          const Reduction<CHANNELS, LANES, 1> readout_sums(readout, at.lane);
          if (readout_sums.writes) {
#pragma unroll
            for (int k = 0; k < readout_sums.HELD; k++)
              readouts[t * BLOCK_CHANNELS + at.own + readout_sums.first + k] = readout[k];
          }
        }
      }
    }
    __syncthreads();

#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
      const int64_t t = start + i * ROWS + at.row;
      if (!at.inside || t >= at.end) continue;
      const int place = i * THREADS + static_cast<int>(threadIdx.x);
      const int64_t index = (at.batch * s.length + t) * s.channels + at.channel;
      const float delta = deltas[place], u = us[place], g = gradients[place], of_input = input_gradients[place];
      s.du[index] = from_float<Element>(fmaf(of_input, delta, g * skip));
      float of_delta = fmaf(of_input, u, rate_gradients[place] * LN_2);
      if (SOFTPLUS) of_delta *= -expm1f(-delta);  // the derivative of softplus, sigmoid(dt)
      s.ddt[index] = from_float<Element>(of_delta);
      dbias += of_delta;
      dD = fmaf(g, u, dD);
      if (GATED) {
        const float z = to_float(s.z[index]), share = sigmoid(z);
        const float y = fmaf(skip, u, readouts[place]);
        s.dz[index] = from_float<Element>(to_float(s.dy[index]) * y * share * fmaf(z, 1.0f - share, 1.0f));
      }
    }
    const int64_t channel_block = at.first_channel / BLOCK_CHANNELS;
    for (int place = threadIdx.x; place < steps * 2 * PADDED; place += THREADS) {
      const int t = place / (2 * PADDED), which = place % (2 * PADDED), n = which % PADDED;
      float sum = 0.0f;
#pragma unroll
      for (int warp = 0; warp < WARPS; warp++) sum += warp_sums[(warp * TILE + t) * 2 * PADDED + which];
      if (n < N)
        (which < PADDED ? s.dB : s.dC)[((channel_block * s.batch + at.batch) * s.length + start + t) * N + n] = sum;
    }  // no barrier here: before the next tile's first barrier, threads only overwrite values that no other reads
  }

  store_states(dA, s, at, s.dA, outer);
  if (at.segment == 0) store_states(carry, s, at, s.dh0, at.batch);
  float* by_row = shared;  // (2, ROWS, BLOCK_CHANNELS): each thread of a channel summed other steps
  by_row[threadIdx.x] = dD;
  by_row[THREADS + threadIdx.x] = dbias;
  __syncthreads();
  if (at.row > 0 || !at.inside) return;
  for (int row = 1; row < ROWS; row++) {
    dD += by_row[row * BLOCK_CHANNELS + at.column];
    dbias += by_row[THREADS + row * BLOCK_CHANNELS + at.column];
  }
  s.dD[outer * s.channels + at.channel] = dD;
  s.ddt_bias[outer * s.channels + at.channel] = dbias;
}
