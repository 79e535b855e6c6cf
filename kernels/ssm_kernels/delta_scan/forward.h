// Shared by both forward passes: a loop over blocks. The state is in memory that stays in a cache.
#pragma once

#include "problem.h"

namespace delta {

// A Block has at most SIZE tokens, and `read` reads them.
template <typename T, typename Block>
class Forward {
public:
    explicit Forward(const Inputs<T>& in_)
        : in(in_), K(padded<T>(in.K)), V(padded<T>(in.V)), block(in), state(K * V) {}
    virtual ~Forward() = default;

    void run(const Task& task, T* y, T* hT, T* saved) {
        for (int64_t h = task.first_head; h < task.first_head + task.heads; h++) {
            const int64_t row = (task.b * in.H + h) * in.K * in.V;
            empty = in.h0 == nullptr;
            if (!empty) gemm::pack(in.h0 + row, in.V, in.K, in.V, (T*)state, K, V);
            for (int64_t t = 0; t < in.T_; t += block.span.length) {
                if (saved != nullptr && t > 0 && t % CHUNK == 0)
                    gemm::unpack((T*)state, V, in.K, in.V, in.kept_state(saved, task.b, h, t / CHUNK), in.V);
                block.read(task.b, h, in.span(task.b, t, Block::SIZE));
                empty = empty || block.span.reset;
                step(task.b, h, y, saved);
                empty = false;
            }
            gemm::unpack((T*)state, V, in.K, in.V, hT + row, in.V);
        }
    }

protected:
    // Computes the block's rows of y and of the saved values, and the state after it.
    virtual void step(int64_t b, int64_t h, T* y, T* saved) = 0;

    const Inputs<T>& in;
    const int64_t K, V;  // padded
    Block block;
    Buffer<T> state;     // (K, V)
    bool empty = false;  // the state is zero, and its memory is ignored
};

}  // namespace delta
