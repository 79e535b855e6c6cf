// The adjoint at the start of a segment if the adjoint at its end is 0, and the decay across the segment. Also
// functions that it shares with the backward scan. The recurrence is in backward.cuh.
#pragma once

#include "geometry.cuh"

constexpr int LOCAL_ADJOINT_SHARED = 2 * SLOTS + TILE * (PADDED + 1);  // floats

// g: dy times the gate.
template <bool GATED>
__device__ inline float gated_gradient(const Scan& s, const Place& at, int64_t start, int i) {
  const float dy = element(s.dy, s, at, start, i);
  if (!GATED) return dy;
  const float z = element(s.z, s, at, start, i);
  return dy * z * sigmoid(z);
}

// Prefetches the previous tile, which is processed next.
template <bool GATED, bool LOCAL>
__device__ inline void prefetch_tile_before(const Scan& s, const Place& at, int64_t start) {
  const int64_t before = start - TILE;
  if (before < at.begin) return;
  prefetch_tile(s.dt, s, at, before, s.channels, at.first_channel, BLOCK_CHANNELS);
  prefetch_tile(s.dy, s, at, before, s.channels, at.first_channel, BLOCK_CHANNELS);
  if (GATED) prefetch_tile(s.z, s, at, before, s.channels, at.first_channel, BLOCK_CHANNELS);
  if (!LOCAL) prefetch_tile(s.u, s, at, before, s.channels, at.first_channel, BLOCK_CHANNELS);
}

template <bool GATED>
__global__ void __launch_bounds__(THREADS) local_adjoint_kernel(const Scan s) {
  const Place at(s);
  if (at.segment == 0) return;  // no segment precedes the first one

  SHARED_FLOATS(shared);
  float* deltas = shared;                             // (TILE, BLOCK_CHANNELS)
  float* gradients = deltas + SLOTS;  // g
  float* c_tile = gradients + SLOTS;  // (TILE, PADDED)
  float* resets = c_tile + TILE * PADDED;             // (TILE,)

  const Rates rates(s, at);
  const float bias = s.dt_bias != nullptr && at.inside ? s.dt_bias[at.channel] : 0.0f;
  States carry;
  load_states(carry, s, at, nullptr, 0);
  float total[CHANNELS] = {};
  bool forgotten = false;

  for (int64_t start = at.begin + (at.end - at.begin - 1) / TILE * TILE; start >= at.begin; start -= TILE) {
    const int steps = at.end - start < TILE ? static_cast<int>(at.end - start) : TILE;
    float c[PROJECTIONS];
    load_projection(c, s.C, s, at, start);
#pragma unroll
    for (int i = 0; i < ELEMENTS; i++) {
      const int place = i * THREADS + static_cast<int>(threadIdx.x);
      deltas[place] = for_decay(step_size(element(s.dt, s, at, start, i), bias));
      gradients[place] = gated_gradient<GATED>(s, at, start, i);
    }
    store_projection(c_tile, c);
    store_resets(resets, s, at, start);
    __syncthreads();
    prefetch_tile_before<GATED, true>(s, at, start);
#pragma unroll 2
    for (int t = steps - 1; t >= 0; t--) {
      float delta[CHANNELS], g[CHANNELS], cs[STATES_HERE];
      load_pack(delta, deltas + t * BLOCK_CHANNELS + at.own);
      load_pack(g, gradients + t * BLOCK_CHANNELS + at.own);
      load_pack(cs, c_tile + t * PADDED + at.part * STATES_HERE);
      const bool reset = resets[t] != 0.0f;
      forgotten = forgotten || reset;
#pragma unroll
      for (int j = 0; j < CHANNELS; j++) {
#pragma unroll
        for (int n = 0; n < STATES_HERE; n++)
          carry[j][n] = reset ? 0.0f : rates.decay(j, n, delta[j]) * fmaf(g[j], cs[n], carry[j][n]);
        total[j] += delta[j];
      }
    }
    __syncthreads();
  }
  const int64_t outer = at.batch * s.segments + at.segment;
  store_states(carry, s, at, s.states, outer);
#pragma unroll
  for (int j = 0; j < CHANNELS; j++)
#pragma unroll
    for (int n = 0; n < STATES_HERE; n++) carry[j][n] = forgotten ? 0.0f : rates.decay(j, n, total[j]);
  store_states(carry, s, at, s.decays, outer);
}
