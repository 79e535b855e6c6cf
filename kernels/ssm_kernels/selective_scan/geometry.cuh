// The layout of a selective scan on a GPU, and functions that its kernels share.
//
// Sequences are split into segments, which blocks process in parallel, and segments into tiles of TILE steps. A block
// of 4 warps processes BLOCK_CHANNELS channels of one segment, tile by tile. There are two kinds of work per tile:
//   element-wise  One thread per (step, channel): loads, softplus, gates, stores. Adjacent elements in memory belong to
//                 adjacent threads.
//   recurrent     A thread holds CHANNELS x STATES_HERE states of CHANNELS adjacent channels in registers. The N states
//                 of a channel are spread over LANES adjacent lanes. Shuffles sum over n or the channels of a warp.
// Both exchange data through shared memory. All values are float, and every sum has a fixed order.
#pragma once

#include <type_traits>

#include "cuda.h"

constexpr int N = STATES;

constexpr int WARPS = N <= 128 ? 4 : 1;
constexpr int THREADS = WARPS * 32;
constexpr int LANES = N <= 4 ? 1 : N <= 8 ? 2 : N <= 16 ? 4 : N <= 32 ? 8 : N <= 64 ? 16 : 32;
constexpr int GROUPS = 32 / LANES;  // groups of lanes in a warp
constexpr int STATES_HERE = N <= 128 ? 4 : N <= 256 ? 8 : N <= 512 ? 16 : N <= 1024 ? 32 : 64;
constexpr int CHANNELS = N > 256 ? 1 : N > 128 ? 2 : LANES < 4 ? LANES : 4;
constexpr int WARP_CHANNELS = GROUPS * CHANNELS;
constexpr int BLOCK_CHANNELS = WARPS * WARP_CHANNELS;
constexpr int PADDED = LANES * STATES_HERE;  // N with padding; padded states stay 0

constexpr int TILE = N <= 512 ? 16 : N <= 1024 ? 8 : 4;
constexpr int SUB = 4;  // number of steps whose states and decays the backward keeps in registers
constexpr int SUBS = TILE / SUB;
constexpr int ROWS = THREADS / BLOCK_CHANNELS;                           // steps per pass of all threads
constexpr int ELEMENTS = ROWS < TILE ? TILE / ROWS : 1;                  // elements of an element-wise tile per thread
constexpr int SLOTS = ELEMENTS * THREADS;                                // size of this tile, (TILE, BLOCK_CHANNELS)
constexpr int PROJECTIONS = (TILE * PADDED + THREADS - 1) / THREADS;     // elements of a tile of B or C per thread

static_assert(N <= 2048 && THREADS % BLOCK_CHANNELS == 0 && (ROWS > TILE || TILE % ROWS == 0));

// One scan: pointers to device memory, C-contiguous, null where absent. The same struct as `Scan` of cuda.py.
struct Scan {
  const Element *u, *dt, *z;        // (B, T, D)
  const Element *B, *C;             // (B, T, N)
  const float *A;                   // (D, N)
  const float *D, *dt_bias;         // (D,)
  const float *h0;                  // (B, D, N)
  const bool *resets;               // (B, T)
  Element *y;                       // (B, T, D)
  float *hT;                        // (B, D, N)
  float *saved;                     // (B, tiles, D, N): the state before every tile
  float *decays, *states;           // (B, segments, D, N): the decay across a segment; its last state or adjoint, which
                                    //   `combine` replaces by the one that it starts from
  const Element *dy;                // (B, T, D)
  const float *dhT;                 // (B, D, N)
  Element *du, *ddt, *dz;           // (B, T, D)
  float *dB, *dC;                   // (channel blocks, B, T, N): to be summed over the first axis
  float *dA, *dD, *ddt_bias;        // (B * segments, D, N) and (B * segments, D), likewise
  float *dh0;                       // (B, D, N)
  int64_t batch, length, channels, segments, segment_length;  // a segment has whole tiles
};

// The position of a block and a thread.
struct Place {
  int64_t batch, segment, first_channel, begin, end;  // of the block; steps begin..end - 1
  int lane, part, group, own;                         // recurrent: slice of states, group of lanes, first channel
  int column, row;                                    // element-wise: channel in the block, first step
  int64_t channel;                                    // of `column`
  bool inside;                                        // whether this channel exists (and the thread has a step)

  __device__ explicit Place(const Scan& s) {
    const int64_t blocks = (s.channels + BLOCK_CHANNELS - 1) / BLOCK_CHANNELS;
    const int64_t block = blockIdx.x;
    first_channel = block % blocks * BLOCK_CHANNELS;
    segment = block / blocks % s.segments;
    batch = block / blocks / s.segments;
    begin = segment * s.segment_length;
    end = begin + s.segment_length < s.length ? begin + s.segment_length : s.length;
    const int thread = threadIdx.x;
    lane = thread % 32;
    part = lane % LANES;
    group = lane / LANES;
    own = thread / 32 * WARP_CHANNELS + group * CHANNELS;
    column = thread % BLOCK_CHANNELS;
    row = thread / BLOCK_CHANNELS;
    channel = first_channel + column;
    inside = channel < s.channels && row < TILE;
  }

  // Offset of the first state of the thread's channel j in a (.., D, N) tensor, at index `outer` of the leading axes.
  __device__ int64_t state(const Scan& s, int64_t outer, int j) const {
    return (outer * s.channels + first_channel + own + j) * N + part * STATES_HERE;
  }
};

using States = float[CHANNELS][STATES_HERE];

// The thread's states of a (.., D, N) tensor. They are 0 if it is null, and for channels and states that do not exist.
__device__ inline void load_states(States& states, const Scan& s, const Place& at, const float* from, int64_t outer) {
#pragma unroll
  for (int j = 0; j < CHANNELS; j++) {
    const bool exists = from != nullptr && at.first_channel + at.own + j < s.channels;
    const float* address = from + (exists ? at.state(s, outer, j) : 0);
    if (N == PADDED && exists) {
      load_pack(states[j], address);
    } else {
#pragma unroll
      for (int n = 0; n < STATES_HERE; n++)
        states[j][n] = exists && at.part * STATES_HERE + n < N ? address[n] : 0.0f;
    }
  }
}

__device__ inline void store_states(const States& states, const Scan& s, const Place& at, float* to, int64_t outer) {
#pragma unroll
  for (int j = 0; j < CHANNELS; j++) {
    if (at.first_channel + at.own + j >= s.channels) continue;
    float* address = to + at.state(s, outer, j);
    if (N == PADDED) {
      store_pack(address, states[j]);
    } else {
#pragma unroll
      for (int n = 0; n < STATES_HERE; n++)
        if (at.part * STATES_HERE + n < N) address[n] = states[j][n];
    }
  }
}

// A in units of log2, and its decays. A = -inf is a decay of exactly 0 for any delta. With softplus, this follows
// because delta is at least SMALLEST_DELTA and A at least LOWEST. Without softplus, delta can be negative, so a flag
// marks these states.
constexpr float LOG2_E = 1.44269504088896340736f, LN_2 = 0.69314718055994530942f;
constexpr float LOWEST = -3e38f, SMALLEST_DELTA = 1e-35f;

using Mask = std::conditional_t<CHANNELS * STATES_HERE <= 32, uint32_t, uint64_t>;

struct Rates {
  States log2;
  Mask forgets = 0;

  __device__ Rates(const Scan& s, const Place& at) {
    load_states(log2, s, at, s.A, 0);
#pragma unroll
    for (int j = 0; j < CHANNELS; j++) {
#pragma unroll
      for (int n = 0; n < STATES_HERE; n++) {
        log2[j][n] = fmaxf(log2[j][n] * LOG2_E, LOWEST);
        if (!SOFTPLUS && log2[j][n] == LOWEST) {
          forgets |= Mask(1) << (j * STATES_HERE + n);
          log2[j][n] = 0.0f;
        }
      }
    }
  }

  __device__ float decay(int j, int n, float delta) const {
    const float decay = fast_exp2(delta * log2[j][n]);
    return !SOFTPLUS && (forgets >> (j * STATES_HERE + n) & 1) ? 0.0f : decay;
  }
};

static_assert(CHANNELS * STATES_HERE <= 64);

__device__ inline float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }

__device__ inline float step_size(float dt, float bias) { return SOFTPLUS ? softplus(dt + bias) : dt + bias; }

// Clamps delta to at least SMALLEST_DELTA: with LOWEST, this is a decay of 0. No other decay changes.
__device__ inline float for_decay(float delta) { return SOFTPLUS ? fmaxf(delta, SMALLEST_DELTA) : delta; }

// Sums each of COUNT values over LANES lanes at distance STRIDE. Afterwards, every lane holds HELD of the sums, from
// index `first`. If there are more lanes than values, several lanes hold the same sum, and `writes` is true for one of
// them. (In every stage, a lane sends half of its values to its partner and receives the partner's other half.)
template <int COUNT, int LANE_COUNT, int STRIDE>
struct Reduction {
  static constexpr int HELD = COUNT > LANE_COUNT ? COUNT / LANE_COUNT : 1;
  static constexpr int COPIES = LANE_COUNT > COUNT ? LANE_COUNT / COUNT : 1;
  int first;
  bool writes;

  __device__ Reduction(float (&values)[COUNT], int lane) {
    int count = COUNT;
#pragma unroll
    for (int half = LANE_COUNT / 2; half > 0; half /= 2) {
      const bool upper = lane & half * STRIDE;
      if (count > 1) {
        count /= 2;
#pragma unroll
        for (int i = 0; i < COUNT / 2; i++) {
          if (i < count) {
            const float sent = upper ? values[i] : values[i + count];
            const float kept = upper ? values[i + count] : values[i];
            values[i] = kept + __shfl_xor_sync(ALL_LANES, sent, half * STRIDE);
          }
        }
      } else {
        values[0] += __shfl_xor_sync(ALL_LANES, values[0], half * STRIDE);
      }
    }
    const int place = lane / STRIDE % LANE_COUNT;
    first = place * COUNT / LANE_COUNT;
    writes = place % COPIES == 0;
  }
};

// The element at the tile's step `i * ROWS + row` in a (B, T, D) tensor, or 0 outside of the segment or the channels.
__device__ inline float element(const Element* from, const Scan& s, const Place& at, int64_t start, int i) {
  const int64_t t = start + i * ROWS + at.row;
  return at.inside && t < at.end ? to_float(from[(at.batch * s.length + t) * s.channels + at.channel]) : 0.0f;
}

// Prefetches the block's part of a tile of a (B, T, WIDTH) tensor into the L2 cache.
template <typename T>
__device__ inline void prefetch_tile(const T* from, const Scan& s, const Place& at, int64_t start, int64_t width,
                                     int64_t first, int64_t count) {
  constexpr int LINE = 128 / sizeof(T);  // elements per cache line
  const int lines = static_cast<int>((count + LINE - 1) / LINE);
  for (int i = threadIdx.x; i < TILE * lines; i += THREADS) {
    const int64_t t = start + i / lines, column = first + i % lines * LINE;
    if (t < at.end && column < width) prefetch(from + (at.batch * s.length + t) * width + column);
  }
}

// A thread's part of a tile of B or C. It is loaded early, and stored to shared memory after the previous tile.
__device__ inline void load_projection(float (&values)[PROJECTIONS], const Element* from, const Scan& s,
                                       const Place& at, int64_t start) {
#pragma unroll
  for (int i = 0; i < PROJECTIONS; i++) {
    const int place = i * THREADS + static_cast<int>(threadIdx.x), n = place % PADDED;
    const int64_t t = start + place / PADDED;
    values[i] = place < TILE * PADDED && n < N && t < at.end ? to_float(from[(at.batch * s.length + t) * N + n]) : 0.0f;
  }
}

__device__ inline void store_projection(float* tile, const float (&values)[PROJECTIONS]) {
#pragma unroll
  for (int i = 0; i < PROJECTIONS; i++) {
    const int place = i * THREADS + static_cast<int>(threadIdx.x);
    if (place < TILE * PADDED) tile[place] = values[i];
  }
}

// 1 if step start + threadIdx.x of the tile has a reset, otherwise 0.
__device__ inline void store_resets(float* tile, const Scan& s, const Place& at, int64_t start) {
  for (int i = threadIdx.x; i < TILE; i += THREADS)
    tile[i] = s.resets != nullptr && start + i < at.end && s.resets[at.batch * s.length + start + i] ? 1.0f : 0.0f;
}

// Combines the local results of the segments: the state before each segment (forward from h0), or the adjoint after
// each segment (backward from dhT). One thread per state.
template <bool FORWARDS>
__global__ void combine(const Scan s) {
  const int64_t size = s.channels * N, index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= s.batch * size) return;
  const int64_t batch = index / size, state = index % size;
  const float* start = FORWARDS ? s.h0 : s.dhT;
  float carried = start != nullptr ? start[index] : 0.0f;
  for (int64_t i = 0; i < s.segments; i++) {
    const int64_t segment = FORWARDS ? i : s.segments - 1 - i, place = (batch * s.segments + segment) * size + state;
    const float local = s.states[place], decay = s.decays[place];
    s.states[place] = carried;
    carried = i + 1 < s.segments ? decay * carried + local : carried;
  }
}
