// The causal depthwise convolution with its bias and SiLU, forward and backward, on the CPU.
//
// The lanes of a vector are channels. A tile of 8 steps loads each input and each weight once, and computes 8 outputs
// from registers. Tiles go along whole rows, so memory is read in order. The backward pass recomputes the values before
// the activation and goes backward tile by tile. It passes the gradients of the first K - 1 of these values to the
// previous tile. The work is split into segments of 128 steps of one sequence, for any number of threads. Each segment
// sums its gradients of weight and bias. These sums are added in the order of the segments.
//
// `reach` is the number of earlier inputs that step t uses: K - 1, or fewer after a reset.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lanes.h"
#include "threads.h"

namespace {

constexpr int TILE = 8;
constexpr int AT_ONCE = 4;  // sigmoids that are computed together
constexpr int64_t SEGMENT = 128;

template <typename T>
struct Conv {
    const T* x;  // (B, T, D), rows of D contiguous channels
    int64_t x_batch, x_row;  // strides of sequences and rows in elements
    const T* weight;  // (K, D)
    const T* bias;  // (D,), zeros for none
    const T* state;  // (B, K - 1, D), zeros for none
    const int32_t* reach;  // (B, T), or null: no resets
    int64_t B, T_, D, K;
    bool silu;

    int64_t segments() const { return (T_ + SEGMENT - 1) / SEGMENT; }
    const T* input(int64_t batch, int64_t t) const {
        return t >= 0 ? x + batch * x_batch + t * x_row : state + (batch * (K - 1) + K - 1 + t) * D;
    }
};

template <typename T>
using Vec = simd::Vec<T>;

// bias + the sum over taps for step r of a tile. `in(i)` is the input K - 1 - i steps before the tile's first step.
template <typename T, bool MASKED, typename Weight, typename In>
inline Vec<T> taps(int64_t K, int r, int32_t reach, Vec<T> bias, Weight weight, In in) {
    Vec<T> sum = bias;
    for (int64_t i = 0; i < K; ++i) {
        if (!MASKED || K - 1 - i <= reach) sum = simd::fma(weight(i), in(r + i), sum);
    }
    return sum;
}

// KC is K if it is known at compile time, otherwise 0. A known K keeps inputs and weights in registers.
template <typename T, int KC, int ROWS, bool MASKED>
void forward_tile(const Conv<T>& c, const T* const* inputs, const int32_t* reach, T* y) {
    const int64_t K = KC ? KC : c.K;
    constexpr int SOME = std::min(ROWS, AT_ONCE);
    simd::for_each_vector<T>(c.D, [&](int64_t d, auto lanes) __attribute__((always_inline)) {
        Vec<T> w[KC ? KC : 1], x[KC ? ROWS + KC - 1 : 1];
        if (KC) {
            for (int i = 0; i < KC; ++i) w[i] = lanes.load(c.weight + i * c.D + d);
            for (int i = 0; i < ROWS + KC - 1; ++i) x[i] = lanes.load(inputs[i] + d);
        }
        const auto weight = [&](int64_t i) { return KC ? w[i] : lanes.load(c.weight + i * c.D + d); };
        const auto in = [&](int64_t i) { return KC ? x[i] : lanes.load(inputs[i] + d); };
        const Vec<T> bias = lanes.load(c.bias + d);
#pragma GCC unroll 8
        for (int first = 0; first < ROWS; first += SOME) {
            Vec<T> u[SOME], s[SOME];
            for (int i = 0; i < SOME; ++i) {
                const int r = first + i;
                s[i] = u[i] = taps<T, MASKED>(K, r, MASKED ? reach[r] : 0, bias, weight, in);
            }
            if (c.silu) simd::sigmoid(s);
            for (int i = 0; i < SOME; ++i) lanes.store(y + (first + i) * c.D + d, c.silu ? u[i] * s[i] : u[i]);
        }
    });
}

// Gradients of a tile. `pending` (K - 1, D): gradients of the values before the activation, on entry for the K - 1
// steps after the tile (which depend on its inputs), on return for its first K - 1 steps. `sums` (K + 1, D): gradients
// of weight and bias. `scratch`: ROWS + K - 1 vectors, used if KC is 0.
template <typename T, int KC, int ROWS, bool MASKED>
void backward_tile(const Conv<T>& c, const T* const* inputs, const int32_t* reach, const T* const* dy, T* dx,
                   T* pending, T* sums, Vec<T>* scratch) {
    const int64_t K = KC ? KC : c.K;
    constexpr int SOME = std::min(ROWS, AT_ONCE);
    simd::for_each_vector<T>(c.D, [&](int64_t d, auto lanes) __attribute__((always_inline)) {
        Vec<T> w[KC ? KC : 1], x[KC ? ROWS + KC - 1 : 1], known[KC ? ROWS + KC - 1 : 1];
        Vec<T>* g = KC ? known : scratch;  // gradients before the activation, for the tile and the steps after it
        if (KC) {
            for (int i = 0; i < KC; ++i) w[i] = lanes.load(c.weight + i * c.D + d);
            for (int i = 0; i < ROWS + KC - 1; ++i) x[i] = lanes.load(inputs[i] + d);
        }
        const auto weight = [&](int64_t i) { return KC ? w[i] : lanes.load(c.weight + i * c.D + d); };
        const auto in = [&](int64_t i) { return KC ? x[i] : lanes.load(inputs[i] + d); };
        const Vec<T> bias = lanes.load(c.bias + d), one(T(1));

        for (int r = 0; r < ROWS; ++r) g[r] = lanes.load(dy[r] + d);
#pragma GCC unroll 8
        for (int first = 0; first < ROWS; first += SOME) {
            if (!c.silu) break;
            Vec<T> u[SOME], s[SOME];
            for (int i = 0; i < SOME; ++i) {
                const int r = first + i;
                s[i] = u[i] = taps<T, MASKED>(K, r, MASKED ? reach[r] : 0, bias, weight, in);
            }
            simd::sigmoid(s);
            for (int i = 0; i < SOME; ++i)  // silu'(u) = s (1 + u (1 - s))
                g[first + i] = g[first + i] * (s[i] * simd::fma(u[i], one - s[i], one));
        }
        for (int64_t i = 0; i < K - 1; ++i) g[ROWS + i] = lanes.load(pending + i * c.D + d);

        Vec<T> d_bias(T(0));
        for (int r = 0; r < ROWS; ++r) d_bias = d_bias + g[r];
        lanes.add(sums + K * c.D + d, d_bias);
        for (int64_t i = 0; i < K; ++i) {
            Vec<T> d_weight(T(0));
            for (int r = 0; r < ROWS; ++r) {
                if (!MASKED || K - 1 - i <= reach[r]) d_weight = simd::fma(g[r], in(r + i), d_weight);
            }
            lanes.add(sums + i * c.D + d, d_weight);
        }
        for (int r = 0; r < ROWS; ++r) {
            Vec<T> d_input(T(0));
            for (int64_t lag = 0; lag < K; ++lag) {
                if (!MASKED || lag <= reach[r + lag]) d_input = simd::fma(weight(K - 1 - lag), g[r + lag], d_input);
            }
            lanes.store(dx + r * c.D + d, d_input);
        }
        for (int64_t i = 0; i < K - 1; ++i) lanes.store(pending + i * c.D + d, g[i]);
    });
}

// Whether steps [t, t + n) of a sequence use all K - 1 earlier inputs.
template <typename T>
bool whole(const Conv<T>& c, int64_t batch, int64_t t, int64_t n) {
    if (!c.reach) return true;
    const int32_t* reach = c.reach + batch * c.T_;
    return std::all_of(reach + t, reach + std::min(c.T_, t + n), [&](int32_t r) { return r == c.K - 1; });
}

template <typename T, int KC, int ROWS>
void forward_rows(const Conv<T>& c, int64_t batch, int64_t t, const T** inputs, T* y) {
    for (int64_t i = 0; i < ROWS + c.K - 1; ++i) inputs[i] = c.input(batch, t - c.K + 1 + i);
    T* out = y + (batch * c.T_ + t) * c.D;
    if (whole(c, batch, t, ROWS)) {
        forward_tile<T, KC, ROWS, false>(c, inputs, nullptr, out);
    } else {
        forward_tile<T, KC, ROWS, true>(c, inputs, c.reach + batch * c.T_ + t, out);
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
            if (c.reach && lag > c.reach[batch * c.T_ + t]) continue;
            const T *weight = c.weight + (K - 1 - lag) * c.D, *g = pending + t * c.D;
            for (int64_t d = 0; d < c.D; ++d) row[d] += weight[d] * g[d];
        }
    }
}

template <typename T>
void add_up(const std::vector<T>& partial, int64_t units, int64_t size, T* total, int64_t threads) {
    threads::for_each(size, threads, [&](int64_t i) {
        double sum = 0;
        for (int64_t unit = 0; unit < units; ++unit) sum += partial[unit * size + i];
        total[i] = static_cast<T>(sum);
    });
}

// `total` (K + 1, D): the gradients of weight and bias.
template <typename T, int KC>
void backward(const Conv<T>& c, const T* dy, int64_t dy_batch, int64_t dy_row, T* dx, T* total, T* dstate,
              int64_t threads) {
    const int64_t units = c.B * c.segments(), size = (c.K + 1) * c.D;
    std::vector<T> partial(units * size);  // sums of each segment
    threads::for_each(units, threads, [&] { return Scratch<T>(c); }, [&](int64_t unit, Scratch<T>& s) {
        const int64_t batch = unit / c.segments(), begin = unit % c.segments() * SEGMENT;
        const int64_t end = std::min(c.T_, begin + SEGMENT);
        const auto back = [&](auto rows, int64_t t, T* to, T* sums) {
            backward_rows<T, KC, decltype(rows)::value>(c, batch, t, dy, dy_batch, dy_row, to, sums, s);
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
        const auto to = [&] { return dx + (batch * c.T_ + t) * c.D; };
        while ((t - begin) % TILE) {
            --t;
            back(One(), t, to(), sums);
        }
        while (t > begin) {
            t -= TILE;
            back(Tile(), t, to(), sums);
        }
        if (begin == 0) state_gradient(c, batch, s.pending.data(), dstate);
    });
    add_up(partial, units, size, total, threads);
}

}  // namespace

// The functions return 0, or 1 if there is not enough memory.
#define EXPORT(NAME, T)                                                                                             \
    extern "C" int causal_conv1d_forward_##NAME(                                                                    \
        const T* x, int64_t x_batch, int64_t x_row, const T* weight, const T* bias, const T* state,                 \
        const int32_t* reach, T* y, int64_t B, int64_t T_, int64_t D, int64_t K, int64_t silu, int64_t threads) {   \
        const Conv<T> c{x, x_batch, x_row, weight, bias, state, reach, B, T_, D, K, silu != 0};                     \
        return threads::guarded([&] { K == 4 ? forward<T, 4>(c, y, threads) : forward<T, 0>(c, y, threads); });     \
    }                                                                                                               \
    extern "C" int causal_conv1d_backward_##NAME(                                                                   \
        const T* dy, int64_t dy_batch, int64_t dy_row, const T* x, int64_t x_batch, int64_t x_row, const T* weight, \
        const T* bias, const T* state, const int32_t* reach, T* dx, T* sums, T* dstate, int64_t B, int64_t T_,      \
        int64_t D, int64_t K, int64_t silu, int64_t threads) {                                                      \
        const Conv<T> c{x, x_batch, x_row, weight, bias, state, reach, B, T_, D, K, silu != 0};                     \
        return threads::guarded([&] {                                                                               \
            K == 4 ? backward<T, 4>(c, dy, dy_batch, dy_row, dx, sums, dstate, threads)                             \
                   : backward<T, 0>(c, dy, dy_batch, dy_row, dx, sums, dstate, threads);                            \
        });                                                                                                         \
    }

EXPORT(f32, float)
EXPORT(f64, double)
