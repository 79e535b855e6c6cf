// Shared by both backward passes. Chunks go from the last to the first. A chunk recomputes the states before its blocks
// from its saved state. Then its blocks go from the last to the first, and carry dS, the adjoint of the state after the
// block. States and adjoints are transposed, (V, K), because most sums are over V.
//
// The gradient of a log decay is the sum of the terms that contain it: pairs around it, reads of the state before it,
// and writes that last beyond it. So there is no difference of large sums and no division, and a decay of 0 has a
// gradient of 0.
#pragma once

#include <deque>

#include "problem.h"

namespace delta {

// A Block has at most SIZE tokens, and `read` reads them. `keys` (count, K) and `lasting` (count, V) are the factors
// that they add to the next state. `whole_at(n)` is the block's decay of the keys n .. n + W.
template <typename T, typename Block>
class Backward {
public:
    Backward(const Inputs<T>& in_, const Gradients<T>& out_)
        : in(in_), out(out_), K(padded<T>(in.K)), V(padded<T>(in.V)), natural(K * V), dstate(V * K),
          states(BLOCKS * V * K) {
        for (int64_t m = 0; m < BLOCKS; m++) blocks.emplace_back(in);
    }
    virtual ~Backward() = default;

    void run(const Task& task, const T* saved) {
        for (int64_t h = task.first_head; h < task.first_head + task.heads; h++) {
            const int64_t row = (task.b * in.H + h) * in.K * in.V;
            transposed(out.dhT == nullptr ? nullptr : out.dhT + row, dstate);
            for (int64_t c = (in.T_ - 1) / CHUNK; c >= 0; c--) chunk(task, h, c, saved);
            if (out.dh0 == nullptr) continue;
            gemm::transpose<T>(dstate, K, V, K, natural, V);
            gemm::unpack((T*)natural, V, in.K, in.V, out.dh0 + row, in.V);
        }
    }

protected:
    // Computes the gradients of a block's inputs, and dstate of the state before it (null: zeros).
    virtual void gradients(const Task& task, int64_t h, Block& block, const T* state, const T* saved) = 0;

    // to (V, K) = `from` times the whole block's decays, plus left^T right with left (n, V) and right (n, K).
    void decay_and_add(const Block& block, const T* from, int64_t n, const T* left, const T* right, T* to) const {
        gemm::for_tiles<T>(V, K, [&](auto shape, int64_t i, int64_t j) {
            auto tile = decltype(shape)::Tile::zeros();
            tile.add_product(n, left + i, 1, V, right + j, K);
            if (from != nullptr)
                tile.each([&](Vec<T>& x, int row, int64_t lane) {
                    x = simd::fma(block.whole_at(j + lane), Vec<T>::load(from + (i + row) * K + j + lane), x);
                });
            tile.store(to + i * K + j, K);
        });
    }

    const Inputs<T>& in;
    const Gradients<T>& out;
    const int64_t K, V;  // padded
    Buffer<T> natural;   // (K, V): a state before or after its transposition
    Buffer<T> dstate;    // (V, K)

private:
    static constexpr int64_t BLOCKS = CHUNK / Block::SIZE;  // most blocks of a chunk that do not start with a reset

    // A state in padded, transposed form. Null means zeros.
    void transposed(const T* state, T* to) {
        if (state == nullptr) {
            std::memset((void*)to, 0, V * K * sizeof(T));
        } else if (V == in.V && K == in.K) {
            gemm::transpose<T>(state, V, K, V, to, K);
        } else {
            gemm::pack(state, in.V, in.K, in.V, (T*)natural, K, V);
            gemm::transpose<T>(natural, V, K, V, to, K);
        }
    }

    void chunk(const Task& task, int64_t h, int64_t c, const T* saved) {
        Span spans[CHUNK];
        const T* before[CHUNK];  // the states before the spans; null means zeros
        const int64_t start = c * CHUNK, end = std::min(start + CHUNK, in.T_);
        int64_t count = 0;
        for (int64_t t = start; t < end; t += spans[count++].length) spans[count] = in.span(task.b, t, Block::SIZE);
        T* next = states;
        for (int64_t m = 0; m < count; m++) {
            blocks[m % BLOCKS].read(task.b, h, spans[m], saved);
            before[m] = nullptr;
            if (spans[m].reset) continue;
            if (m > 0) {
                const Block& last = blocks[(m - 1) % BLOCKS];
                decay_and_add(last, before[m - 1], last.count(), last.lasting, last.keys(), next);
            } else if (const T* kept = in.state_of(saved, task.b, h, c)) {
                transposed(kept, next);
            } else {
                continue;
            }
            before[m] = next;
            next += V * K;
        }
        for (int64_t m = count - 1; m >= 0; m--) {
            Block& block = blocks[m % BLOCKS];
            if (m + BLOCKS < count) block.read(task.b, h, spans[m], saved);  // a later block has overwritten it
            gradients(task, h, block, before[m], saved);
        }
    }

    Buffer<T> states;          // (BLOCKS, V, K)
    std::deque<Block> blocks;  // BLOCKS
};

}  // namespace delta
