// Products of small matrices in registers, for kernels that process one chunk of a sequence at a time.
//
// Matrices are padded with zeros: the rows of a result to a multiple of ROWS, its columns to whole vectors. So no tile
// is partial. Left matrices are read by single numbers and may have any strides, for example transposed. Right matrices
// and results are read and written by vectors along their rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "prefetch.h"
#include "simd.h"

namespace gemm {

using simd::Vec;

// Vectors in a row of the widest tile, and its rows. Enough independent sums to hide the latency of fma, and few enough
// for the registers (32 in the first two cases). With AVX-512, a Zen 4 reaches its full rate with 8 x 2, and 80% of it
// with 4 x 4.
#if defined(SIMD_AVX512)
constexpr int WIDEST = 2, WIDEST_ROWS = 8;
#elif defined(__aarch64__)
constexpr int WIDEST = 4, WIDEST_ROWS = 4;
#else
constexpr int WIDEST = 2, WIDEST_ROWS = 4;
#endif
constexpr int64_t ROWS = 8;

// Number of rows of a tile with NV vectors per row.
template <int NV>
constexpr int tile_rows = NV == WIDEST ? WIDEST_ROWS : 8;

template <typename T>
constexpr int64_t padding = std::max<int64_t>(ROWS, Vec<T>::width);

// Rounds up to a multiple that is valid for rows and columns.
template <typename T>
constexpr int64_t padded(int64_t n) {
    return (n + padding<T> - 1) / padding<T> * padding<T>;
}

// An array of zeros that starts at a cache line.
template <typename T>
class Buffer {
public:
    explicit Buffer(int64_t n) {
        const size_t size = (std::max<int64_t>(n, 1) * sizeof(T) + 63) / 64 * 64;
        data = (T*)std::aligned_alloc(64, size);
        if (data == nullptr) throw std::bad_alloc();
        std::memset((void*)data, 0, size);
    }
    ~Buffer() { std::free(data); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    operator T*() const { return data; }

private:
    T* data;
};

// A tile of a result: MR rows of NV vectors.
template <typename T, int MR, int NV>
struct Tile {
    static constexpr int64_t W = Vec<T>::width;
    static constexpr int vectors = NV;
    Vec<T> c[MR][NV];

    static SIMD_INLINE Tile zeros() {
        Tile tile;
        tile.each([](Vec<T>& x, int, int64_t) { x = Vec<T>::zero(); });
        return tile;
    }
    static SIMD_INLINE Tile load(const T* p, int64_t stride) {
        Tile tile;
        tile.each([=](Vec<T>& x, int i, int64_t j) { x = Vec<T>::load(p + i * stride + j); });
        return tile;
    }

    template <typename F>
    SIMD_INLINE void each(F f) {
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++)
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) f(c[i][j], i, j * W);
    }
    SIMD_INLINE void store(T* p, int64_t stride) {
        each([=](Vec<T>& x, int i, int64_t j) { x.store(p + i * stride + j); });
    }
    // Multiplies row i by s[i].
    SIMD_INLINE void scale_rows(const T* s) {
        each([=](Vec<T>& x, int i, int64_t) { x *= Vec<T>(s[i]); });
    }
    // Adds A B, where A is MR x n with (i, k) at a[i * row + k * column], and B has n rows with distance `stride`.
    SIMD_INLINE void add_product(int64_t n, const T* a, int64_t row, int64_t column, const T* b, int64_t stride) {
        for (int64_t k = 0; k < n; k++, a += column, b += stride) {
            Vec<T> right[NV];
#pragma GCC unroll 4
            for (int j = 0; j < NV; j++) right[j] = simd::in_register(Vec<T>::load(b + j * W));
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++) {
                const Vec<T> left(a[i * row]);
#pragma GCC unroll 4
                for (int j = 0; j < NV; j++) c[i][j] = simd::fma(left, right[j], c[i][j]);
            }
        }
    }
};

// Passes the shape of a tile as the type of an argument.
template <typename T, int MR, int NV>
struct Shape {
    typedef gemm::Tile<T, MR, NV> Tile;
    static constexpr int rows = MR, vectors = NV;
};

template <typename T, int NV, typename Body>
SIMD_INLINE void tile_column(int64_t rows, int64_t j, const Body& body) {
    for (int64_t i = 0; i < rows; i += tile_rows<NV>) body(Shape<T, tile_rows<NV>, NV>(), i, j);
}

// Calls body(shape, i, j) for every tile of a (rows, columns) result. Both are padded; (i, j) is the upper left corner.
template <typename T, typename Body>
SIMD_INLINE void for_tiles(int64_t rows, int64_t columns, const Body& body) {
    constexpr int64_t W = Vec<T>::width;
    int64_t j = 0;
    for (; j + WIDEST * W <= columns; j += WIDEST * W) tile_column<T, WIDEST>(rows, j, body);
    if (WIDEST > 2 && j + 2 * W <= columns) {
        tile_column<T, 2>(rows, j, body);
        j += 2 * W;
    }
    for (; j < columns; j += W) tile_column<T, 1>(rows, j, body);
}

// The same for the tiles that overlap the lower triangle of a square result.
template <typename T, typename Body>
SIMD_INLINE void for_lower_tiles(int64_t n, const Body& body) {
    constexpr int MR = tile_rows<1>;
    for (int64_t j = 0; j < n; j += Vec<T>::width)
        for (int64_t i = j / MR * MR; i < n; i += MR) body(Shape<T, MR, 1>(), i, j);
}

// ---- Moving lanes ----

// to (columns, rows) = from (rows, columns) transposed. Both sizes are multiples of the vector width.
template <typename T>
void transpose(const T* from, int64_t from_stride, int64_t rows, int64_t columns, T* to, int64_t to_stride) {
    constexpr int W = Vec<T>::width;
    for (int64_t i = 0; i < rows; i += W) {
        for (int64_t j = 0; j < columns; j += W) {
            Vec<T> x[W];
#pragma GCC unroll 16
            for (int r = 0; r < W; r++) x[r] = Vec<T>::load(from + (i + r) * from_stride + j);
            simd::transpose(x);
#pragma GCC unroll 16
            for (int r = 0; r < W; r++) x[r].store(to + (j + r) * to_stride + i);
        }
    }
}

// Copies a (rows, columns) matrix into (padded_rows, padded_columns) and pads it with zeros. `next` is the distance to
// the matrix that is packed next. It is prefetched, so its address may be invalid.
template <typename T>
void pack(const T* from, int64_t from_stride, int64_t rows, int64_t columns, T* to, int64_t padded_rows,
          int64_t padded_columns, int64_t next = 0) {
    constexpr int64_t W = Vec<T>::width;
    for (int64_t i = 0; i < rows; i++, from += from_stride, to += padded_columns) {
        int64_t j = 0;
        if (next != 0) simd::ask(from + next, columns * sizeof(T));
        for (; j + W <= columns; j += W) Vec<T>::load(from + j).store(to + j);
        for (; j < padded_columns; j += W) Vec<T>::load_n(from + j, std::max<int64_t>(columns - j, 0)).store(to + j);
    }
    if (padded_rows > rows) std::memset((void*)to, 0, (padded_rows - rows) * padded_columns * sizeof(T));
}

// Copies a (rows, columns) matrix out of a padded matrix.
template <typename T>
void unpack(const T* from, int64_t from_stride, int64_t rows, int64_t columns, T* to, int64_t to_stride) {
    constexpr int64_t W = Vec<T>::width;
    for (int64_t i = 0; i < rows; i++, from += from_stride, to += to_stride) {
        int64_t j = 0;
        for (; j + W <= columns; j += W) Vec<T>::load(from + j).store(to + j);
        if (j < columns) Vec<T>::load(from + j).store_n(to + j, columns - j);
    }
}

}  // namespace gemm
