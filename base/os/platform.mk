# Settings that depend on the compiler, the system and the CPU. Included by the Makefile.
#
# Sets TARGET, OPENMP, HARDEN and HARDLINK (probed); SYSTEM and SANDBOX, which choose files of os/; EXE and LIBS; BACKENDS
# and PARTS, the vector backends; adds to FLAGS, and sets FILE_FLAGS of single objects.
comma   := ,

# Compiler probes. Goals that compile nothing, such as `sudo make install`, skip them.
ifneq (,$(if $(MAKECMDGOALS),$(filter-out install uninstall dist size format clean,$(MAKECMDGOALS)),all))
TARGET  := $(shell $(CC) -dumpmachine)
OPENMP  ?= $(shell echo 'int main(void){return 0;}' | $(CC) -fopenmp -x c -o /dev/null - 2>/dev/null && echo -fopenmp)
# Hardening: stack protector, checked libc calls, position-independent executable, read-only relocations; used if the
# compiler and linker support all of it.
HARDEN  ?= -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIE
HARDLINK := $(if $(HARDEN),$(if $(findstring -static,$(LDFLAGS)),,-pie) -Wl$(comma)-z$(comma)relro$(comma)-z$(comma)now)
HARDLINK := $(shell printf '\043include <stdio.h>\nint main(void){return 0;}' | $(CC) -std=c11 -Werror $(CFLAGS) $(HARDEN) \
              $(HARDLINK) $(LDFLAGS) -x c -o /dev/null - 2>/dev/null && echo ' $(HARDLINK)')
endif

# The platform. seccomp filters need the system call numbers of the architecture and recent kernel headers; SANDBOX=none
# is for sanitizers.
SYSTEM  := $(if $(findstring linux,$(TARGET)),linux,$(if $(findstring mingw,$(TARGET)),windows,bsd))
LINUX64 := $(and $(findstring linux,$(TARGET)),$(or $(findstring x86_64,$(TARGET)),$(findstring aarch64,$(TARGET))))
SANDBOX   ?= $(or $(if $(LINUX64),$(shell \
             $(CC) -E -include linux/landlock.h -x c /dev/null >/dev/null 2>&1 && echo linux)),none)
ifeq ($(SYSTEM),windows) # gcc aligns the stack to only 16 bytes, and checks formats for another libc
EXE     := .exe
FLAGS   += -include base/os/windows/posix.h -Ibase/os/windows -D__USE_MINGW_ANSI_STDIO=1 -D_WIN32_WINNT=0x0602 \
           -DWIN32_LEAN_AND_MEAN -Wno-format -Wno-format-extra-args -Wa,-muse-unaligned-vector-move
LIBS    := -static -lsynchronization -lshell32 -Wl,--stack,16777216
endif
ifneq (,$(filter i386-% i486-% i586-% i686-%,$(TARGET))) # float32 arithmetic instead of the 80-bit arithmetic of the x87
FLAGS   += -msse2 -mfpmath=sse
endif

$(BUILD)/base/os/sandbox_linux.o: FILE_FLAGS := -DSECCOMP_ARCH=AUDIT_ARCH_$(if $(findstring x86_64,$(TARGET)),X86_64,AARCH64)
$(BUILD)/base/os/os_windows.o:    FILE_FLAGS := -DPOSIX_IMPLEMENTATION

# Vector backends. AVX2 and AVX-512 are compiled in PARTS (IF_PART in kernels/vector/matmul.h).
ifneq (,$(findstring x86_64,$(TARGET)))
BACKENDS := kernels/x86/avx_vnni.c kernels/x86/avx512_vbmi.c kernels/x86/amx.c
PARTS    := 2 1 0
endif
ifneq (,$(findstring aarch64,$(TARGET))$(findstring arm64,$(TARGET)))
BACKENDS := kernels/arm/neon.c kernels/arm/neon_i8mm.c
# Before register allocation, gcc moves so many loads to the front that it spills the sums of GEMM. clang lacks the option.
NEON    := $(shell $(CC) -Werror -fno-schedule-insns -x c -c -o /dev/null /dev/null 2>/dev/null && echo -fno-schedule-insns)
endif
AVX2    := -mavx2 -mfma -mf16c -mbmi -mbmi2 $(BACKEND_FLAGS)
AVXVNNI := -mavxvnni
AVX512  := $(AVX2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512
VBMI    := -mavx512vbmi
AMX     := -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-bf16 -mamx-int8
# EMULATE=amx or avx512 tests backends that this CPU lacks (use a separate BUILD): tiles are emulated by AVX-512 code,
# AVX-512 by SIMDe on AVX2, AVX-VNNI by AVX2 code.
ifdef EMULATE
AVXVNNI := -include tests/avx_vnni_emulate.h
VBMI    := -include tests/amx_emulate.h
AMX     := -include tests/amx_emulate.h
$(BUILD)/kernels/backends.o: FILE_FLAGS := -DEMULATED
endif
ifeq ($(EMULATE),avx512) # -O1 without inlining: otherwise SIMDe takes minutes to compile
AVX512  := $(AVX2) -O1 -Wno-psabi -DSIMDE_NO_INLINE -include tests/avx512_emulate.h
endif
ifeq ($(SYSTEM),windows) # Windows has no AMX, and gcc's tile macros need a 64-bit long
AMX     := -include tests/amx_emulate.h
endif
$(BUILD)/kernels/x86/avx2_%.o: FILE_FLAGS = $(AVX2) -DPART=$* -Dkernels_avx2=kernels_avx2_$*
$(BUILD)/kernels/x86/avx512_%.o: FILE_FLAGS = $(AVX512) -DPART=$* -Dkernels_avx512=kernels_avx512_$*
$(BUILD)/kernels/x86/avx512_vbmi.o: FILE_FLAGS := $(AVX512) $(VBMI)
$(BUILD)/kernels/x86/avx_vnni.o: FILE_FLAGS := $(AVX2) $(AVXVNNI)
$(BUILD)/kernels/x86/amx.o:    FILE_FLAGS := $(AVX512) $(AMX)
NEON    += -march=armv8.2-a+dotprod+fp16
$(BUILD)/kernels/arm/neon.o:   FILE_FLAGS := $(NEON) $(BACKEND_FLAGS)
$(BUILD)/kernels/arm/neon_i8mm.o: FILE_FLAGS := $(NEON)+i8mm $(BACKEND_FLAGS)
$(BUILD)/tests/amx_emulated.o: FILE_FLAGS := $(AVX512)
