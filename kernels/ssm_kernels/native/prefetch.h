// Prefetches memory between other work. It goes to the L2 cache, because L1 is full of data in use. Too many prefetches
// at once stall the core.
#pragma once

#include <algorithm>
#include <cstdint>

namespace simd {

constexpr int64_t LINE = 64;  // bytes

// Prefetches a row of `bytes` in whole pairs of lines: a branch costs more than an unnecessary line. The address may be
// invalid.
inline void ask(const void* row, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 2 * LINE) {
        const char* const at = (const char*)row + i;
        __builtin_prefetch(at, 0, 2);
        __builtin_prefetch(at + LINE, 0, 2);
    }
}

// A list of rows to prefetch, a few at a time.
class Ahead {
public:
    void start() { count = next = 0; }

    // Adds `rows` rows of `columns` numbers with distance `stride`. They may be outside of a tensor. Rows after the first
    // MOST calls are not prefetched.
    template <typename T>
    void add(const T* first, int64_t stride, int64_t rows, int64_t columns) {
        if (count < MOST && rows > 0 && columns > 0)
            list[count++] = {(const char*)first, stride * SIZE<T>, rows, columns * SIZE<T>};
    }

    // Prefetches the next rows, in the order of `add`: about as many lines as a core can load at a time.
    void some() {
        for (int64_t lines = LINES; lines > 0 && next < count;) {
            const Rows at = list[next];
            const int64_t lines_of_row = (at.bytes + LINE - 1) / LINE;
            const int64_t rows = std::min(at.left, (lines + lines_of_row - 1) / lines_of_row);
            for (int64_t i = 0; i < rows; i++) ask(at.row + i * at.stride, at.bytes);
            lines -= rows * lines_of_row;
            list[next].row += rows * at.stride;
            if ((list[next].left -= rows) == 0) next++;
        }
    }

private:
    template <typename T>
    static constexpr int64_t SIZE = sizeof(T);
    static constexpr int64_t LINES = 24;
    static constexpr int MOST = 10;  // the longest list has as many

    struct Rows {
        const char* row;
        int64_t stride, left, bytes;
    };
    Rows list[MOST];
    int count = 0, next = 0;
};

}  // namespace simd
