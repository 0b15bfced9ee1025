// Chooses the backends that this CPU and this system can run. kernels_init() is the entry point.
//
// The table `kernel` is built in layers: scalar first, then each vector backend that is supported,
// as far as the cap allows. A backend replaces the entries that it has and inherits the others, so
// AMX, for example, is AVX-512 with other kernels for many rows.
#include "kernels/backends.h"
#include "kernels/codebook.h"
#include "base/os/os.h"

#include <stdio.h>

#if defined(SCALAR_ONLY) // make demo: without the vector backends, which take longest to compile
#elif defined(__x86_64__)
#include <cpuid.h>

// A backend needs features of the CPU (cpuid), and a system that saves their registers (XCR0).

enum CpuidRegister { EAX, EBX, ECX, EDX };

// True if cpuid reports all features of `bits` in a register of a leaf.
static bool has_features(unsigned leaf, unsigned subleaf, enum CpuidRegister reg, unsigned bits) {
    unsigned r[4];
    return __get_cpuid_count(leaf, subleaf, &r[EAX], &r[EBX], &r[ECX], &r[EDX]) &&
           (r[reg] & bits) == bits;
}

// XCR0 has a bit for each group of registers that the system saves on a task switch: bits 1 and 2
// for SSE and AVX, 5 to 7 for AVX-512, 17 and 18 for AMX tiles.
static bool saves_registers(uint32_t bits) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & bits) == bits;
}

static bool has_avx2(void) {
    const unsigned fma = 1u << 12, xsave = 1u << 27, f16c = 1u << 29;
    const unsigned bmi1 = 1u << 3, avx2 = 1u << 5, bmi2 = 1u << 8;
    return has_features(1, 0, ECX, fma | xsave | f16c) &&
           has_features(7, 0, EBX, bmi1 | avx2 | bmi2) && saves_registers(0x6);
}

#if defined(EMULATED) // tests only, see base/os/platform.mk
#define has_avx_vnni has_avx2
#define has_avx512   has_avx2
#define has_amx      has_avx2
#define has_vbmi     has_avx2
#else
static bool has_avx_vnni(void) { return has_avx2() && has_features(7, 1, EAX, 1u << 4); }

static bool has_avx512(void) {
    const unsigned f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31, vnni = 1u << 11;
    return has_avx2() && has_features(7, 0, EBX, f | dq | bw | vl) &&
           has_features(7, 0, ECX, vnni) && saves_registers(0xe0);
}

static bool has_vbmi(void) { return has_features(7, 0, ECX, 1u << 1); }

static bool has_amx(void) {
    const unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24, amx_int8 = 1u << 25;
    const unsigned avx512_bf16 = 1u << 5;
    return has_avx512() && has_features(7, 0, EDX, amx_bf16 | amx_tile | amx_int8) &&
           has_features(7, 1, EAX, avx512_bf16) && has_vbmi() && saves_registers(0x60000) &&
           os_enable_amx();
}
#endif

// True if the CPU can run a part of a backend that it supports.
static bool supports_part(const Kernels *k) { return k != &kernels_avx512_vbmi || has_vbmi(); }
#elif defined(__aarch64__)
#define has_neon os_has_dotprod
static bool has_i8mm(void) { return os_has_dotprod() && os_has_i8mm(); }
#endif

#if !defined(__x86_64__) || defined(SCALAR_ONLY)
#define supports_part(table) true
#endif

static bool has_scalar(void) { return true; }

// In the order in which they are overlaid.
static const struct {
    const Kernels *table[4]; // the parts of a backend; NULL after the last
    bool (*is_supported)(void);
} backends[] = {
    {{&kernels_scalar}, has_scalar},
#if defined(SCALAR_ONLY)
#elif defined(__x86_64__)
    {{&kernels_avx2_0, &kernels_avx2_1, &kernels_avx2_2}, has_avx2},
    {{&kernels_avxvnni}, has_avx_vnni},
    {{&kernels_avx512_0, &kernels_avx512_1, &kernels_avx512_2, &kernels_avx512_vbmi}, has_avx512},
    {{&kernels_amx}, has_amx},
#elif defined(__aarch64__)
    {{&kernels_neon}, has_neon},
    {{&kernels_i8mm}, has_i8mm},
#endif
};
enum { N_BACKENDS = sizeof backends / sizeof *backends };

Kernels kernel;

bool kernels_put_arithmetic(Buffer *out, bool is_deterministic) {
    bool is_shared = is_deterministic && strcmp(kernel.name, kernels_scalar.name);
    if (is_shared)
        buffer_printf(out, "deterministic %d", DETERMINISTIC_VERSION);
    else
        buffer_puts(out, kernel.name);
    return is_shared;
}

const char *kernels_names(void) {
    static char names[64];
    size_t n = 0;
    for (int i = 0; i < N_BACKENDS; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? " " : "",
                              backends[i].table[0]->name);
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
    if (k->store) kernel.store = k->store;
    if (k->attend_many) {
        kernel.attend_many = k->attend_many;
        kernel.attend_many_above = k->attend_many_above;
    }
    if (k->peak) {
        kernel.peak = k->peak;
        kernel.peak_unit = k->peak_unit;
    }
}

bool kernels_init(const char *cap) {
    if (!cap) cap = getenv("LLAMA31_ISA");
    // The names of all architectures are accepted. A name of another architecture has no effect.
    if (cap && *cap && !str_is_one_of(str_of(cap), "scalar avx2 avxvnni avx512 amx neon i8mm"))
        return false;
    codebook_init();
    memset(&kernel, 0, sizeof kernel);
    for (int i = 0; i < N_BACKENDS; i++) {
        for (int p = 0; backends[i].is_supported() && p < 4 && backends[i].table[p]; p++)
            if (supports_part(backends[i].table[p])) overlay(backends[i].table[p]);
        if (cap && !strcmp(cap, backends[i].table[0]->name)) break;
    }
    return true;
}
