// A decay per key (GLA, RWKV-6), and RWKV-6's bonus with any decay, in blocks of 16 tokens.
//
// Within a block, the decayed products of queries and keys are computed pair by pair. Each step multiplies a key by one
// more decay. Across the border of a block, everything goes through the state:
//     y = (q * from_start) h + M v          h <- diag(whole) h + (k * to_end)^T v
// where M[t, s] = sum_n q_t[n] k_s[n] a_{s+1}[n] .. a_t[n] for s <= t. With a bonus u, the query reads the state before
// its token: M[t, s] and from_start do not contain a_t, M[t, t] = q_t . (u * k_t), and a reset at t sets both to 0. No
// exponent is positive, and the gradient of a log decay is the sum of the terms that contain it, as in per_head.h.
#pragma once

#include "problem.h"

namespace gated {

constexpr int64_t BLOCK = 16, BLOCKS = CHUNK / BLOCK;
constexpr int64_t PAIRS = BLOCK * (BLOCK - 1) / 2;  // s < t

constexpr int64_t pair(int64_t t, int64_t s) { return t * (t - 1) / 2 + s; }

// Queries, keys and decays of one head in a block. Rows beyond its tokens are zero, with decays of 1.
template <typename T>
struct KeyBlock {
    const int64_t K;  // padded
    Buffer<T> q, k, log, step;  // (BLOCK, K): log decays and decays
    Buffer<T> from_start, to_end;  // (BLOCK, K): decays between a token and the block's borders
    Buffer<T> q_from_start, k_to_end;  // (BLOCK, K): q and k times these
    Buffer<T> whole, bonus;  // (K,)
    bool reset[BLOCK];
    int64_t length = 0;

    explicit KeyBlock(int64_t K_)
        : K(K_), q(BLOCK * K), k(BLOCK * K), log(BLOCK * K), step(BLOCK * K), from_start(BLOCK * K), to_end(BLOCK * K),
          q_from_start(BLOCK * K), k_to_end(BLOCK * K), whole(K), bonus(K) {}

    // The next block starts `tokens` after this one.
    void read(const Inputs<T>& in, int64_t b, int64_t t0, int64_t h, int64_t length_, int64_t tokens) {
        length = length_;
        const int64_t stride = in.G * in.K, start = (in.token(b, t0) * in.G + h / in.sharing()) * in.K;
        gemm::pack(in.q + start, stride, length, in.K, (T*)q, BLOCK, K, tokens * stride);
        gemm::pack(in.k + start, stride, length, in.K, (T*)k, BLOCK, K, tokens * stride);
        for (int64_t t = 0; t < BLOCK; t++) {
            reset[t] = t < length && in.reset(b, t0 + t);
            read_logs(in, b, t0 + t, h, t < length, tokens, log + t * K);
        }
        if (in.bonus != nullptr) gemm::pack(in.bonus + h * in.K, in.K, 1, in.K, (T*)bonus, 1, K);
        for (int64_t n = 0; n < K; n += Vec<T>::width) decays(n, in.bonus != nullptr);
    }

    // M is (BLOCK, BLOCK), zero above the diagonal. `partial` is memory for PAIRS + BLOCK vectors, in whole batches of
    // W. If `walks` (PAIRS, K) is not null, it gets the decayed keys of every pair.
    void scores(bool has_bonus, T* partial, T* walks, T* M) const {
        constexpr int64_t W = Vec<T>::width;
        int64_t n = 0;
        for (; n + gemm::WIDEST * W <= K; n += gemm::WIDEST * W) walk<gemm::WIDEST>(n, has_bonus, partial, walks);
        for (; n < K; n += W) walk<1>(n, has_bonus, partial, walks);
        alignas(64) T sums[(PAIRS + BLOCK + W - 1) / W * W + BLOCK];
        for (int64_t i = 0; i < PAIRS + BLOCK; i += W) gemm::sums(partial + i * W).store(sums + i);
        for (int64_t t = 0; t < BLOCK; t++) {
            const bool emptied = t >= length || (has_bonus && reset[t]);
            for (int64_t s = 0; s < t; s++) M[t * BLOCK + s] = emptied ? 0 : sums[pair(t, s)];
            M[t * BLOCK + t] = t < length ? sums[PAIRS + t] : 0;
        }
    }

private:
    void read_logs(const Inputs<T>& in, int64_t b, int64_t t, int64_t h, bool present, int64_t tokens, T* to) const {
        constexpr int64_t W = Vec<T>::width;
        if (!present || in.decay != VECTOR || in.reset(b, t)) {
            const Vec<T> value(present ? in.log_decay_of(b, t, h) : (T)0);
            for (int64_t n = 0; n < K; n += W) value.store(to + n);
            return;
        }
        const int64_t stride = in.H * in.K;
        gemm::pack(in.log_decay + in.token(b, t) * stride + h * in.K, stride, 1, in.K, to, 1, K, tokens * stride);
        for (int64_t n = 0; n < K; n += W) simd::max(Vec<T>(FORGET<T>), Vec<T>::load(to + n)).store(to + n);
    }

    // Decays of the keys n .. n + W. The decays of half a block are multiplied; then exp of the sum of logs is used.
    void decays(int64_t n, bool has_bonus) {
        Vec<T> sum = Vec<T>::zero(), decay((T)1);
        for (int64_t t = 0; t < BLOCK; t++) {
            const int64_t at = t * K + n;
            const Vec<T> log_a = Vec<T>::load(log + at), a = simd::exp(log_a), before = decay;
            a.store(step + at);
            sum += log_a;
            decay = t == BLOCK / 2 ? simd::exp(sum) : decay * a;
            const Vec<T> read = !has_bonus ? decay : reset[t] ? Vec<T>::zero() : before;
            read.store(from_start + at);
            (read * Vec<T>::load(q + at)).store(q_from_start + at);
        }
        simd::exp(sum).store(whole + n);
        sum = Vec<T>::zero();
        decay = Vec<T>((T)1);
        for (int64_t t = BLOCK - 1; t >= 0; t--) {
            const int64_t at = t * K + n;
            if (t == BLOCK / 2 - 1) decay = simd::exp(sum);
            decay.store(to_end + at);
            (decay * Vec<T>::load(k + at)).store(k_to_end + at);
            sum += Vec<T>::load(log + at);
            decay *= Vec<T>::load(step + at);
        }
    }

    // Adds the products of all pairs over the keys n .. n + NV * W to the lanes of `partial`.
    template <int NV>
    void walk(int64_t n, bool has_bonus, T* partial, T* walks) const {
        constexpr int64_t W = Vec<T>::width;
        const auto add = [&](int64_t at, const Vec<T>(&x)[NV], const T* y) {
            Vec<T> sum = n == 0 ? Vec<T>::zero() : Vec<T>::load(partial + at * W);
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) sum = simd::fma(x[j], Vec<T>::load(y + n + j * W), sum);
            sum.store(partial + at * W);
        };
        for (int64_t s = 0; s < length; s++) {
            Vec<T> key[NV], own[NV];
            for (int j = 0; j < NV; j++) {
                own[j] = key[j] = Vec<T>::load(k + s * K + n + j * W);
                if (has_bonus) own[j] *= Vec<T>::load(bonus + n + j * W);
            }
            add(PAIRS + s, own, q + s * K);
            for (int64_t t = s + 1; t < length; t++) {
                if (has_bonus) add(pair(t, s), key, q + t * K);
#pragma GCC unroll 4
                for (int j = 0; j < NV; j++) {
                    key[j] *= Vec<T>::load(step + t * K + n + j * W);
                    if (walks != nullptr) key[j].store(walks + pair(t, s) * K + n + j * W);
                }
                if (!has_bonus) add(pair(t, s), key, q + t * K);
            }
        }
    }
};

template <typename T>
class PerKeyForward {
public:
    explicit PerKeyForward(const Inputs<T>& in_)
        : in(in_), K(padded<T>(in.K)), V(padded<T>(in.V)), block(K), partial((PAIRS + 2 * BLOCK) * Vec<T>::width),
          M(BLOCK * BLOCK), v(BLOCK * V), y(BLOCK * V), state(K * V) {}

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
        block.read(in, b, t0, h, length, BLOCK);
        block.scores(in.bonus != nullptr, partial, nullptr, M);
        gemm::pack(in.v + start, stride, length, in.V, (T*)v, BLOCK, V, BLOCK * stride);
        T* const to = direct ? y_out + start : (T*)y;
        const int64_t to_stride = direct ? stride : V;
        gemm::for_tiles<T>(BLOCK, V, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            if (carried) tile.add_product(in.K, block.q_from_start + i * K, K, 1, state + j, V);
            tile.add_product(i + shape.rows, M + i * BLOCK, BLOCK, 1, v + j, V);
            tile.store(to + i * to_stride + j, to_stride);
        });
        if (!direct) gemm::unpack((T*)y, V, length, in.V, y_out + start, stride);
        gemm::for_tiles<T>(K, V, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
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
    Buffer<T> partial;  // (PAIRS + BLOCK, W)
    Buffer<T> M;  // (BLOCK, BLOCK)
    Buffer<T> v, y;  // (BLOCK, V)
    Buffer<T> state;  // (K, V)
};

}  // namespace gated
