// The causal depthwise convolution with its bias and SiLU, forward and backward, on the CPU.
//
// The lanes of a vector are channels. A tile of 8 steps loads each input and each weight once, and computes 8 outputs
// from registers. Tiles go along whole rows, so memory is read in order. The backward pass recomputes the values before
// the activation and goes backward tile by tile. It passes the gradients of the first K - 1 of these values to the
// previous tile. The work is split into segments of 128 steps of one sequence, for any number of threads. Each segment
// sums its gradients of weight and bias. These sums are added in the order of the segments.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lanes.h"
#include "partial_sums.h"
#include "threads.h"

namespace {

constexpr int TILE = 8;
constexpr int64_t SEGMENT = 128;

template <typename T>
struct Conv {
    const T* x;  // (B, T, D), rows of D contiguous channels
    int64_t x_batch, x_row;  // strides of sequences and rows in elements
    const T* weight;  // (D, K)
    const T* bias;  // (D,), or null
    const T* state;  // (B, K - 1, D), or null
    const bool* resets;  // (B, T), or null
    int64_t B, T_, D, K;
    bool silu;
    std::vector<T> taps;  // (K + 2, D): the weight by tap, the bias, and zeros
    std::vector<int32_t> reach;  // (B, T): earlier inputs that a step uses, at most K - 1; empty without resets

    void prepare() {
        taps.resize((K + 2) * D);
        for (int64_t i = 0; i < K; ++i) {
            for (int64_t d = 0; d < D; ++d) taps[i * D + d] = weight[d * K + i];
        }
        if (bias) std::copy_n(bias, D, taps.data() + K * D);
        reach.resize(resets ? B * T_ : 0);
        for (int64_t row = 0; row < int64_t(reach.size()); ++row) {
            const int64_t before = row % T_ ? reach[row - 1] : K - 1;
            reach[row] = int32_t(resets[row] ? 0 : std::min(K - 1, before + 1));
        }
    }
    int64_t segments() const { return (T_ + SEGMENT - 1) / SEGMENT; }
    const T* input(int64_t batch, int64_t t) const {  // rows before the sequence are in the state
        if (t >= 0) return x + batch * x_batch + t * x_row;
        return state ? state + (batch * (K - 1) + K - 1 + t) * D : taps.data() + (K + 1) * D;
    }
    // Whether step t does not see the input `lag` steps before it.
    bool forgets(int64_t batch, int64_t t, int64_t lag) const { return resets && lag > reach[batch * T_ + t]; }
};

template <typename T>
using Vec = simd::Vec<T>;

// bias + the sum over taps for step r of a tile. `in(i)` is the input K - 1 - i steps before the tile's first step.
template <typename T, bool MASKED, typename Weight, typename In>
inline Vec<T> convolved(int64_t K, int r, int32_t reach, Vec<T> bias, Weight weight, In in) {
    Vec<T> sum = bias;
    for (int64_t i = 0; i < K; ++i) {
        if (!MASKED || K - 1 - i <= reach) sum = simd::fma(weight(i), in(r + i), sum);
    }
    return sum;
}

// KC is K if it is known at compile time, otherwise 0. A known K keeps inputs and weights in registers.
template <typename T, int KC, int ROWS, bool MASKED>
void forward_tile(const Conv<T>& c, const T* const* inputs, const int32_t* reach, T* y) {
    // GCC would read the fields again after every store.
    const int64_t K = KC ? KC : c.K, D = c.D;
    const bool silu = c.silu;
    const T* const taps = c.taps.data();
    simd::for_each_vector<T>(D, [&](int64_t d, auto lanes) __attribute__((always_inline)) {
        Vec<T> w[KC ? KC : 1], x[KC ? ROWS + KC - 1 : 1];
        if (KC) {
            for (int i = 0; i < KC; ++i) w[i] = lanes.load(taps + i * D + d);
            for (int i = 0; i < ROWS + KC - 1; ++i) x[i] = lanes.load(inputs[i] + d);
        }
        const auto weight = [&](int64_t i) { return KC ? w[i] : lanes.load(taps + i * D + d); };
        const auto in = [&](int64_t i) { return KC ? x[i] : lanes.load(inputs[i] + d); };
        const Vec<T> bias = lanes.load(taps + K * D + d);
        Vec<T> u[ROWS], s[ROWS];
        for (int r = 0; r < ROWS; ++r) {
            s[r] = u[r] = convolved<T, MASKED>(K, r, MASKED ? reach[r] : 0, bias, weight, in);
        }
        if (silu) simd::sigmoid(s);
        for (int r = 0; r < ROWS; ++r) lanes.store(y + r * D + d, silu ? u[r] * s[r] : u[r]);
    });
}

// Gradients of a tile. `pending` (K - 1, D): gradients of the values before the activation, on entry for the K - 1
// steps after the tile (which depend on its inputs), on return for its first K - 1 steps. `sums` (K + 1, D): gradients
// of weight and bias. `scratch`: ROWS + K - 1 vectors, used if KC is 0.
template <typename T, int KC, int ROWS, bool MASKED>
void backward_tile(const Conv<T>& c, const T* const* inputs, const int32_t* reach, const T* const* dy, T* dx,
                   T* pending, T* sums, Vec<T>* scratch) {
    // GCC would read the fields again after every store.
    const int64_t K = KC ? KC : c.K, D = c.D, x_row = c.x_row, dy_row = ROWS > 1 ? dy[1] - dy[0] : 0;
    const bool silu = c.silu;
    const T* const taps = c.taps.data();
    simd::for_each_vector<T>(D, [&](int64_t d, auto lanes) __attribute__((always_inline)) {
        Vec<T> w[KC ? KC : 1], x[KC ? ROWS + KC - 1 : 1], known[KC ? ROWS + KC - 1 : 1];
        Vec<T>* g = KC ? known : scratch;  // gradients before the activation, for the tile and the steps after it
        if (KC) {
            for (int i = 0; i < KC; ++i) w[i] = lanes.load(taps + i * D + d);
            for (int i = 0; i < ROWS + KC - 1; ++i) x[i] = lanes.load(inputs[i] + d);
        }
        const auto weight = [&](int64_t i) { return KC ? w[i] : lanes.load(taps + i * D + d); };
        const auto in = [&](int64_t i) { return KC ? x[i] : lanes.load(inputs[i] + d); };
        const Vec<T> bias = lanes.load(taps + K * D + d), one(T(1));

        if constexpr (ROWS == TILE) {  // a processor does not follow so many rows backward by itself
            for (int r = 0; r < ROWS; ++r) {
                __builtin_prefetch(inputs[r] - ROWS * x_row + d, 0, 2);
                __builtin_prefetch(dy[r] - ROWS * dy_row + d, 0, 2);
                __builtin_prefetch(dx + (r - ROWS) * D + d, 1, 2);
            }
        }
        for (int r = 0; r < ROWS; ++r) g[r] = lanes.load(dy[r] + d);
        if (silu) {
            Vec<T> u[ROWS], s[ROWS];
            for (int r = 0; r < ROWS; ++r) {
                s[r] = u[r] = convolved<T, MASKED>(K, r, MASKED ? reach[r] : 0, bias, weight, in);
            }
            simd::sigmoid(s);
            for (int r = 0; r < ROWS; ++r)  // silu'(u) = s (1 + u (1 - s))
                g[r] = g[r] * (s[r] * simd::fma(u[r], one - s[r], one));
        }
        for (int64_t i = 0; i < K - 1; ++i) g[ROWS + i] = lanes.load(pending + i * D + d);

        Vec<T> d_bias(T(0));
        for (int r = 0; r < ROWS; ++r) d_bias = d_bias + g[r];
        lanes.add(sums + K * D + d, d_bias);
        for (int64_t i = 0; i < K; ++i) {
            Vec<T> d_weight(T(0));
            for (int r = 0; r < ROWS; ++r) {
                if (!MASKED || K - 1 - i <= reach[r]) d_weight = simd::fma(g[r], in(r + i), d_weight);
            }
            lanes.add(sums + i * D + d, d_weight);
        }
        for (int r = 0; r < ROWS; ++r) {
            Vec<T> d_input(T(0));
            for (int64_t lag = 0; lag < K; ++lag) {
                if (!MASKED || lag <= reach[r + lag]) d_input = simd::fma(weight(K - 1 - lag), g[r + lag], d_input);
            }
            lanes.store(dx + r * D + d, d_input);
        }
        for (int64_t i = 0; i < K - 1; ++i) lanes.store(pending + i * D + d, g[i]);
    });
}

// Whether steps [t, t + n) of a sequence use all K - 1 earlier inputs.
template <typename T>
bool whole(const Conv<T>& c, int64_t batch, int64_t t, int64_t n) {
    if (!c.resets) return true;
    const int32_t* reach = c.reach.data() + batch * c.T_;
    return std::all_of(reach + t, reach + std::min(c.T_, t + n), [&](int32_t r) { return r == c.K - 1; });
}

template <typename T, int KC, int ROWS>
void forward_rows(const Conv<T>& c, int64_t batch, int64_t t, const T** inputs, T* y) {
    for (int64_t i = 0; i < ROWS + c.K - 1; ++i) inputs[i] = c.input(batch, t - c.K + 1 + i);
    T* out = y + (batch * c.T_ + t) * c.D;
    if (whole(c, batch, t, ROWS)) {
        forward_tile<T, KC, ROWS, false>(c, inputs, nullptr, out);
    } else {
        forward_tile<T, KC, ROWS, true>(c, inputs, c.reach.data() + batch * c.T_ + t, out);
    }
}

// `after` (B, K - 1, D): the last inputs, as the state of the next sequence.
template <typename T>
void next_state(const Conv<T>& c, T* after) {
    for (int64_t i = 0; i < c.B * (c.K - 1); ++i) {
        const int64_t batch = i / (c.K - 1), lag = c.K - 2 - i % (c.K - 1);  // before the last step
        if (c.forgets(batch, c.T_ - 1, lag)) {
            std::fill_n(after + i * c.D, c.D, T(0));
        } else {
            std::copy_n(c.input(batch, c.T_ - 1 - lag), c.D, after + i * c.D);
        }
    }
}

template <typename T, int KC>
void forward(const Conv<T>& c, T* y, int64_t threads) {
    using Rows = std::vector<const T*>;
    const auto scratch = [&] { return Rows(TILE + c.K - 1); };
    threads::for_each(c.B * c.segments(), threads, scratch, [&](int64_t unit, Rows& inputs) {
        const int64_t batch = unit / c.segments();
        int64_t t = unit % c.segments() * SEGMENT;
        const int64_t end = std::min(c.T_, t + SEGMENT);
        for (; t + TILE <= end; t += TILE) forward_rows<T, KC, TILE>(c, batch, t, inputs.data(), y);
        for (; t < end; ++t) forward_rows<T, KC, 1>(c, batch, t, inputs.data(), y);
    });
}

template <typename T>
struct Scratch {
    std::vector<const T*> inputs, dy;
    std::vector<int32_t> reach;
    std::vector<T> pending, row, sums;
    std::vector<Vec<T>> gradients;

    explicit Scratch(const Conv<T>& c)
        : inputs(TILE + c.K - 1), dy(TILE), reach(TILE + c.K - 1), pending((c.K - 1) * c.D), row(c.D),
          sums((c.K + 1) * c.D), gradients(TILE + c.K - 1, Vec<T>(T(0))) {}
};

template <typename T, int KC, int ROWS>
void backward_rows(const Conv<T>& c, int64_t batch, int64_t t, const T* dy, int64_t dy_batch, int64_t dy_row, T* dx,
                   T* sums, Scratch<T>& s) {
    for (int64_t i = 0; i < ROWS + c.K - 1; ++i) s.inputs[i] = c.input(batch, t - c.K + 1 + i);
    for (int64_t i = 0; i < ROWS; ++i) s.dy[i] = dy + batch * dy_batch + (t + i) * dy_row;
    if (whole(c, batch, t, ROWS + c.K - 1)) {
        backward_tile<T, KC, ROWS, false>(c, s.inputs.data(), nullptr, s.dy.data(), dx, s.pending.data(), sums,
                                          s.gradients.data());
    } else {
        for (int64_t i = 0; i < ROWS + c.K - 1; ++i) {
            s.reach[i] = t + i < c.T_ ? c.reach[batch * c.T_ + t + i] : 0;
        }
        backward_tile<T, KC, ROWS, true>(c, s.inputs.data(), s.reach.data(), s.dy.data(), dx, s.pending.data(), sums,
                                         s.gradients.data());
    }
}

// Gradients through the initial state, for step t < K - 1.
template <typename T>
void state_gradient(const Conv<T>& c, int64_t batch, const T* pending, T* dstate) {
    const int64_t K = c.K;
    for (int64_t i = 0; i < K - 1; ++i) {  // the input K - 1 - i steps before the first step
        T* row = dstate + (batch * (K - 1) + i) * c.D;
        std::fill_n(row, c.D, T(0));
        for (int64_t t = 0; t <= i && t < c.T_; ++t) {
            const int64_t lag = t + K - 1 - i;
            if (c.forgets(batch, t, lag)) continue;
            const T *weight = c.taps.data() + (K - 1 - lag) * c.D, *g = pending + t * c.D;
            for (int64_t d = 0; d < c.D; ++d) row[d] += weight[d] * g[d];
        }
    }
}

// Adds the gradients of the next state, `dafter` (B, K - 1, D), to those of the inputs that it holds.
template <typename T>
void next_state_gradient(const Conv<T>& c, const T* dafter, T* dx, T* dstate) {
    for (int64_t i = 0; i < c.B * (c.K - 1); ++i) {
        const int64_t batch = i / (c.K - 1), lag = c.K - 2 - i % (c.K - 1), t = c.T_ - 1 - lag;
        if (c.forgets(batch, c.T_ - 1, lag) || (t < 0 && !dstate)) continue;
        T* to = t < 0 ? dstate + (batch * (c.K - 1) + c.K - 1 + t) * c.D : dx + (batch * c.T_ + t) * c.D;
        for (int64_t d = 0; d < c.D; ++d) to[d] += dafter[i * c.D + d];
    }
}

template <typename T>
struct Gradients {
    T *x, *weight, *bias, *state;  // those of bias and state may be null
};

template <typename T, int KC>
void backward(const Conv<T>& c, const T* dy, int64_t dy_batch, int64_t dy_row, const T* dafter, Gradients<T> to,
              int64_t threads) {
    const int64_t units = c.B * c.segments(), size = (c.K + 1) * c.D;
    std::vector<T> partial(units * size), total(size);  // (K + 1, D): sums for weight and bias, of each segment and all
    threads::for_each(units, threads, [&] { return Scratch<T>(c); }, [&](int64_t unit, Scratch<T>& s) {
        const int64_t batch = unit / c.segments(), begin = unit % c.segments() * SEGMENT;
        const int64_t end = std::min(c.T_, begin + SEGMENT);
        const auto back = [&](auto rows, int64_t t, T* dx, T* sums) {
            backward_rows<T, KC, decltype(rows)::value>(c, batch, t, dy, dy_batch, dy_row, dx, sums, s);
        };
        using One = std::integral_constant<int, 1>;
        using Tile = std::integral_constant<int, TILE>;
        // The first steps of the next segment, only for the gradients that they pass back to this segment.
        std::fill(s.pending.begin(), s.pending.end(), T(0));
        for (int64_t t = std::min(c.T_, end + c.K - 1) - 1; t >= end; --t) {
            back(One(), t, s.row.data(), s.sums.data());
        }
        T* sums = partial.data() + unit * size;
        int64_t t = end;
        const auto dx = [&] { return to.x + (batch * c.T_ + t) * c.D; };
        while ((t - begin) % TILE) {
            --t;
            back(One(), t, dx(), sums);
        }
        while (t > begin) {
            t -= TILE;
            back(Tile(), t, dx(), sums);
        }
        if (begin == 0 && to.state) state_gradient(c, batch, s.pending.data(), to.state);
    });
    if (dafter) next_state_gradient(c, dafter, to.x, to.state);
    partial_sums::add_up(partial.data(), units, size, total.data(), threads);
    for (int64_t i = 0; i < c.K; ++i) {
        for (int64_t d = 0; d < c.D; ++d) to.weight[d * c.K + i] = total[i * c.D + d];
    }
    if (to.bias) std::copy_n(total.data() + c.K * c.D, c.D, to.bias);
}

}  // namespace

// The functions return 0, or 1 if there is not enough memory.
#define EXPORT(NAME, T)                                                                                             \
    extern "C" int causal_conv1d_forward_##NAME(                                                                    \
        const T* x, int64_t x_batch, int64_t x_row, const T* weight, const T* bias, const T* state,                 \
        const bool* resets, T* y, T* after, int64_t B, int64_t T_, int64_t D, int64_t K, int64_t silu,              \
        int64_t threads) {                                                                                          \
        return threads::guarded([&] {                                                                               \
            Conv<T> c{x, x_batch, x_row, weight, bias, state, resets, B, T_, D, K, silu != 0};                      \
            c.prepare();                                                                                            \
            K == 4 ? forward<T, 4>(c, y, threads) : forward<T, 0>(c, y, threads);                                   \
            next_state(c, after);                                                                                   \
        });                                                                                                         \
    }                                                                                                               \
    extern "C" int causal_conv1d_backward_##NAME(                                                                   \
        const T* dy, int64_t dy_batch, int64_t dy_row, const T* dafter, const T* x, int64_t x_batch, int64_t x_row, \
        const T* weight, const T* bias, const T* state, const bool* resets, T* dx, T* dweight, T* dbias, T* dstate, \
        int64_t B, int64_t T_, int64_t D, int64_t K, int64_t silu, int64_t threads) {                               \
        return threads::guarded([&] {                                                                               \
            Conv<T> c{x, x_batch, x_row, weight, bias, state, resets, B, T_, D, K, silu != 0};                      \
            c.prepare();                                                                                            \
            const Gradients<T> to{dx, dweight, dbias, dstate};                                                      \
            K == 4 ? backward<T, 4>(c, dy, dy_batch, dy_row, dafter, to, threads)                                   \
                   : backward<T, 0>(c, dy, dy_batch, dy_row, dafter, to, threads);                                  \
        });                                                                                                         \
    }

EXPORT(f32, float)
EXPORT(f64, double)
