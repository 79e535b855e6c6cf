// Memory that will be read or written soon, asked for a little at a time between other work: a core that asks for many
// lines at once waits for them. For blocks of one decay a head; blocks by key ask while they pack (gemm::pack).
#pragma once

#include <cstdint>

namespace simd {

class Ahead {
public:
    void start() { count = next = 0; }

    // `rows` of `columns` numbers, each `stride` after the last; they may lie outside of a tensor.
    template <typename T>
    void add(const T* first, int64_t stride, int64_t rows, int64_t columns) {
        if (count < MOST) list[count++] = {(const char*)first, stride * SIZE<T>, rows, columns * SIZE<T>};
    }

    // The next rows, of what was added first: about as many lines as are on their way to a core at a time.
    void some() {
        for (int64_t lines = LINES; lines > 0 && next < count;) {
            Rows& at = list[next];
            for (int64_t i = 0; i < at.bytes; i += LINE, lines--) __builtin_prefetch(at.row + i);
            at.row += at.stride;
            if (--at.left <= 0) next++;
        }
    }

private:
    template <typename T>
    static constexpr int64_t SIZE = sizeof(T);
    static constexpr int64_t LINE = 64, LINES = 24;  // bytes; lines
    static constexpr int MOST = 8;

    struct Rows {
        const char* row;
        int64_t stride, left, bytes;
    };
    Rows list[MOST];
    int count = 0, next = 0;
};

}  // namespace simd
