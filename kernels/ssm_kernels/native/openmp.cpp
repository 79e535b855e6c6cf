// Tests whether the compiler supports OpenMP and the system can load its runtime. The function is never called.
#include <omp.h>

extern "C" int openmp_threads() { return omp_get_max_threads(); }
