// Does this compiler build OpenMP, and does the system load it? Never called.
#include <omp.h>

extern "C" int openmp_threads() { return omp_get_max_threads(); }
