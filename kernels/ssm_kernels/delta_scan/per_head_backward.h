// The backward pass of per_head_block.h. With dS the adjoint of the state after a block, and for its pairs
// dM = D * (dr x^T) below the diagonal, and dN = D * (dy x^T) on and below it:
//     dx = D_last k dS + N^T dy + M^T dr     dr = -beta dx, last token first     dv = beta dx     dbeta = dx (v - r)
//     dq = A dy S^T + dN k                   dk = D_last x dS^T + A dr S^T + (dM + dM^T) k + dN^T q
//     dS <- A_last dS + q^T (A dy) + k^T (A dr)
// All parts of a gradient of q or k are summed in one tile. The gradients of the log decays use these parts meanwhile.
#pragma once

#include "prefetch.h"
#include "backward.h"
#include "per_head_block.h"

namespace delta {

// A block, and the values that its tokens read and write. Rows beyond its tokens are zero.
template <typename T>
struct WrittenHeadBlock : HeadBlock<T> {
    using HeadBlock<T>::in;
    const int64_t V;            // padded
    Buffer<T> errors;           // (TOKENS, V): v - r
    Buffer<T> values, lasting;  // (TOKENS, V): x, and x decayed to the block's end

    explicit WrittenHeadBlock(const Inputs<T>& in_)
        : HeadBlock<T>(in_), V(padded<T>(in_.V)), errors(TOKENS * V), values(TOKENS * V), lasting(TOKENS * V) {}

    int64_t count() const { return this->span.length; }
    const T* keys() const { return this->k(); }

    void read(int64_t b, int64_t h, const Span& span, const T* saved) {
        HeadBlock<T>::read(b, h, span);
        const T* const kept = in.kept_of(saved, b, h, span.t0);
        for (int64_t j = 0; j < span.length; j++) {
            const Vec<T> beta(this->beta[j]), to(this->to[j]);
            simd::for_each_vector<T>(in.V, [&](int64_t n, auto lanes) {
                const Vec<T> error = lanes.load(kept + j * in.kept_row() + n);
                error.store(errors + j * V + n);
                (beta * error).store(values + j * V + n);
                (to * (beta * error)).store(lasting + j * V + n);
            });
        }
        this->score_again(kept + in.V);
        for (T* const rows : {(T*)values, (T*)lasting})
            std::memset((void*)(rows + span.length * V), 0, (TOKENS - span.length) * V * sizeof(T));
    }
};

template <typename T>
class PerHeadBackward final : public Backward<T, WrittenHeadBlock<T>> {
    typedef WrittenHeadBlock<T> Block;

public:
    PerHeadBackward(const Inputs<T>& in_, const Gradients<T>& out_)
        : Backward<T, Block>(in_, out_), given(2 * TOKENS * V), reaching(2 * TOKENS * V), valuesT(V * TOKENS),
          dvaluesT(V * TOKENS), dpairs(2 * TOKENS * TOKENS), both(TOKENS * TOKENS),
          dkeys(2 * TOKENS * K), below(TOKENS * TOKENS) {
        for (int64_t u = 0; u < TOKENS; u++) std::fill_n(below + u * TOKENS, u, (T)1);
    }

private:
    using Backward<T, Block>::in, Backward<T, Block>::out, Backward<T, Block>::K, Backward<T, Block>::V;
    using Backward<T, Block>::dstate;
    static constexpr int64_t W = Vec<T>::width;

    void gradients(const Task& task, int64_t h, Block& block, const T* state, const T* saved) override {
        const int64_t length = block.span.length, rows = block.rows, head = in.head(task.b, block.span.t0, h);
        T* const dy = given + TOKENS * V;
        fetch(block, task, h, saved);
        gemm::pack(out.dy + head * in.V, in.H * in.V, length, in.V, dy, TOKENS, V);
        for (int64_t j = 0; j < TOKENS; j++) scaled(dy + j * V, block.from[j], reaching + (TOKENS + j) * V);
        gemm::transpose<T>(block.values, V, TOKENS, V, valuesT, TOKENS);

        alignas(64) T leaving[TOKENS] = {};
        through_last_state(block, leaving);
        gemm::for_tiles<T>(rows, V, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::load(given + i * V + j, V);
            tile.add_product(rows - i, block.pairs + (TOKENS + i) * TOKENS + i, 1, TOKENS, dy + i * V + j, V);
            tile.store(given + i * V + j, V);
        });
        solve(block, head);

        for (int64_t half = 0; half < 2 * TOKENS; half += TOKENS)
            gemm::for_tiles<T>(rows, TOKENS, [&](auto shape, int64_t i, int64_t j) {
                auto tile = decltype(shape)::Tile::zeros();
                tile.add_product(in.V, given + (half + i) * V, V, 1, valuesT + j, TOKENS);
                tile.store(dpairs + (half + i) * TOKENS + j, TOKENS);
            });
        alignas(64) T crossing[TOKENS] = {}, entering[TOKENS] = {};
        pairs(block, crossing);
        keys(block, task, h, state, entering);
        T through = 0;
        if (block.span.reset) {
            std::memset((void*)dstate, 0, V * K * sizeof(T));
        } else if (state != nullptr) {  // otherwise it is not needed: there is no state before
            through = state_before(block, state);
        }
        if (in.decay == HEAD) log_decays(head, length, crossing, entering, leaving, through);
    }

    // Prefetches the memory that this block writes, and that the block one chunk earlier reads.
    void fetch(const Block& block, const Task& task, int64_t h, const T* saved) {
        const int64_t t0 = block.span.t0, head = in.head(task.b, t0, h), before = in.head(task.b, t0 - TOKENS, h);
        const int64_t group = task.part * in.B * in.T_ * in.G + in.group(task.b, t0, h);
        ahead.start();
        ahead.add(out.dv + head * in.V, in.H * in.V, TOKENS, in.V);
        ahead.add(out.dk + group * in.K, in.G * in.K, TOKENS, in.K);
        ahead.add(out.dq + group * in.K, in.G * in.K, TOKENS, in.K);
        ahead.add(out.dy + before * in.V, in.H * in.V, TOKENS, in.V);
        if (t0 < CHUNK) return;
        const int64_t keys = in.group(task.b, t0 - CHUNK, h) * in.K;
        ahead.add(in.k + keys, in.G * in.K, TOKENS, in.K);
        ahead.add(in.q + keys, in.G * in.K, TOKENS, in.K);
        ahead.add(in.kept_of(saved, task.b, h, t0 - CHUNK), in.kept_row(), TOKENS, in.kept_row());
        const T* const state = in.state_of(saved, task.b, h, t0 / CHUNK - 1);
        if (state != nullptr) ahead.add(state + t0 % CHUNK * in.K / CHUNK * in.V, in.V, in.K * TOKENS / CHUNK, in.V);
    }

    // to (V,) = a row times a factor.
    void scaled(const T* row, T factor, T* to) const {
        for (int64_t n = 0; n < V; n += W) (Vec<T>::load(row + n) * Vec<T>(factor)).store(to + n);
    }

    // dx = D_last k dS, computed transposed. Also every token's part of the gradients of the later log decays.
    void through_last_state(const Block& block, T* leaving) {
        gemm::for_tiles<T>(V, TOKENS, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            tile.add_product(in.K, dstate + i * K, K, 1, block.kT + j, TOKENS);
            constexpr int vectors = shape.vectors;
            Vec<T> scale[vectors], sums[vectors];
            for (int l = 0; l < vectors; l++) {
                scale[l] = Vec<T>::load(block.to + j + l * W);
                sums[l] = Vec<T>::load(leaving + j + l * W);
            }
            tile.each([&](Vec<T>& x, int r, int64_t lane) {
                const int64_t at = (i + r) * TOKENS + j + lane, l = lane / W;
                x *= scale[l];
                sums[l] = simd::fma(x, Vec<T>::load(valuesT + at), sums[l]);
                x.store(dvaluesT + at);
            });
            for (int l = 0; l < vectors; l++) sums[l].store(leaving + j + l * W);
        });
        gemm::transpose<T>(dvaluesT, TOKENS, V, TOKENS, given, V);
    }

    // dx, dr, A dr, dv and dbeta, from the dx without reads by tokens of the block.
    void solve(const Block& block, int64_t head) {
        const int64_t length = block.span.length;
        alignas(64) T dbeta[TOKENS * W] = {};
        simd::for_each_vector<T>(in.V, [&](int64_t n, auto lanes) {
            Vec<T> dr[TOKENS];
#pragma GCC unroll 16
            for (int64_t j = TOKENS - 1; j >= 0; j--) {
                const int64_t at = j * V + n;
                dr[j] = Vec<T>::zero();
                if (j < length) {
                    Vec<T> dx = Vec<T>::load(given + at);
                    const T* const m = block.pairs + j;  // column j: the tokens that read what j wrote
#pragma GCC unroll 16
                    for (int64_t i = TOKENS - 1; i > j; i--) dx = simd::fma(Vec<T>(m[i * TOKENS]), dr[i], dx);
                    const Vec<T> dv = Vec<T>(block.beta[j]) * dx;
                    lanes.store(out.dv + (head + j * in.H) * in.V + n, dv);
                    T* const sum = dbeta + j * W;
                    simd::fma(dx, Vec<T>::load(block.errors + at), Vec<T>::load(sum)).store(sum);
                    dr[j] = -dv;
                }
                dr[j].store(given + at);
                (Vec<T>(block.from[j]) * dr[j]).store(reaching + at);
            }
        });
        alignas(64) T sums[TOKENS];
        simd::sums(dbeta, TOKENS, sums);
        for (int64_t j = 0; j < length; j++) out.dbeta[head + j * in.H] = sums[j];
    }

    // Adds dM and dN to dpairs. Computes dM + dM^T, and the gradients of each log decay through pairs around it.
    void pairs(const Block& block, T* crossing) {
        if (in.decay == HEAD) {
            alignas(64) T partial[TOKENS * W] = {};
            for (int64_t i = 0; i < TOKENS; i += W) {
                Vec<T> column = Vec<T>::zero();  // over the tokens that read
                for (int64_t u = block.rows - 1; u >= 0; u--) {
                    for (int64_t at = u * TOKENS + i; at < 2 * TOKENS * TOKENS; at += TOKENS * TOKENS)
                        column = simd::fma(Vec<T>::load(dpairs + at), Vec<T>::load(block.pairs + at), column);
                    T* const sum = partial + u * W;
                    simd::fma(column, Vec<T>::load(below + u * TOKENS + i), Vec<T>::load(sum)).store(sum);
                }
            }
            simd::sums(partial, TOKENS, crossing);
        }
        for (int64_t half = 0; half < 2 * TOKENS; half += TOKENS)
            gemm::for_tiles<T>(TOKENS, TOKENS, [&](auto shape, int64_t i, int64_t j) {
                T* const at = dpairs + (half + i) * TOKENS + j;
                auto tile = decltype(shape)::Tile::load(at, TOKENS);
                block.times_decays(tile, half + i, j);
                tile.store(at, TOKENS);
            });
        gemm::transpose<T>(dpairs, TOKENS, TOKENS, TOKENS, both, TOKENS);
        for (int64_t at = 0; at < TOKENS * TOKENS; at += W)
            (Vec<T>::load(both + at) + Vec<T>::load(dpairs + at)).store(both + at);
    }

    // dk, then dq. Also the gradients of log decays through every token's reads of the state.
    void keys(const Block& block, const Task& task, int64_t h, const T* state, T* entering) {
        const int64_t t0 = block.span.t0, length = block.span.length, rows = block.rows, stride = in.G * in.K;
        const int64_t start = (task.part * in.B * in.T_ * in.G + in.group(task.b, t0, h)) * in.K;
        T *const dk = out.dk + start, *const dq = out.dq + start, *const dN = dpairs + TOKENS * TOKENS;
        const bool first = h == task.first_head;  // it writes the sum; the other heads of a task add to it
        const bool direct = first && rows == length && K == in.K;
        alignas(64) T partial[TOKENS * W] = {};
        for (int64_t half = 0; half < 2 * TOKENS; half += TOKENS)
            gemm::for_tiles<T>(rows, K, [&](auto shape, int64_t i, int64_t j) {
                auto tile = decltype(shape)::Tile::zeros();
                if (state != nullptr) {
                    ahead.some();
                    tile.add_product(in.V, reaching + (half + i) * V, V, 1, state + j, K);
                    if (in.decay == HEAD)
                        tile.each([&](Vec<T>& x, int r, int64_t l) {
                            T* const sum = partial + (i + r) * W;
                            const Vec<T> other = Vec<T>::load(block.kq + (half + i + r) * K + j + l);
                            simd::fma(x, other, Vec<T>::load(sum)).store(sum);
                        });
                }
                if (half == 0) {
                    tile.add_product(in.V, block.lasting + i * V, V, 1, dstate + j, K);
                    tile.add_product(length, both + i * TOKENS, TOKENS, 1, block.k() + j, K);
                    tile.add_product(length - i, dN + i * TOKENS + i, 1, TOKENS, block.q() + i * K + j, K);
                } else {
                    const int64_t end = std::min(i + shape.rows, length);
                    tile.add_product(end, dN + i * TOKENS, TOKENS, 1, block.k() + j, K);
                }
                direct ? tile.store((half == 0 ? dk : dq) + i * stride + j, stride)
                       : tile.store(dkeys + (half + i) * K + j, K);
            });
        simd::sums(partial, TOKENS, entering);
        for (int64_t j = 0; j < length && !direct; j++) {
            add_row<T>(dkeys + j * K, dk + j * stride, in.K, first);
            add_row<T>(dkeys + (TOKENS + j) * K, dq + j * stride, in.K, first);
        }
    }

    // dstate of the state before the block. Also the inner product of the state with its part through the next state.
    T state_before(const Block& block, const T* state) {
        const Vec<T> whole(block.whole);
        Vec<T> sums[gemm::WIDEST];  // several independent sums, because each waits for its own result
        for (Vec<T>& sum : sums) sum = Vec<T>::zero();
        gemm::for_tiles<T>(V, K, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            ahead.some();
            tile.add_product(2 * TOKENS, reaching + i, 1, V, block.kq + j, K);
            tile.each([&](Vec<T>& x, int r, int64_t l) {
                const int64_t at = (i + r) * K + j + l;
                const Vec<T> before = whole * Vec<T>::load(dstate + at);
                sums[l / W] = simd::fma(before, Vec<T>::load(state + at), sums[l / W]);
                (x + before).store(dstate + at);
            });
        });
        for (int l = 1; l < gemm::WIDEST; l++) sums[0] += sums[l];
        return simd::sum(sums[0]);
    }

    void log_decays(int64_t head, int64_t length, const T* crossing, const T* entering, const T* leaving, T through) {
        T gradient[TOKENS], later = through, earlier = 0;
        for (int64_t u = length - 1; u >= 0; u--) gradient[u] = crossing[u] + (later += entering[u]);
        for (int64_t u = 0; u < length; u++) {
            out.dlog_decay[head + u * in.H] = gradient[u] + earlier;
            earlier += leaving[u];
        }
    }

    Buffer<T> given, reaching;        // (2 TOKENS, V): dx, later dr; and dy; both times A
    Buffer<T> valuesT, dvaluesT;      // (V, TOKENS)
    Buffer<T> dpairs;                 // (2 TOKENS, TOKENS): dM, then dN
    Buffer<T> both;                   // (TOKENS, TOKENS): dM + dM^T
    Buffer<T> dkeys;                  // (2 TOKENS, K): dk, then dq
    Buffer<T> below;                  // (TOKENS, TOKENS): ones below the diagonal
    simd::Ahead ahead;
};

}  // namespace delta
