// y = weight * g / sqrt(mean(g^2) + eps) with g = x * silu(gate), per group of channels, forward and backward, on the
// CPU. A group stays in the L1 cache for two passes, so there is only one pass over memory.
//
// Rows are split into units of 32 for any number of threads. Each unit sums its gradient of the weight. These sums are
// added in the order of the units.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lanes.h"
#include "partial_sums.h"
#include "threads.h"

namespace {

constexpr int64_t UNIT = 32;

template <typename T>
using Vec = simd::Vec<T>;

// Rows of D contiguous channels, `step` elements apart.
template <typename T>
struct Rows {
    const T* data;
    int64_t step;

    const T* operator[](int64_t row) const { return data + row * step; }
};

struct Sizes {
    int64_t rows, D, groups;

    int64_t width() const { return D / groups; }
    int64_t units() const { return (rows + UNIT - 1) / UNIT; }
};

// Calls body(unit, scratch of 2 groups) for every unit of rows.
template <typename T, typename Body>
void for_each_unit(Sizes n, int64_t threads, Body body) {
    const auto scratch = [&] { return std::vector<T>(2 * n.width()); };
    threads::for_each(n.units(), threads, scratch, [&](int64_t unit, std::vector<T>& own) { body(unit, own.data()); });
}

// Computes one group, and returns 1 / sqrt(mean(g^2) + eps).
template <typename T, bool GATED>
T forward_group(const T* x, const T* gate, const T* weight, T* y, T* gated, int64_t width, T eps) {
    Vec<T> squares = Vec<T>::zero();
    simd::for_each_vector<T>(width, [&](int64_t d, auto lanes) {
        Vec<T> g = lanes.load(x + d);
        if (GATED) {
            const Vec<T> z = lanes.load(gate + d);
            g = g * (z * simd::sigmoid(z));
            lanes.store(gated + d, g);
        }
        squares = simd::fma(g, g, squares);
    });
    const T scale = T(1) / std::sqrt(simd::sum(squares) / static_cast<T>(width) + eps);
    const Vec<T> scales(scale);
    simd::for_each_vector<T>(width, [&](int64_t d, auto lanes) {
        const Vec<T> g = lanes.load((GATED ? gated : x) + d);
        lanes.store(y + d, g * scales * lanes.load(weight + d));
    });
    return scale;
}

// dg = scale * (dy * weight - g * scale^2 * mean(dy * weight * g)). dx and dgate follow from dg.
template <typename T, bool GATED>
void backward_group(const T* dy, const T* x, const T* gate, const T* weight, T scale, T* dx, T* dgate, T* dweight,
                    T* gated, T* sigmoids, int64_t width) {
    const Vec<T> scales(scale), one(T(1));
    Vec<T> products = Vec<T>::zero();
    simd::for_each_vector<T>(width, [&](int64_t d, auto lanes) {
        Vec<T> g = lanes.load(x + d);
        if (GATED) {
            const Vec<T> z = lanes.load(gate + d), s = simd::sigmoid(z);
            g = g * (z * s);
            lanes.store(gated + d, g);
            lanes.store(sigmoids + d, s);
        }
        const Vec<T> product = lanes.load(dy + d) * g;
        products = simd::fma(product, lanes.load(weight + d), products);
        lanes.store(dweight + d, simd::fma(product, scales, lanes.load(dweight + d)));
    });
    const Vec<T> pull(simd::sum(products) / static_cast<T>(width) * scale * scale * scale);
    simd::for_each_vector<T>(width, [&](int64_t d, auto lanes) {
        const Vec<T> g = lanes.load((GATED ? gated : x) + d);
        const Vec<T> dg = lanes.load(dy + d) * lanes.load(weight + d) * scales - g * pull;
        if (!GATED) {
            lanes.store(dx + d, dg);
            return;
        }
        const Vec<T> z = lanes.load(gate + d), s = lanes.load(sigmoids + d);
        lanes.store(dx + d, dg * (z * s));
        lanes.store(dgate + d, dg * lanes.load(x + d) * (s * simd::fma(z, one - s, one)));
    });
}

template <typename T>
void forward(Rows<T> x, Rows<T> gate, const T* weight, T* y, T* scales, Sizes n, T eps, int64_t threads) {
    const auto group = gate.data ? forward_group<T, true> : forward_group<T, false>;
    for_each_unit<T>(n, threads, [&](int64_t unit, T* scratch) {
        for (int64_t row = unit * UNIT; row < std::min(n.rows, (unit + 1) * UNIT); ++row) {
            for (int64_t i = 0, d = 0; i < n.groups; ++i, d += n.width()) {
                scales[row * n.groups + i] = group(x[row] + d, gate.data ? gate[row] + d : nullptr, weight + d,
                                                   y + row * n.D + d, scratch, n.width(), eps);
            }
        }
    });
}

template <typename T>
void backward(Rows<T> dy, Rows<T> x, Rows<T> gate, const T* weight, const T* scales, T* dx, T* dgate, T* dweight,
              Sizes n, int64_t threads) {
    std::vector<T> partial(n.units() * n.D);  // sums of each unit
    const auto group = gate.data ? backward_group<T, true> : backward_group<T, false>;
    for_each_unit<T>(n, threads, [&](int64_t unit, T* scratch) {
        T* sums = partial.data() + unit * n.D;
        for (int64_t row = unit * UNIT; row < std::min(n.rows, (unit + 1) * UNIT); ++row) {
            for (int64_t i = 0, d = 0; i < n.groups; ++i, d += n.width()) {
                group(dy[row] + d, x[row] + d, gate.data ? gate[row] + d : nullptr, weight + d,
                      scales[row * n.groups + i], dx + row * n.D + d, gate.data ? dgate + row * n.D + d : nullptr,
                      sums + d, scratch, scratch + n.width(), n.width());
            }
        }
    });
    partial_sums::add_up(partial.data(), n.units(), n.D, dweight, threads);
}

}  // namespace

// `gate` may be null. The functions return 0, or 1 if there is not enough memory.
#define EXPORT(NAME, T)                                                                                             \
    extern "C" int gated_rms_norm_forward_##NAME(const T* x, int64_t x_row, const T* gate, int64_t gate_row,        \
                                                 const T* weight, T* y, T* scales, int64_t rows, int64_t D,         \
                                                 int64_t groups, double eps, int64_t threads) {                     \
        return threads::guarded([&] {                                                                               \
            const Sizes n{rows, D, groups};                                                                         \
            forward<T>({x, x_row}, {gate, gate_row}, weight, y, scales, n, static_cast<T>(eps), threads);           \
        });                                                                                                         \
    }                                                                                                               \
    extern "C" int gated_rms_norm_backward_##NAME(                                                                  \
        const T* dy, int64_t dy_row, const T* x, int64_t x_row, const T* gate, int64_t gate_row, const T* weight,   \
        const T* scales, T* dx, T* dgate, T* dweight, int64_t rows, int64_t D, int64_t groups, int64_t threads) {   \
        return threads::guarded([&] {                                                                               \
            backward<T>({dy, dy_row}, {x, x_row}, {gate, gate_row}, weight, scales, dx, dgate, dweight,             \
                        {rows, D, groups}, threads);                                                                \
        });                                                                                                         \
    }

EXPORT(f32, float)
EXPORT(f64, double)
