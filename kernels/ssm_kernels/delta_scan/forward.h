// Shared by both forward passes: a loop over blocks. The state is in memory that stays in a cache.
#pragma once

#include "problem.h"

namespace delta {

// A Block has at most SIZE tokens, and `read` reads them. `width`: the most columns of a slice.
template <typename T, typename Block>
class Forward {
public:
    Forward(const Inputs<T>& in_, int64_t width)
        : in(in_), K(padded<T>(in.K)), V(padded<T>(width)), block(in), state(K * V) {}
    virtual ~Forward() = default;

    void run(const Task& task, const Slice& slice_, T* y, T* hT, T* saved) {
        slice = slice_;
        for (int64_t h = task.first_head; h < task.first_head + task.heads; h++) {
            const int64_t corner = (task.b * in.H + h) * in.K * in.V + slice.first;
            empty = in.h0 == nullptr;
            if (!empty) gemm::pack(in.h0 + corner, in.V, in.K, slice.columns, (T*)state, K, V);
            for (int64_t t = 0; t < in.T_; t += block.span.length) {
                if (saved != nullptr && t > 0 && t % CHUNK == 0)
                    keep_state(in.kept_state(saved, task.b, h, t / CHUNK) + slice.first);
                block.read(task.b, h, in.span(task.b, t, Block::SIZE));
                empty = empty || block.span.reset;
                step(task.b, h, y, saved);
                empty = false;
            }
            keep_state(hT + corner);
        }
    }

protected:
    // Computes the block's rows of y and of the saved values, and the state after it.
    virtual void step(int64_t b, int64_t h, T* y, T* saved) = 0;

    void keep_state(T* to) const { gemm::unpack((const T*)state, V, in.K, slice.columns, to, in.V); }

    const Inputs<T>& in;
    const int64_t K, V;  // padded; V of a slice
    Slice slice{};
    Block block;
    Buffer<T> state;     // (K, V)
    bool empty = false;  // the state is zero, and its memory is ignored
};

}  // namespace delta
