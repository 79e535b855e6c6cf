// A decay per key (GLA, RWKV-6), and RWKV-6's bonus with any decay, in blocks of 16 tokens.
//
// Across the border of a block, everything goes through the state:
//     y = (q * from_start) h + M v          h <- diag(whole) h + (k * to_end)^T v
// where M[t, s] = sum_n q_t[n] k_s[n] a_{s+1}[n] .. a_t[n] for s <= t. If t and s are in the same half of a block, each
// step multiplies a key by one more decay. Otherwise q_t and k_s are multiplied by their decays from and to the border
// between the halves.
//
// With a bonus u, the query reads the state before its token: M[t, s] and from_start do not contain a_t,
// M[t, t] = q_t . (u * k_t), and a reset at t sets both to 0. No exponent is positive, and the gradient of a log decay
// is the sum of the terms that contain it, as in per_head.h.
#pragma once

#include "pair_products.h"
#include "prefetch.h"
#include "problem.h"

namespace gated {

constexpr int64_t BLOCK = 2 * HALF, BLOCKS = CHUNK / BLOCK;

// Queries, keys and decays of one head in a block. Rows beyond its tokens are zero, with decays of 1.
template <typename T>
struct KeyBlock {
    const int64_t K;  // padded
    Buffer<T> q, k, step;  // (BLOCK, K)
    Buffer<T> q_from_start, k_to_end;  // (BLOCK, K): q and k times their decays from and to the borders of the block
    Buffer<T> q_from_half;  // (HALF, K): queries of the second half, with their decays from its start
    Buffer<T> k_to_half;  // (HALF, K): keys of the first half, with their decays to its end
    Buffer<T> half;  // (2, K): decays of the halves
    Buffer<T> whole;  // (K,): decay of the block, rounded once
    Buffer<T> bonus;  // (K,)
    bool reset[BLOCK];
    int64_t length = 0;

    explicit KeyBlock(int64_t K_)
        : K(K_), q(BLOCK * K), k(BLOCK * K), step(BLOCK * K), q_from_start(BLOCK * K), k_to_end(BLOCK * K),
          q_from_half(HALF * K), k_to_half(HALF * K), half(2 * K), whole(K), bonus(K) {}

    void read(const Inputs<T>& in, int64_t b, int64_t t0, int64_t h, int64_t length_) {
        length = length_;
        const int64_t stride = in.G * in.K, start = (in.token(b, t0) * in.G + h / in.sharing()) * in.K;
        gemm::pack(in.q + start, stride, length, in.K, (T*)q, BLOCK, K);
        gemm::pack(in.k + start, stride, length, in.K, (T*)k, BLOCK, K);
        read_logs(in, b, t0, h);
        for (int64_t n = 0; n < K; n += Vec<T>::width) {
            Vec<T> sum = Vec<T>::load(step + n);
            for (int64_t t = 1; t < BLOCK; t++) sum += Vec<T>::load(step + t * K + n);
            simd::exp_decay(sum).store(whole + n);
        }
        for (int64_t i = 0; i < BLOCK * K; i += AT_ONCE * Vec<T>::width) exponentials(step + i);
        if (in.bonus != nullptr) gemm::pack(in.bonus + h * in.K, in.K, 1, in.K, (T*)bonus, 1, K);
        for (int64_t n = 0; n < K; n += Vec<T>::width) decays(n, in.bonus != nullptr);
    }

    // Adds the inputs of the block that starts at t0 to the rows that are prefetched.
    void fetch(const Inputs<T>& in, int64_t b, int64_t t0, int64_t h, simd::Ahead& ahead) const {
        const int64_t start = (in.token(b, t0) * in.G + h / in.sharing()) * in.K;
        ahead.add(in.q + start, in.G * in.K, BLOCK, in.K);
        ahead.add(in.k + start, in.G * in.K, BLOCK, in.K);
        const int64_t head = in.token(b, t0) * in.H + h;
        if (in.decay == VECTOR) ahead.add(in.log_decay + head * in.K, in.H * in.K, BLOCK, in.K);
        ahead.add(in.v + head * in.V, in.H * in.V, BLOCK, in.V);
    }

    // M is (BLOCK, BLOCK), zero above the diagonal.
    void scores(bool has_bonus, T* M) const {
        for (int64_t t = 0; t < BLOCK; t += HALF) {
            T* const to = M + t * BLOCK + t;
            if (has_bonus) {
                pair_products<T, DECAYED_BEFORE>(q + t * K, k + t * K, step + t * K, bonus, K, to, BLOCK);
            } else {
                pair_products<T, DECAYED>(q + t * K, k + t * K, step + t * K, nullptr, K, to, BLOCK);
            }
        }
        pair_products<T, ALL>(q_from_half, k_to_half, nullptr, nullptr, K, M + HALF * BLOCK, BLOCK);
        clear_resets(has_bonus, M);
    }

    // With a bonus, a query of a reset reads no earlier token.
    void clear_resets(bool has_bonus, T* M) const {
        for (int64_t t = 0; t < length && has_bonus; t++)
            if (reset[t]) std::fill_n(M + t * BLOCK, t, (T)0);
    }

    // The decay with which query t reads what came before its half, from the products with and without its own decay.
    SIMD_INLINE Vec<T> read_decay(Vec<T> with, Vec<T> before, bool has_bonus, int64_t t) const {
        return !has_bonus ? with : reset[t] ? Vec<T>::zero() : before;
    }

private:
    static constexpr int AT_ONCE = 4;  // exponentials that are computed together

    void read_logs(const Inputs<T>& in, int64_t b, int64_t t0, int64_t h) {
        if (in.decay == VECTOR) {
            const int64_t start = (in.token(b, t0) * in.H + h) * in.K;
            gemm::pack(in.log_decay + start, in.H * in.K, length, in.K, (T*)step, BLOCK, K);
        }
        for (int64_t t = 0; t < BLOCK; t++) {
            reset[t] = t < length && in.reset(b, t0 + t);
            if (in.decay != VECTOR || reset[t])
                std::fill_n(step + t * K, K, t < length ? in.log_decay_of(b, t0 + t, h) : (T)0);
        }
    }

    static void exponentials(T* logs) {
        Vec<T> x[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) x[i] = Vec<T>::load(logs + i * Vec<T>::width);
        simd::exp_decay(x);
        for (int i = 0; i < AT_ONCE; i++) x[i].store(logs + i * Vec<T>::width);
    }

    // Queries and keys times their decays, for the keys n .. n + W. Pointers are copied, because the compiler must
    // assume that a store changes members.
    void decays(int64_t n, bool has_bonus) {
        const int64_t K = this->K;
        const T *const query = q + n, *const key = k + n, *const one = step + n;
        T *const near_query = q_from_half + n, *const far_query = q_from_start + n;
        T *const near_key = k_to_half + n, *const far_key = k_to_end + n;
        Vec<T> wholes[2];
        for (int64_t i = 0; i < 2; i++) {
            Vec<T> decay((T)1);
#pragma GCC unroll 8
            for (int64_t t = 0; t < HALF; t++) {
                const int64_t at = (i * HALF + t) * K;
                const Vec<T> before = decay;
                decay *= Vec<T>::load(one + at);
                const Vec<T> decayed = read_decay(decay, before, has_bonus, i * HALF + t) * Vec<T>::load(query + at);
                if (i == 1) decayed.store(near_query + t * K);
                (i == 0 ? decayed : decayed * wholes[0]).store(far_query + at);
            }
            wholes[i] = decay;
            decay.store(half + i * K + n);
        }
        for (int64_t i = 0; i < 2; i++) {
            Vec<T> decay((T)1);
#pragma GCC unroll 8
            for (int64_t t = HALF - 1; t >= 0; t--) {
                const int64_t at = (i * HALF + t) * K;
                const Vec<T> decayed = decay * Vec<T>::load(key + at);
                if (i == 0) decayed.store(near_key + t * K);
                (i == 1 ? decayed : decayed * wholes[1]).store(far_key + at);
                decay *= Vec<T>::load(one + at);
            }
        }
    }
};

template <typename T>
class PerKeyForward {
public:
    explicit PerKeyForward(const Inputs<T>& in_)
        : in(in_), K(padded<T>(in.K)), V(padded<T>(in.V)), block(K), M(BLOCK * BLOCK), v(BLOCK * V), y(BLOCK * V),
          state(K * V) {}

    void run(const Task& task, T* y_out, T* hT, T* saved) {
        for (int64_t h = task.first_head; h < task.first_head + task.heads; h++) {
            const int64_t row = task.b * in.H + h, size = in.K * in.V;
            load_state(in, in.state0(task.b, h), (T*)state, K, V);
            for (int64_t t0 = 0; t0 < in.T_; t0 += BLOCK) {
                T* const kept = saved == nullptr ? nullptr : in.kept(saved, task.b, h, t0 / CHUNK);
                if (kept != nullptr && t0 % CHUNK == 0) gemm::unpack((T*)state, V, in.K, in.V, kept, in.V);
                step(task.b, t0, h, y_out);
            }
            gemm::unpack((T*)state, V, in.K, in.V, hT + row * size, in.V);
        }
    }

private:
    void step(int64_t b, int64_t t0, int64_t h, T* y_out) {
        const int64_t start = (in.token(b, t0) * in.H + h) * in.V, stride = in.H * in.V;
        const int64_t length = std::min(BLOCK, in.T_ - t0);
        const bool carried = t0 > 0 || in.h0 != nullptr, direct = length == BLOCK && V == in.V;
        block.read(in, b, t0, h, length);
        block.scores(in.bonus != nullptr, M);
        gemm::pack(in.v + start, stride, length, in.V, (T*)v, BLOCK, V);
        ahead.start();
        if (t0 + BLOCK < in.T_) {
            block.fetch(in, b, t0 + BLOCK, h, ahead);
            ahead.add(y_out + start + BLOCK * stride, stride, BLOCK, in.V);
        }
        T* const to = direct ? y_out + start : (T*)y;
        const int64_t to_stride = direct ? stride : V;
        gemm::for_tiles<T>(BLOCK, V, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            if (carried) tile.add_product(in.K, block.q_from_start + i * K, K, 1, state + j, V);
            tile.add_product(i + shape.rows, M + i * BLOCK, BLOCK, 1, v + j, V);
            tile.store(to + i * to_stride + j, to_stride);
        });
        if (!direct) gemm::unpack((T*)y, V, length, in.V, y_out + start, stride);
        gemm::for_tiles<T>(K, V, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            tile.add_product(length, block.k_to_end + i, 1, K, v + j, V);
            tile.each([&](Vec<T>& x, int r, int64_t lane) {
                T* const p = state + (i + r) * V + j + lane;
                simd::fma(Vec<T>(block.whole[i + r]), Vec<T>::load(p), x).store(p);
            });
        });
    }

    const Inputs<T>& in;
    const int64_t K, V;  // padded
    KeyBlock<T> block;
    Buffer<T> M;  // (BLOCK, BLOCK)
    Buffer<T> v, y;  // (BLOCK, V)
    Buffer<T> state;  // (K, V)
    simd::Ahead ahead;
};

}  // namespace gated
