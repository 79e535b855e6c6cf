// h_t = a_t * h_{t-1} + b_t, real and complex, forward and backward, on the CPU.
//
// Memory bandwidth is the limit: there is one multiply-add per element of three streams forward (a, b, h) and of five
// backward (dh, a, h, da, db), or one or two fewer if `a` is constant. So the loops go over rows in chunks of channels,
// prefetch the same chunk of the next row, and write large results with streaming stores. The state between rows stays
// in the L1 cache.
//
// Complex rows are interleaved (re, im), as in PyTorch. A constant `a` is one row for all steps.

#include <algorithm>
#include <complex>
#include <cstdint>
#include <utility>
#include <vector>

#include "lanes.h"
#include "streaming_stores.h"
#include "threads.h"

namespace {

constexpr int64_t CHUNK = 64;  // channels
constexpr int64_t RECENT = 32;  // steps per partial sum of the gradient of a constant `a`

struct Sizes {
    int64_t B, T, D;
};

// Calls body(batch, begin, end, scratch) for blocks of channels [begin, end) of one sequence, the work of a thread at a
// time. A block is a number of whole chunks. make(channels of a block) creates the scratch.
template <typename Make, typename Body>
void for_each_block(Sizes n, int64_t threads, Make make, Body body) {
    const int64_t wanted = (threads + n.B - 1) / n.B, chunks = (n.D + CHUNK - 1) / CHUNK;
    const int64_t width = (chunks + wanted - 1) / wanted * CHUNK, blocks = (n.D + width - 1) / width;
    const auto scratch = [&] { return make(std::min(width, n.D)); };
    threads::for_each(n.B * blocks, threads, scratch, [&](int64_t i, auto& own) {
        const int64_t begin = i % blocks * width;
        body(i / blocks, begin, std::min(n.D, begin + width), own);
        simd::fence();
    });
}

// ---------------------------------------------------------------- n channels of a row

// A vector of real numbers, or of complex numbers as pairs of lanes (re, im).
template <typename C>
struct Numbers {
    using Real = C;
    using V = simd::Vec<C>;
    static V multiply(V a, V h, V plus) { return simd::fma(a, h, plus); }  // a h + plus
    static V multiply_conjugate(V a, V g) { return a * g; }  // conj(a) g
};

template <typename T>
struct Numbers<std::complex<T>> {
    using Real = T;
    using V = simd::Vec<T>;
    using Lane = std::make_integer_sequence<int, V::width>;

    static V multiply(V a, V h, V plus) {
        return simd::fma(even(a, Lane()), h, simd::fma(odd(a, Lane()) * signs(-1, 1), swapped(h, Lane()), plus));
    }
    static V multiply_conjugate(V a, V g) {
        return simd::fma(even(a, Lane()), g, odd(a, Lane()) * signs(1, -1) * swapped(g, Lane()));
    }

private:
#if defined(__clang__)
#define SHUFFLED(v, lanes) V(__builtin_shufflevector(v.v, v.v, (lanes)...))
#else
#define SHUFFLED(v, lanes) V(__builtin_shuffle(v.v, typename simd::Types<T>::RawInt{(lanes)...}))
#endif
    template <int... I>
    static V even(V v, std::integer_sequence<int, I...>) { return SHUFFLED(v, I & ~1); }
    template <int... I>
    static V odd(V v, std::integer_sequence<int, I...>) { return SHUFFLED(v, I | 1); }
    template <int... I>
    static V swapped(V v, std::integer_sequence<int, I...>) { return SHUFFLED(v, I ^ 1); }
#undef SHUFFLED
    static V signs(T re, T im) {
        typename V::Raw raw;
        for (int i = 0; i < V::width; ++i) raw[i] = i % 2 ? im : re;
        return V(raw);
    }
};

template <typename C, typename Body>
void for_each_vector(int64_t n, Body body) {
    using Real = typename Numbers<C>::Real;
    simd::for_each_vector<Real>(n * int64_t(sizeof(C) / sizeof(Real)), body);
}

// state = a * state + b, h = state
template <typename C>
void advance(const C* a_, const C* b_, C* state_, C* h_, int64_t n) {
    using N = Numbers<C>;
    using Real = typename N::Real;
    const Real *a = reinterpret_cast<const Real*>(a_), *b = reinterpret_cast<const Real*>(b_);
    Real *state = reinterpret_cast<Real*>(state_), *h = reinterpret_cast<Real*>(h_);
    for_each_vector<C>(n, [&](int64_t i, auto lanes) {
        const auto next = N::multiply(lanes.load(a + i), lanes.load(state + i), lanes.load(b + i));
        lanes.store(state + i, next);
        lanes.store(h + i, next);
    });
}

// One step backward: g = dh + carry, db = g, da = g * conj(before) (or += if SUMMED), carry = g * conj(a).
template <bool SUMMED, typename C>
void retreat(const C* a_, const C* before_, const C* dh_, C* carry_, C* db_, C* da_, int64_t n) {
    using N = Numbers<C>;
    using Real = typename N::Real;
    const Real *a = reinterpret_cast<const Real*>(a_), *before = reinterpret_cast<const Real*>(before_),
               *dh = reinterpret_cast<const Real*>(dh_);
    Real *carry = reinterpret_cast<Real*>(carry_), *db = reinterpret_cast<Real*>(db_),
         *da = reinterpret_cast<Real*>(da_);
    for_each_vector<C>(n, [&](int64_t i, auto lanes) {
        const auto g = lanes.load(dh + i) + lanes.load(carry + i);
        lanes.store(db + i, g);
        const auto product = N::multiply_conjugate(lanes.load(before + i), g);
        lanes.store(da + i, SUMMED ? lanes.load(da + i) + product : product);
        lanes.store(carry + i, N::multiply_conjugate(lanes.load(a + i), g));
    });
}

template <typename T>
struct Double {
    using type = double;
};
template <typename T>
struct Double<std::complex<T>> {
    using type = std::complex<double>;
};

// ---------------------------------------------------------------- sequences

template <typename C>
void forward(const C* a, const C* b, const C* h0, const bool* resets, C* h, C* hT, Sizes n, bool constant,
             int64_t threads) {
    const bool past = simd::exceeds_caches(n.B * n.T * n.D * (constant ? 2 : 3) * int64_t(sizeof(C)));
    for_each_block(n, threads, [](int64_t) { return 0; }, [&](int64_t batch, int64_t begin, int64_t end, int) {
        const int64_t width = end - begin;
        alignas(64) C passing[CHUNK];
        C* state = hT + batch * n.D + begin;  // in the end, this is the final state
        h0 ? std::copy_n(h0 + batch * n.D + begin, width, state) : std::fill_n(state, width, C(0));
        for (int64_t t = 0; t < n.T; ++t) {
            const int64_t row = batch * n.T + t;
            const bool reset = resets && resets[row];
            for (int64_t c = 0; c < width; c += CHUNK) {
                const int64_t size = std::min(CHUNK, width - c), here = row * n.D + begin + c, bytes = size * sizeof(C);
                C* out = past ? passing : h + here;
                simd::prefetch(b + here + n.D, bytes);
                if (!constant) simd::prefetch(a + here + n.D, bytes);
                if (!past) simd::prefetch<simd::WRITE>(h + here + n.D, bytes);
                if (reset) std::fill_n(state + c, size, C(0));
                advance(constant ? a + begin + c : a + here, b + here, state + c, out, size);
                if (past) simd::write_past(h + here, out, bytes);
            }
        }
    });
}

// Scratch of a thread for one block: the gradient that is carried backward, the recent sum of gradients of a constant
// `a`, and a zero state. The last two are zero between blocks.
template <typename C>
struct Scratch {
    std::vector<C> carry, recent, zeros;
};

// If `a` is constant, `da` is (D,), the sum over B and T. Sums are over RECENT steps first, then over a sequence and
// over B in double, always in the same order.
template <typename C>
void backward(const C* dh, const C* dhT, const C* a, const C* h, const C* h0, const bool* resets, C* da, C* db,
              C* dh0, Sizes n, bool constant, int64_t threads) {
    using Sum = typename Double<C>::type;
    const bool past = simd::exceeds_caches(n.B * n.T * n.D * (constant ? 3 : 5) * int64_t(sizeof(C)));
    std::vector<Sum> sums(constant ? n.B * n.D : 0);
    const auto make = [&](int64_t width) {
        return Scratch<C>{std::vector<C>(width), std::vector<C>(constant ? width : 0), std::vector<C>(h0 ? 0 : width)};
    };
    for_each_block(n, threads, make, [&](int64_t batch, int64_t begin, int64_t end, Scratch<C>& own) {
        alignas(64) C passing_da[CHUNK], passing_db[CHUNK];
        const int64_t width = end - begin;
        auto& [carry, recent, zeros] = own;
        std::copy_n(dhT + batch * n.D + begin, width, carry.data());
        for (int64_t t = n.T - 1; t >= 0; --t) {
            const int64_t row = batch * n.T + t;
            const bool reset = resets && resets[row];
            const C* before = t ? h + (row - 1) * n.D + begin : h0 ? h0 + batch * n.D + begin : zeros.data();
            for (int64_t c = 0; c < width; c += CHUNK) {
                const int64_t size = std::min(CHUNK, width - c), here = row * n.D + begin + c, bytes = size * sizeof(C);
                simd::prefetch(dh + here - n.D, bytes);
                simd::prefetch(before + c - n.D, bytes);
                if (!constant) simd::prefetch(a + here - n.D, bytes);
                if (!past) simd::prefetch<simd::WRITE>(db + here - n.D, bytes);
                if (!past && !constant) simd::prefetch<simd::WRITE>(da + here - n.D, bytes);
                C* db_out = past ? passing_db : db + here;
                C* da_out = constant ? recent.data() + c : past ? passing_da : da + here;
                const C* decay = constant ? a + begin + c : a + here;
                if (reset) {
                    for (int64_t i = 0; i < size; ++i) db_out[i] = dh[here + i] + carry[c + i];
                    if (!constant) std::fill_n(da_out, size, C(0));
                    std::fill_n(carry.data() + c, size, C(0));
                } else if (constant) {
                    retreat<true>(decay, before + c, dh + here, carry.data() + c, db_out, da_out, size);
                } else {
                    retreat<false>(decay, before + c, dh + here, carry.data() + c, db_out, da_out, size);
                }
                if (past) simd::write_past(db + here, db_out, bytes);
                if (past && !constant) simd::write_past(da + here, da_out, bytes);
            }
            if (constant && t % RECENT == 0) {
                Sum* sum = sums.data() + batch * n.D + begin;
                for (int64_t i = 0; i < width; ++i) sum[i] += static_cast<Sum>(recent[i]);
                std::fill(recent.begin(), recent.end(), C(0));
            }
        }
        if (dh0) std::copy_n(carry.data(), width, dh0 + batch * n.D + begin);
    });
    if (!constant) return;
    for (int64_t i = 0; i < n.D; ++i) {
        Sum sum = 0;
        for (int64_t batch = 0; batch < n.B; ++batch) sum += sums[batch * n.D + i];
        da[i] = static_cast<C>(sum);
    }
}

}  // namespace

// The functions return 0, or 1 if there is not enough memory.
#define EXPORT(NAME, C)                                                                                             \
    extern "C" int diagonal_scan_forward_##NAME(const C* a, const C* b, const C* h0, const bool* resets, C* h, C* hT,\
                                                int64_t B, int64_t T, int64_t D, int64_t constant,                  \
                                                int64_t threads) {                                                  \
        return threads::guarded([&] { forward<C>(a, b, h0, resets, h, hT, {B, T, D}, constant != 0, threads); });   \
    }                                                                                                               \
    extern "C" int diagonal_scan_backward_##NAME(const C* dh, const C* dhT, const C* a, const C* h, const C* h0,    \
                                                 const bool* resets, C* da, C* db, C* dh0, int64_t B, int64_t T,    \
                                                 int64_t D, int64_t constant, int64_t threads) {                    \
        return threads::guarded([&] {                                                                               \
            backward<C>(dh, dhT, a, h, h0, resets, da, db, dh0, {B, T, D}, constant != 0, threads);                 \
        });                                                                                                         \
    }

EXPORT(f32, float)
EXPORT(f64, double)
EXPORT(c64, std::complex<float>)
EXPORT(c128, std::complex<double>)
