// One decay per head and step, a constant decay, or none: the chunked form of Mamba-2 (Dao & Gu 2024, Section 6).
//
// For a chunk of tokens, with D[t, s] the product of the decays after s up to t (0 for s > t) and S[t, s] = q_t . k_s:
//     y = diag(from_start) q h + (D * S) v          h <- whole h + k^T diag(to_end) v
// The heads of a group share S. Every exponent is a direct sum of log decays and is not positive: there is no division
// by a decay, and no sum is the difference of longer sums. The gradient of a log decay at step u is also a sum, of the
// terms whose decay contains step u: pairs s < u <= t, state to t >= u, s < u to the end, and state to the end.
#pragma once

#include "prefetch.h"
#include "problem.h"

namespace gated {

constexpr int64_t REFRESH = 8;  // steps after which a product of decays is recomputed from the sum of its logs

// The decays of one head in a chunk.
template <typename T>
struct Decays {
    alignas(64) T step[CHUNK], from_start[CHUNK], to_end[CHUNK], log[CHUNK];
    T whole;
    const Lanes<T> lanes;

    // Reads `length` tokens from `t0`. Later tokens do not change the state.
    void read(const Inputs<T>& in, int64_t b, int64_t t0, int64_t h, int64_t length) {
        constexpr int64_t W = Vec<T>::width;
        T sum = 0;
        for (int64_t t = 0; t < CHUNK; t++) {
            log[t] = t < length ? in.log_decay_of(b, t0 + t, h) : 0;
            sum += log[t];
            from_start[t] = sum;
        }
        sum = 0;
        for (int64_t t = CHUNK - 1; t >= 0; t--) {
            to_end[t] = sum;
            sum += log[t];
        }
        for (int64_t t = 0; t < CHUNK; t += W) {
            simd::exp(Vec<T>::load(log + t)).store(step + t);
            simd::exp(Vec<T>::load(from_start + t)).store(from_start + t);
            simd::exp(Vec<T>::load(to_end + t)).store(to_end + t);
        }
        whole = from_start[CHUNK - 1];
    }

    // between = D, weights = D * scores, rows of CHUNK. Vectors above the diagonal are not written and stay zero.
    void pairs(int64_t rows, const T* scores, T* between, T* weights) const {
        constexpr int64_t W = Vec<T>::width;
        for (int64_t j = 0; j < rows; j += W) {
            Vec<T> sum = Vec<T>::zero(), decay = Vec<T>::zero();  // for column j + lane
            for (int64_t t = j; t < rows; t++) {
                sum = (sum + Vec<T>(log[t])) * lanes.below(t - j);
                if (t % REFRESH == 0) {
                    decay = simd::exp(sum) * lanes.below(t - j + 1);
                } else {
                    decay = simd::fma(decay, Vec<T>(step[t]), lanes.at(t - j));
                }
                if (between != nullptr) decay.store(between + t * CHUNK + j);
                (decay * Vec<T>::load(scores + t * CHUNK + j)).store(weights + t * CHUNK + j);
            }
        }
    }
};

// Queries and keys of one group in a chunk, and their products.
template <typename T>
struct Group {
    const int64_t K;  // padded
    Buffer<T> q, k;  // (CHUNK, K)
    Buffer<T> kT;  // (K, CHUNK)
    Buffer<T> scores;  // (CHUNK, CHUNK), zero in vectors above the diagonal

    explicit Group(int64_t K_) : K(K_), q(CHUNK * K), k(CHUNK * K), kT(CHUNK * K), scores(CHUNK * CHUNK) {}

    void read(const Inputs<T>& in, int64_t b, int64_t t0, int64_t g, int64_t length, int64_t rows) {
        const int64_t start = (in.token(b, t0) * in.G + g) * in.K, stride = in.G * in.K;
        gemm::pack(in.q + start, stride, length, in.K, (T*)q, rows, K);
        gemm::pack(in.k + start, stride, length, in.K, (T*)k, rows, K);
        gemm::transpose((T*)k, K, rows, K, (T*)kT, CHUNK);
        gemm::for_lower_tiles<T>(rows, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            tile.add_product(in.K, q + i * K, K, 1, kT + j, CHUNK);
            tile.store(scores + i * CHUNK + j, CHUNK);
        });
    }

    // Adds the inputs of the chunk that starts at t0 to the rows that are prefetched.
    void fetch(const Inputs<T>& in, int64_t b, int64_t t0, int64_t g, simd::Ahead& ahead) const {
        const int64_t start = (in.token(b, t0) * in.G + g) * in.K;
        ahead.add(in.q + start, in.G * in.K, CHUNK, in.K);
        ahead.add(in.k + start, in.G * in.K, CHUNK, in.K);
    }
};

// to = x and scaled = diag(s) x, both padded. x has `length` rows of `columns` numbers.
template <typename T>
void pack_scaled(const T* x, int64_t stride, int64_t length, int64_t columns, const T* s, T* to, T* scaled,
                 int64_t rows, int64_t padded_columns) {
    gemm::pack(x, stride, length, columns, to, rows, padded_columns);
    for (int64_t t = 0; t < rows; t++) {
        const Vec<T> factor(s[t]);
        for (int64_t j = t * padded_columns; j < (t + 1) * padded_columns; j += Vec<T>::width)
            (factor * Vec<T>::load(to + j)).store(scaled + j);
    }
}

template <typename T>
class PerHeadForward {
public:
    PerHeadForward(const Inputs<T>& in_, int64_t heads)
        : in(in_), K(padded<T>(in.K)), V(padded<T>(in.V)), group(K), weights(CHUNK * CHUNK), v(CHUNK * V),
          v_to_end(CHUNK * V), y(CHUNK * V), states(heads * K * V) {}

    void run(const Task& task, T* y_out, T* hT, T* saved) {
        const int64_t chunks = in.chunks();
        for (int64_t i = 0; i < task.heads; i++)
            load_state(in, in.state0(task.b, task.first_head + i), states + i * K * V, K, V);
        for (int64_t c = 0; c < chunks; c++) {
            const int64_t t0 = c * CHUNK, length = std::min(CHUNK, in.T_ - t0), rows = padded<T>(length);
            const bool carried = c > 0 || in.h0 != nullptr;
            group.read(in, task.b, t0, task.group, length, rows);
            for (int64_t i = 0; i < task.heads; i++) {
                const int64_t h = task.first_head + i;
                T* state = states + i * K * V;
                if (saved != nullptr && carried)
                    gemm::unpack(state, V, in.K, in.V, in.kept(saved, task.b, h, c), in.V);
                ahead.start();
                if (c + 1 < chunks) fetch(task, c + 1, h, saved, y_out);
                head(task.b, t0, h, length, rows, carried, state, y_out);
            }
        }
        for (int64_t i = 0; i < task.heads; i++) {
            T* to = hT + (task.b * in.H + task.first_head + i) * in.K * in.V;
            gemm::unpack(states + i * K * V, V, in.K, in.V, to, in.V);
        }
    }

private:
    // Adds the memory that chunk c reads and writes. It is not the first.
    void fetch(const Task& task, int64_t c, int64_t h, const T* saved, const T* y_out) {
        const int64_t start = (in.token(task.b, c * CHUNK) * in.H + h) * in.V;
        ahead.add(in.v + start, in.H * in.V, CHUNK, in.V);
        if (h == task.first_head) group.fetch(in, task.b, c * CHUNK, task.group, ahead);
        ahead.add(y_out + start, in.H * in.V, CHUNK, in.V);
        if (saved != nullptr) ahead.add(in.kept(saved, task.b, h, c), in.V, in.K, in.V);
    }

    void head(int64_t b, int64_t t0, int64_t h, int64_t length, int64_t rows, bool carried, T* state, T* y_out) {
        const int64_t start = (in.token(b, t0) * in.H + h) * in.V, stride = in.H * in.V;
        decays.read(in, b, t0, h, length);
        decays.pairs(rows, group.scores, nullptr, weights);
        pack_scaled(in.v + start, stride, length, in.V, decays.to_end, (T*)v, (T*)v_to_end, rows, V);
        const bool direct = rows == length && V == in.V;
        T* const to = direct ? y_out + start : (T*)y;
        const int64_t to_stride = direct ? stride : V;
        gemm::for_tiles<T>(rows, V, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            if (carried) {
                tile.add_product(in.K, group.q + i * K, K, 1, state + j, V);
                tile.scale_rows(decays.from_start + i);
            }
            tile.add_product(std::min(i + shape.rows, length), weights + i * CHUNK, CHUNK, 1, v + j, V);
            tile.store(to + i * to_stride + j, to_stride);
        });
        if (!direct) gemm::unpack((T*)y, V, length, in.V, y_out + start, stride);
        const Vec<T> whole(decays.whole);
        gemm::for_tiles<T>(K, V, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            tile.add_product(length, group.k + i, 1, K, v_to_end + j, V);
            T* const corner = state + i * V + j;
            tile.each([&](Vec<T>& x, int r, int64_t l) {
                T* const p = corner + r * V + l;
                simd::fma(whole, Vec<T>::load(p), x).store(p);
            });
        });
    }

    const Inputs<T>& in;
    const int64_t K, V;  // padded
    Decays<T> decays;
    Group<T> group;
    Buffer<T> weights;  // (CHUNK, CHUNK)
    Buffer<T> v, v_to_end, y;  // (CHUNK, V)
    Buffer<T> states;  // (heads, K, V)
    simd::Ahead ahead;
};

}  // namespace gated
