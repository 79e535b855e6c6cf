// Calls a function of a library with arguments from one file, and writes the memory after the call to another file.
// The tests run it in an emulator, for kernels that are compiled for another processor.
//
//     calls LIBRARY FUNCTION IN OUT
//
// IN holds for every argument its kind, 'n' (a null pointer), 'i' (int64_t), 'd' (double) or 'm' (a pointer to memory),
// and its value in 8 bytes. For memory, the value is the size, and the bytes follow. OUT gets the function's result in 8
// bytes, and then all the memory in the same order.

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

constexpr int MOST = 64;  // arguments
constexpr size_t LINE = 64;

struct Free {
    void operator()(void* p) const { std::free(p); }
};
struct Memory {
    std::unique_ptr<char, Free> data;
    size_t size;
};

// The ABI passes pointers and integers in integer registers and then on the stack, independently of the doubles. The
// one double goes into the first floating-point register. A function with fewer arguments ignores the rest.
template <size_t... I>
int called(void* function, const std::array<int64_t, MOST>& a, double d, std::index_sequence<I...>) {
    return ((int (*)(decltype((void)I, int64_t())..., double))function)(a[I]..., d);
}

int main(int, char** argv) {
    void* library = dlopen(argv[1], RTLD_NOW);
    void* function = library ? dlsym(library, argv[2]) : nullptr;
    if (!function) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    FILE* in = std::fopen(argv[3], "rb");
    if (!in) return std::perror(argv[3]), 1;
    std::array<int64_t, MOST> arguments{};
    double real = 0;
    std::vector<Memory> memories;
    int count = 0;
    char kind, value[8];
    while (std::fread(&kind, 1, 1, in) == 1 && std::fread(value, 8, 1, in) == 1) {
        if (kind == 'd') {
            std::memcpy(&real, value, 8);
            continue;
        }
        std::memcpy(&arguments.at(count), value, 8);
        if (kind == 'm') {
            const size_t size = arguments[count];
            char* data = (char*)std::aligned_alloc(LINE, (size + LINE) / LINE * LINE);
            if (!data || std::fread(data, 1, size, in) != size) return std::fprintf(stderr, "no memory\n"), 1;
            memories.push_back({std::unique_ptr<char, Free>(data), size});
            arguments[count] = (int64_t)data;
        }
        count++;
    }
    const int64_t code = called(function, arguments, real, std::make_index_sequence<MOST>());
    FILE* out = std::fopen(argv[4], "wb");
    if (!out) return std::perror(argv[4]), 1;
    std::fwrite(&code, 8, 1, out);
    for (const Memory& memory : memories) std::fwrite(memory.data.get(), 1, memory.size, out);
    return std::fclose(out) ? (std::perror(argv[4]), 1) : 0;
}
