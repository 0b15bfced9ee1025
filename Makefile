# llama31: make | make demo | make test | make asan | make format | make install | make uninstall | make dist
# Variables: CC, CFLAGS, LDFLAGS, BUILD (objects), PREFIX, DESTDIR, OPENMP (empty: POSIX threads), V= (show commands).
CC      ?= cc
CFLAGS  ?= -O3
BUILD   ?= build
PREFIX  ?= /usr/local
comma   := ,
VERSION := $(shell cat VERSION)
COMMIT  := $(shell cat COMMIT 2>/dev/null || git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)

# Installing, as root, runs no compiler.
ifneq (,$(if $(MAKECMDGOALS),$(filter-out install uninstall dist format clean,$(MAKECMDGOALS)),all))
TARGET  := $(shell $(CC) -dumpmachine)
OPENMP  ?= $(shell echo 'int main(void){return 0;}' | $(CC) -fopenmp -x c -o /dev/null - 2>/dev/null && echo -fopenmp)
# Guards on the stack and in the C library's calls, a program at any address, its tables read-only: where they are had.
HARDEN  ?= -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2 -fPIE
HARDLINK := $(if $(HARDEN),$(if $(findstring -static,$(LDFLAGS)),,-pie) -Wl$(comma)-z$(comma)relro$(comma)-z$(comma)now)
HARDLINK := $(shell printf '\043include <stdio.h>\nint main(void){return 0;}' | $(CC) -std=c11 -Werror $(CFLAGS) $(HARDEN) \
              $(HARDLINK) $(LDFLAGS) -x c -o /dev/null - 2>/dev/null && echo ' $(HARDLINK)')
endif

# No -ffast-math: NaN checks and the order of sums are part of the contract.
FLAGS   := -std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Wall -Wextra -Wpedantic -fno-math-errno -ffp-contract=off \
           $(FLAGS_EXTRA) -DVERSION='"$(VERSION)"' $(OPENMP)

# What only some systems have; none where the sandbox does not know the numbers of its calls, where the kernel's headers
# are missing or old, and for sanitizers.
LINUX64 := $(and $(findstring linux,$(TARGET)),$(or $(findstring x86_64,$(TARGET)),$(findstring aarch64,$(TARGET))))
SANDBOX   ?= $(if $(findstring openbsd,$(TARGET)),openbsd,$(or $(if $(LINUX64),$(shell \
             $(CC) -E -include linux/landlock.h -x c /dev/null >/dev/null 2>&1 && echo linux)),none))
$(BUILD)/os/sandbox_linux.o: ISA := -DSECCOMP_ARCH=AUDIT_ARCH_$(if $(findstring x86_64,$(TARGET)),X86_64,AARCH64)

SYSTEM  := $(if $(findstring linux,$(TARGET)),linux,$(if $(findstring mingw,$(TARGET)),windows,bsd))
ifeq ($(SYSTEM),windows) # gcc cannot align its stack there to more than 16 bytes; formats are checked elsewhere
FLAGS   += -include os/windows/posix.h -Ios/windows -D__USE_MINGW_ANSI_STDIO=1 -D_WIN32_WINNT=0x0602 -Wno-format \
           -Wno-format-extra-args -Wa,-muse-unaligned-vector-move
LIBS    := -static -lsynchronization -lshell32 -Wl,--stack,16777216
endif
ifneq (,$(filter i386-% i486-% i586-% i686-%,$(TARGET))) # floats are float32, not the x87's 80 bits
FLAGS   += -msse2 -mfpmath=sse
endif
GUARDS  := $(if $(HARDLINK),$(HARDEN))
$(BUILD)/kernels/%.o $(BUILD)/backends/%.o: GUARDS := $(if $(HARDLINK),-fPIE) # inner loops over rows that have been checked
BACKENDS   := backends/avx2.c backends/avx512.c backends/amx.c backends/neon.c
CORE    := os/os_$(SYSTEM).c os/sandbox_$(SANDBOX).c os/threads_$(if $(OPENMP),openmp,posix).c \
           $(filter-out run.c os/os_% os/sandbox_% os/threads_% $(BACKENDS),$(wildcard *.c */*.c))
# WITHOUT="cache lora": each of these directories is left out, and its stub.c takes its place.
WITHOUT ?=
CORE    := $(filter-out build% tests/% models/% scripts/% %/stub.c $(WITHOUT:%=%/%),$(CORE)) $(WITHOUT:%=%/stub.c)
ifneq (,$(findstring x86_64,$(TARGET)))
CORE    += backends/avx2.c backends/avx512.c backends/amx.c
endif
ifneq (,$(findstring aarch64,$(TARGET))$(findstring arm64,$(TARGET)))
CORE    += backends/neon.c
endif
# Without this gcc does not turn its minima and maxima into vector instructions.
$(BUILD)/quantize/encode.o: ISA := -fno-trapping-math
$(BUILD)/backends/avx2.o:   ISA := -mavx2 -mfma -mf16c -mbmi -mbmi2
AVX512 := -mavx2 -mfma -mf16c -mbmi -mbmi2 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni \
          -mprefer-vector-width=512
TILES  := -mavx512bf16 -mavx512vbmi -mamx-tile -mamx-bf16 -mamx-int8
# All of the program on what this CPU lacks, for tests (with a BUILD of its own): EMULATE=amx on a tile unit (needs
# AVX-512), EMULATE=avx512 on both (needs AVX2 and SIMDe).
ifdef EMULATE
TILES  := -include tests/amx_emulate.h
$(BUILD)/kernels/kernels.o: ISA := -DEMULATED
endif
ifeq ($(EMULATE),avx512) # SIMDe's functions inlined take minutes to compile
AVX512 := -mavx2 -mfma -mf16c -mbmi -mbmi2 -O1 -Wno-psabi -DSIMDE_NO_INLINE -include tests/avx512_emulate.h
endif
$(BUILD)/backends/avx512.o: ISA := $(AVX512)
$(BUILD)/backends/amx.o:    ISA := $(AVX512) $(TILES)
ifeq ($(SYSTEM),windows) # which hands out no tiles, and has a long of 32 bits that gcc's tile macros cannot take
$(BUILD)/backends/amx.o:    ISA := $(AVX512) -include tests/amx_emulate.h
endif
$(BUILD)/os/os_windows.o: ISA := -DPOSIX_IMPLEMENTATION
$(BUILD)/tests/amx_emulated.o: ISA := $(AVX512)
$(BUILD)/backends/neon.o:   ISA := -march=armv8.2-a+dotprod+fp16
$(BACKENDS:%.c=$(BUILD)/%.o): ISA += $(BACKEND_FLAGS)

OBJ     := $(CORE:%.c=$(BUILD)/%.o) $(BUILD)/models/builtin.o $(BUILD)/chat/templates.o
FUZZED  := tests/fuzz/targets.c tests/fuzz/editor.c tests/fuzz/imatrix.c
TESTS   := $(wildcard tests/*.c) $(FUZZED)
ifeq (,$(findstring x86_64,$(TARGET)))
TESTS   := $(filter-out tests/amx_emulated.c,$(TESTS))
endif
ifeq ($(SYSTEM),windows) # these fork
TESTS   := $(filter-out tests/test_gguf.c tests/test_sandbox.c,$(TESTS))
endif
SUITES  := $(patsubst tests/test_%.c,X(%),$(filter tests/test_%,$(TESTS)))
$(BUILD)/tests/main.o: ISA := '-DSUITES(X)=$(SUITES)'
TESTOBJ := $(TESTS:%.c=$(BUILD)/%.o)

V       ?= @
say      = @printf '  %-3s %s\n' $(1) $(2)

all: $(BUILD)/llama31
	@cp -f $(BUILD)/llama31 llama31

$(BUILD)/llama31: $(BUILD)/run.o $(OBJ)
	$(call say,LD,$@)
	$(V)$(CC) $(CFLAGS) $(OPENMP) $(HARDLINK) $(LDFLAGS) -o $@ $^ -lm -pthread $(LIBS)
$(BUILD)/unit: $(TESTOBJ) $(OBJ)
	$(call say,LD,$@)
	$(V)$(CC) $(CFLAGS) $(OPENMP) $(HARDLINK) $(LDFLAGS) -o $@ $^ -lm -pthread $(LIBS)
$(BUILD)/tests/main.o: $(BUILD)/tests/suites
$(BUILD)/run.o $(BUILD)/cache/cache.o: ISA = '-DBUILD_COMMIT="$(COMMIT)"' '-DBUILD_COMPILER="$(shell $(CC) --version | sed 's/["\\]//g;q')"'
$(BUILD)/run.o $(BUILD)/cache/cache.o: $(BUILD)/commit
$(BUILD)/commit: FORCE
	@mkdir -p $(@D); echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' > $@
$(BUILD)/tests/suites: FORCE # changes when the list does, whatever the times of the files
	@mkdir -p $(@D); echo '$(SUITES)' | cmp -s - $@ || echo '$(SUITES)' > $@
$(BUILD)/%.o: %.c Makefile VERSION
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(V)$(CC) $(FLAGS) $(GUARDS) $(CFLAGS) $(ISA) -MMD -MP -c -o $@ $<
$(BUILD)/models/builtin.o: models/stories.gguf
$(BUILD)/chat/templates.o: $(wildcard chat/templates/*.jinja)
$(BUILD)/%.o: %.S
	@mkdir -p $(@D)
	$(call say,AS,$<)
	$(V)$(CC) -c -o $@ $<

demo: all
	./llama31 run --temp 0.7 -n 200 --seed 5 "Once upon a time"

# Preloaded by tests/test_torture.py, where the C library names its allocator as glibc does; sanitizers have their own.
$(BUILD)/torture.so: tests/torture/torture.c
	@mkdir -p $(@D)
	$(call say,LD,$@)
	-$(V)$(CC) -std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Wall -Wextra -O1 -fPIC -shared -o $@ $< -ldl

test: all $(BUILD)/unit $(BUILD)/torture.so
	@BUILD=$(BUILD) sh tests/run.sh

asan:
	$(MAKE) BUILD=build-asan SANDBOX=none HARDEN= CFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" \
	  build-asan/llama31 build-asan/unit

# FUZZ_TARGET=json build-fuzz/fuzz -dict=tests/fuzz/json.dict CORPUS tests/fuzz/seeds/json
# The backends' files without checks, which take clang minutes to compile; make asan has them.
fuzz:
	$(MAKE) BUILD=build-fuzz CC=clang SANDBOX=none HARDEN= OPENMP= BACKEND_FLAGS=-fno-sanitize=all \
	  CFLAGS="-O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined" build-fuzz/fuzz
$(BUILD)/fuzz: $(FUZZED:%.c=$(BUILD)/%.o) $(BUILD)/tests/fuzz/libfuzzer.o $(BUILD)/tests/make_gguf.o $(OBJ)
	$(call say,LD,$@)
	$(V)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $$($(CC) -print-file-name=libclang_rt.fuzzer_no_main-x86_64.a) -lstdc++ -lm -pthread

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

SHARE    = $(DESTDIR)$(PREFIX)/share
INSTALLED = bin/llama31 share/man/man1/llama31.1 share/bash-completion/completions/llama31 \
            share/zsh/site-functions/_llama31 share/fish/vendor_completions.d/llama31.fish
install:
	@[ -x llama31 ] || { echo 'make install: there is no ./llama31 yet; run make first'; exit 1; }
	for file in $(INSTALLED); do mkdir -p "$(DESTDIR)$(PREFIX)/$${file%/*}" || exit 1; done
	install -m 755 llama31 "$(DESTDIR)$(PREFIX)/bin/llama31"
	./llama31 help --man > "$(SHARE)/man/man1/llama31.1"
	./llama31 help --completion bash > "$(SHARE)/bash-completion/completions/llama31"
	./llama31 help --completion zsh > "$(SHARE)/zsh/site-functions/_llama31"
	./llama31 help --completion fish > "$(SHARE)/fish/vendor_completions.d/llama31.fish"
	mkdir -p "$(SHARE)/doc/llama31/docs/rope" "$(SHARE)/llama31/scripts/lib"
	install -m 644 README.md LICENSE "$(SHARE)/doc/llama31"
	install -m 644 docs/*.md "$(SHARE)/doc/llama31/docs"
	install -m 644 docs/rope/*.svg "$(SHARE)/doc/llama31/docs/rope"
	install -m 755 scripts/*.py scripts/*.sh "$(SHARE)/llama31/scripts"
	install -m 644 scripts/lib/*.py "$(SHARE)/llama31/scripts/lib"

uninstall:
	for file in $(INSTALLED); do rm -f "$(DESTDIR)$(PREFIX)/$$file" || exit 1; done
	rm -rf "$(SHARE)/doc/llama31" "$(SHARE)/llama31"

dist: # what git has, and the commit it is
	git archive --format=tar.gz --prefix=llama31-$(VERSION)/ \
	  --add-virtual-file=llama31-$(VERSION)/COMMIT:$(COMMIT) -o llama31-$(VERSION).tar.gz HEAD

clean:
	rm -rf $(BUILD) build-asan llama31

.PHONY: all demo test asan fuzz format install uninstall dist clean FORCE
-include $(OBJ:.o=.d) $(TESTOBJ:.o=.d) $(BUILD)/run.d
