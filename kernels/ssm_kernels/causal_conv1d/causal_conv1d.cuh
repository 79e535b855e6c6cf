// A causal depthwise convolution with SiLU, forward and backward, from a state to a state.
//
// A thread processes PACK adjacent channels of a run of steps and keeps the last K inputs in registers. So it reads
// every element once, except for K - 1 steps at the start of a run. Adjacent threads process adjacent channels.
#pragma once

#include "cuda.h"

constexpr int K = TAPS;
constexpr int THREADS = 128;
constexpr int AHEAD = 4;  // number of steps that are loaded at once

// Pointers to device memory, C-contiguous and aligned to 16 bytes, null where absent. The same struct as `Convolution`
// of cuda.py.
struct Convolution {
  const Element* x;                      // (B, T, D)
  const float *weight, *bias, *state;    // (D, K), (D,), (B, K - 1, D)
  const bool* resets;                    // (B, T)
  Element* y;                            // (B, T, D)
  float* after;                          // (B, K - 1, D)
  const Element* dy;                     // (B, T, D)
  const float* dafter;                   // (B, K - 1, D)
  Element* dx;                           // (B, T, D)
  float *dweight, *dbias, *dstate;       // (B * runs, K, D) and (B * runs, D), to be summed; (B, K - 1, D)
  int64_t batch, length, channels, runs, run_length;
  int64_t silu;
};

// The channels and the steps of a thread, and its weights.
template <int PACK>
struct Share {
  int64_t batch, run, channel, begin, end;
  bool exists;
  float weight[K][PACK], bias[PACK];

  __device__ explicit Share(const Convolution& c) {
    const int64_t packs = c.channels / PACK, index = int64_t(blockIdx.x) * THREADS + threadIdx.x;
    exists = index < packs * c.runs * c.batch;
    if (!exists) return;
    channel = index % packs * PACK;
    run = index / packs % c.runs;
    batch = index / packs / c.runs;
    begin = run * c.run_length;
    end = begin + c.run_length < c.length ? begin + c.run_length : c.length;
#pragma unroll
    for (int p = 0; p < PACK; p++) {
      bias[p] = c.bias != nullptr ? c.bias[channel + p] : 0.0f;
#pragma unroll
      for (int i = 0; i < K; i++) weight[i][p] = c.weight[(channel + p) * K + i];
    }
  }

  __device__ int64_t at(const Convolution& c, int64_t t) const { return (batch * c.length + t) * c.channels + channel; }

  // Offset of row `i` of a state: the input K - 1 - i steps before the first step.
  __device__ int64_t row(const Convolution& c, int64_t i) const {
    return (batch * (K - 1) + i) * c.channels + channel;
  }

  __device__ bool reset(const Convolution& c, int64_t t) const {
    return c.resets != nullptr && c.resets[batch * c.length + t];
  }

  // Loads AHEAD steps of a (B, T, D) tensor from step t. Steps from `stop` are 0.
  __device__ void load(float (&values)[AHEAD][PACK], const Convolution& c, const Element* from, int64_t t,
                       int64_t stop) const {
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      Pack<Element, PACK> pack = {};
      if (t + i < stop) pack = *reinterpret_cast<const Pack<Element, PACK>*>(from + at(c, t + i));
#pragma unroll
      for (int p = 0; p < PACK; p++) values[i][p] = to_float(pack.value[p]);
    }
  }

  __device__ void store(Element* to, const Convolution& c, int64_t t, const float (&values)[PACK]) const {
    Pack<Element, PACK> pack;
#pragma unroll
    for (int p = 0; p < PACK; p++) pack.value[p] = from_float<Element>(values[p]);
    *reinterpret_cast<Pack<Element, PACK>*>(to + at(c, t)) = pack;
  }
};

// The last K inputs, oldest first, and the number of them since the last reset. Earlier inputs are 0.
template <int PACK>
struct Window {
  float value[K][PACK] = {};
  int alive = 0;

  __device__ void push(const float (&x)[PACK], bool reset) {
    alive = reset ? 1 : alive < K ? alive + 1 : K;
#pragma unroll
    for (int i = 0; i < K; i++)
#pragma unroll
      for (int p = 0; p < PACK; p++)
        value[i][p] = i == K - 1 ? x[p] : reset ? 0.0f : value[i + 1 < K ? i + 1 : i][p];
  }

  // The K - 1 inputs before step `begin`.
  __device__ Window(const Convolution& c, const Share<PACK>& share) {
    for (int64_t t = share.begin - (K - 1); t < share.begin; t++) {
      float x[PACK] = {};
      if (t >= 0) {
        const auto pack = *reinterpret_cast<const Pack<Element, PACK>*>(c.x + share.at(c, t));
#pragma unroll
        for (int p = 0; p < PACK; p++) x[p] = to_float(pack.value[p]);
      } else if (c.state != nullptr) {
        load_pack(x, c.state + share.row(c, t + K - 1));
      }
      push(x, t >= 0 && share.reset(c, t));
    }
  }

  __device__ void convolve(float (&sums)[PACK], const Share<PACK>& share) const {
#pragma unroll
    for (int p = 0; p < PACK; p++) {
      sums[p] = share.bias[p];
#pragma unroll
      for (int i = 0; i < K; i++) sums[p] = fmaf(value[i][p], share.weight[i][p], sums[p]);
    }
  }
};

template <int PACK>
__global__ void __launch_bounds__(THREADS) forward_kernel(const Convolution c) {
  const Share<PACK> share(c);
  if (!share.exists) return;
  Window<PACK> window(c, share);
  for (int64_t start = share.begin; start < share.end; start += AHEAD) {
    float x[AHEAD][PACK];
    share.load(x, c, c.x, start, share.end);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      const int64_t t = start + i;
      if (t >= share.end) break;
      window.push(x[i], share.reset(c, t));
      float y[PACK];
      window.convolve(y, share);
#pragma unroll
      for (int p = 0; p < PACK; p++) y[p] = c.silu ? y[p] * sigmoid(y[p]) : y[p];
      share.store(c.y, c, t, y);
    }
  }
  if (share.end < c.length) return;
#pragma unroll
  for (int i = 1; i < K; i++) store_pack(c.after + share.row(c, i - 1), window.value[i]);
}

// Steps are in forward order. The gradient of an input is complete K - 1 steps later, when the input leaves the window.
// So a run continues K - 1 steps beyond its end. It writes the gradients of its inputs; the first run also writes the
// gradient of the state.
template <int PACK>
__global__ void __launch_bounds__(THREADS, 3) backward_kernel(const Convolution c) {
  const Share<PACK> share(c);
  if (!share.exists) return;
  Window<PACK> window(c, share);
  float dwindow[K][PACK] = {}, dweight[K][PACK] = {}, dbias[PACK] = {};
  const int64_t beyond = share.end + K - 1;
  for (int64_t start = share.begin; start < beyond; start += AHEAD) {
    float x[AHEAD][PACK], dy[AHEAD][PACK];
    const int64_t stop = beyond < c.length ? beyond : c.length;
    share.load(x, c, c.x, start, stop);
    share.load(dy, c, c.dy, start, stop);
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      const int64_t t = start + i;
      if (t >= beyond) break;
#pragma unroll
      for (int j = 0; j < K; j++)
#pragma unroll
        for (int p = 0; p < PACK; p++) dwindow[j][p] = j == K - 1 ? 0.0f : dwindow[j + 1 < K ? j + 1 : j][p];
      if (t < c.length) {
        window.push(x[i], share.reset(c, t));
        float sums[PACK];
        if (c.silu) window.convolve(sums, share);
#pragma unroll
        for (int p = 0; p < PACK; p++) {
          float gradient = dy[i][p];
          if (c.silu) {
            const float share_of = sigmoid(sums[p]);
            gradient *= share_of * fmaf(sums[p], 1.0f - share_of, 1.0f);
          }
          const float own = t < share.end ? gradient : 0.0f;
          dbias[p] += own;
#pragma unroll
          for (int j = 0; j < K; j++) {
            dweight[j][p] = fmaf(own, window.value[j][p], dweight[j][p]);
            if (j >= K - window.alive) dwindow[j][p] = fmaf(gradient, share.weight[j][p], dwindow[j][p]);
          }
        }
        if (t == c.length - 1) {  // the window now holds the state after the sequence
#pragma unroll
          for (int j = 1; j < K; j++) {
            float dafter[PACK];
            load_pack(dafter, c.dafter + share.row(c, j - 1));
#pragma unroll
            for (int p = 0; p < PACK; p++)
              if (j >= K - window.alive) dwindow[j][p] += dafter[p];
          }
        }
      }
      const int64_t leaving = t - (K - 1);
      if (leaving >= share.begin)
        share.store(c.dx, c, leaving, dwindow[0]);
      else if (leaving < 0 && share.begin == 0)
        store_pack(c.dstate + share.row(c, leaving + K - 1), dwindow[0]);
    }
  }
  const int64_t outer = share.batch * c.runs + share.run;
#pragma unroll
  for (int j = 0; j < K; j++) store_pack(c.dweight + (outer * K + j) * c.channels + share.channel, dweight[j]);
  store_pack(c.dbias + outer * c.channels + share.channel, dbias);
}
