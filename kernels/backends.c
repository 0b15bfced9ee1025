// Chooses the backends that this CPU and this system can run. kernels_init() is the entry point.
//
// The table `kernel` is built in layers: scalar first, then each vector backend that is supported,
// as far as the cap allows. A backend replaces the entries that it has and inherits the others, so
// AMX, for example, is AVX-512 with other kernels for many rows.
#include "backends.h"
#include "codebook.h"
#include "../os/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

// A backend needs features of the CPU (cpuid), and a system that saves their registers (XCR0).
typedef struct {
    bool avx2, avx512, amx;
} CpuFeatures;

// XCR0 has a bit for each group of registers that the system saves on a task switch: bits 1 and 2
// for SSE and AVX, 5 to 7 for AVX-512, 17 and 18 for AMX tiles.
static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static CpuFeatures cpu_features(void) {
    CpuFeatures f = {0};
    unsigned a, b, c, d, b7, c7, d7, a7;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
    bool has_fma = c >> 12 & 1, has_f16c = c >> 29 & 1, has_xsave = c >> 27 & 1;
    if (!has_xsave || !__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7)) return f;
    uint64_t xcr0 = read_xcr0();
    bool has_bmi = (b7 >> 3 & 1) && (b7 >> 8 & 1); // BMI1, BMI2
    f.avx2 = (xcr0 & 0x6) == 0x6 && (b7 >> 5 & 1) && has_fma && has_f16c && has_bmi;
    bool has_512 =
        (b7 >> 16 & 1) && (b7 >> 17 & 1) && (b7 >> 30 & 1) && (b7 >> 31 & 1); // F, DQ, BW, VL
    f.avx512 = f.avx2 && (xcr0 & 0xe6) == 0xe6 && has_512 && (c7 >> 11 & 1);  // VNNI
    bool has_tiles = (d7 >> 22 & 1) && (d7 >> 24 & 1) && (d7 >> 25 & 1);      // bf16, tile, int8
    bool has_bf16 = has_tiles && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
    bool has_vbmi = c7 >> 1 & 1;
    f.amx = f.avx512 && has_bf16 && has_vbmi && (xcr0 & 0x60000) == 0x60000;
    return f;
}

static bool has_avx2(void) { return cpu_features().avx2; }
#if defined(EMULATED) // tests only, see Makefile
#define has_avx512 has_avx2
#define has_amx    has_avx2
#else
static bool has_avx512(void) { return cpu_features().avx512; }
static bool has_amx(void) { return cpu_features().amx && os_enable_amx(); }
#endif
#elif defined(__aarch64__)
#define has_neon os_has_dotprod
#endif

static bool has_scalar(void) { return true; }

// In the order in which they are overlaid. Each backend requires the features of those before it.
static const struct {
    const Kernels *table;
    bool (*is_supported)(void);
} backends[] = {
    {&kernels_scalar, has_scalar},
#if defined(__x86_64__)
    {&kernels_avx2, has_avx2},
    {&kernels_avx512, has_avx512},
    {&kernels_amx, has_amx},
#elif defined(__aarch64__)
    {&kernels_neon, has_neon},
#endif
};
enum { N_BACKENDS = sizeof backends / sizeof *backends };

Kernels kernel;

const char *kernels_names(void) {
    static char names[64];
    size_t n = 0;
    for (int i = 0; i < N_BACKENDS; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? " " : "",
                              backends[i].table->name);
    return names;
}

// Replaces the entries of `kernel` that the backend has. A MatmulKernel is replaced as a whole.
static void overlay(const Kernels *k) {
    kernel.name = k->name;
    for (int t = 0; t < TYPE_COUNT; t++) {
        if (k->gemv[t].rows) kernel.gemv[t] = k->gemv[t];
        if (k->gemm[t].rows) kernel.gemm[t] = k->gemm[t];
        if (k->gemm_large[t].rows) kernel.gemm_large[t] = k->gemm_large[t];
    }
    if (k->gemm_large_rows) kernel.gemm_large_rows = k->gemm_large_rows;
    if (k->rmsnorm) kernel.rmsnorm = k->rmsnorm;
    if (k->swiglu) kernel.swiglu = k->swiglu;
    if (k->add) kernel.add = k->add;
    if (k->attend) kernel.attend = k->attend;
    if (k->attend_many) kernel.attend_many = k->attend_many;
    if (k->store) kernel.store = k->store;
    if (k->peak) kernel.peak = k->peak, kernel.peak_unit = k->peak_unit;
}

bool kernels_init(const char *cap) {
    // The names of all architectures: the name of another one is accepted and caps nothing.
    static const char *const names[] = {"scalar", "avx2", "avx512", "amx", "neon"};
    if (!cap) cap = getenv("LLAMA31_ISA");
    bool is_known = !cap;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is_known = is_known || !strcmp(cap, names[i]);
    if (!is_known) return false;
    codebook_init();
    memset(&kernel, 0, sizeof kernel);
    for (int i = 0; i < N_BACKENDS && backends[i].is_supported(); i++) {
        overlay(backends[i].table);
        if (cap && !strcmp(cap, backends[i].table->name)) break;
    }
    return true;
}
