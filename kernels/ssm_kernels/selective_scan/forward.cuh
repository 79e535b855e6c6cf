// The forward scan of one segment. It computes the outputs from the state before it. With LOCAL, it computes the state
// at its end from a zero state, and its total decay.
#pragma once

#include "geometry.cuh"

constexpr int FORWARD_SHARED = 3 * SLOTS + TILE * (2 * PADDED + 1);  // floats

template <bool LOCAL, bool GATED>
__global__ void __launch_bounds__(THREADS, N <= 64 ? 3 : 1) forward_kernel(const Scan s) {
  const Place at(s);
  if (LOCAL && at.segment + 1 == s.segments) return;  // no segment follows the last one

  SHARED_FLOATS(shared);
  float* deltas = shared;                         // (TILE, BLOCK_CHANNELS): step sizes
  float* inputs = deltas + SLOTS;  // delta * u
  float* outputs = inputs + SLOTS;
  float* b_tile = outputs + SLOTS;  // (TILE, PADDED)
  float* c_tile = b_tile + TILE * PADDED;
  float* resets = c_tile + TILE * PADDED;  // (TILE,)

  const Rates rates(s, at);
  const float bias = s.dt_bias != nullptr && at.inside ? s.dt_bias[at.channel] : 0.0f;
  const float skip = s.D != nullptr && at.inside ? s.D[at.channel] : 0.0f;
  const int64_t tiles = (s.length + TILE - 1) / TILE;

  States h;
  if (LOCAL)
    load_states(h, s, at, nullptr, 0);
  else if (s.segments > 1)
    load_states(h, s, at, s.states, at.batch * s.segments + at.segment);
  else
    load_states(h, s, at, s.h0, at.batch);
  float total[CHANNELS] = {};  // LOCAL: the sum of the step sizes
  bool forgotten = false;      // LOCAL: there was a reset

  float u[ELEMENTS], dt[ELEMENTS], z[ELEMENTS], b[PROJECTIONS], c[PROJECTIONS];  // for the next tile
#pragma unroll
  for (int i = 0; i < ELEMENTS; i++) {
    u[i] = element(s.u, s, at, at.begin, i);
    dt[i] = element(s.dt, s, at, at.begin, i);
  }
  load_projection(b, s.B, s, at, at.begin);
  if (!LOCAL) load_projection(c, s.C, s, at, at.begin);

  for (int64_t start = at.begin; start < at.end; start += TILE) {
    const int steps = at.end - start < TILE ? static_cast<int>(at.end - start) : TILE;
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
      const int place = i * THREADS + static_cast<int>(threadIdx.x);
      const float delta = step_size(dt[i], bias);
      deltas[place] = for_decay(delta);
      inputs[place] = delta * u[i];
      if (!LOCAL) outputs[place] = skip * u[i];
    }
    store_projection(b_tile, b);
    if (!LOCAL) store_projection(c_tile, c);
    store_resets(resets, s, at, start);
    __syncthreads();

#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {  // load the next tile during the scan of this one
      u[i] = element(s.u, s, at, start + TILE, i);
      dt[i] = element(s.dt, s, at, start + TILE, i);
      if (!LOCAL && GATED) z[i] = element(s.z, s, at, start, i);
    }
    load_projection(b, s.B, s, at, start + TILE);
    if (!LOCAL) load_projection(c, s.C, s, at, start + TILE);

    if (!LOCAL && s.saved != nullptr) store_states(h, s, at, s.saved, at.batch * tiles + start / TILE);
#pragma unroll 2
    for (int t = 0; t < steps; t++) {
      float delta[CHANNELS], input[CHANNELS], bs[STATES_HERE], cs[STATES_HERE], sums[CHANNELS] = {};
      load_pack(delta, deltas + t * BLOCK_CHANNELS + at.own);
      load_pack(input, inputs + t * BLOCK_CHANNELS + at.own);
      load_pack(bs, b_tile + t * PADDED + at.part * STATES_HERE);
      if (!LOCAL) load_pack(cs, c_tile + t * PADDED + at.part * STATES_HERE);
      if (resets[t] != 0.0f) {  // the same for all threads of the block
        forgotten = true;
#pragma unroll
        for (int j = 0; j < CHANNELS; j++)
#pragma unroll
          for (int n = 0; n < STATES_HERE; n++) h[j][n] = 0.0f;
      }
#pragma unroll
      for (int j = 0; j < CHANNELS; j++) {
#pragma unroll
        for (int n = 0; n < STATES_HERE; n++) {
          h[j][n] = fmaf(rates.decay(j, n, delta[j]), h[j][n], input[j] * bs[n]);
          if (!LOCAL) sums[j] = fmaf(h[j][n], cs[n], sums[j]);
        }
        if (LOCAL) total[j] += delta[j];
      }
      if (!LOCAL) {
        const Reduction<CHANNELS, LANES, 1> sum(sums, at.lane);
        if (sum.writes) {
#pragma unroll
          for (int i = 0; i < sum.HELD; i++) outputs[t * BLOCK_CHANNELS + at.own + sum.first + i] += sums[i];
        }
      }
    }
    __syncthreads();

    if constexpr (!LOCAL) {
#pragma unroll
      for (int i = 0; i < ELEMENTS; i++) {
        const int64_t t = start + i * ROWS + at.row;
        float y = outputs[i * THREADS + threadIdx.x];
        if (GATED) y *= z[i] * sigmoid(z[i]);
        if (at.inside && t < at.end) s.y[(at.batch * s.length + t) * s.channels + at.channel] = from_float<Element>(y);
      }
    }
  }

  if (LOCAL) {
    const int64_t outer = at.batch * s.segments + at.segment;
    store_states(h, s, at, s.states, outer);
#pragma unroll
    for (int j = 0; j < CHANNELS; j++)
#pragma unroll
      for (int n = 0; n < STATES_HERE; n++) h[j][n] = forgotten ? 0.0f : rates.decay(j, n, total[j]);
    store_states(h, s, at, s.decays, outer);
  } else if (at.segment + 1 == s.segments) {
    store_states(h, s, at, s.hT, at.batch);
  }
}
