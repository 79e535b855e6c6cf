// Memory that will be read or written soon, asked for between other work. It comes into the second cache: the first one
// is full of what is in use, and cores wait where too much of it is asked for at once.
#pragma once

#include <cstdint>

namespace simd {

constexpr int64_t LINE = 64;  // bytes

// Asks for a row of `bytes`, in whole pairs of lines: a branch costs more than a line too many. The address need not be
// valid.
inline void ask(const void* row, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 2 * LINE) {
        const char* const at = (const char*)row + i;
        __builtin_prefetch(at, 0, 2);
        __builtin_prefetch(at + LINE, 0, 2);
    }
}

// A list of rows to ask for, a few at a time.
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
            ask(at.row, at.bytes);
            lines -= (at.bytes + LINE - 1) / LINE;
            at.row += at.stride;
            if (--at.left <= 0) next++;
        }
    }

private:
    template <typename T>
    static constexpr int64_t SIZE = sizeof(T);
    static constexpr int64_t LINES = 24;
    static constexpr int MOST = 8;

    struct Rows {
        const char* row;
        int64_t stride, left, bytes;
    };
    Rows list[MOST];
    int count = 0, next = 0;
};

}  // namespace simd
