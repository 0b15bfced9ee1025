# make            build ./llama31                 make demo       tell a story, then build it
# make test       build, run all tests            make asan       build-asan/ with sanitizers
# make fuzz       build-fuzz/fuzz (clang)         make sweep      build/sweep, which times kernels
# make install    into PREFIX (/usr/local)        make uninstall  remove it again
# make dist       source archive                  make format     clang-format all sources
# make clean      remove the build                make size       tokens per module, measures
#
# Variables: CC CFLAGS LDFLAGS BUILD PREFIX DESTDIR, OPENMP= (POSIX threads instead), V= (show commands),
# WITHOUT="constrain speculate cache lora quantize" (leave out any of these modules). See docs/building.md.
CC      ?= cc
CFLAGS  ?= -O3
BUILD   ?= build
PREFIX  ?= /usr/local
WITHOUT ?=
VERSION := $(shell cat VERSION)
COMMIT  := $(shell cat COMMIT 2>/dev/null || git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)

# Use all cores unless -j is given. (GNU make before 4.4 prefers the -j of a command line without showing it here.)
ifeq (0,$(MAKELEVEL)$(findstring -j,$(MAKEFLAGS)$(shell echo "$$MAKEFLAGS")))
MAKEFLAGS += -j$(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
endif

# No -ffast-math: NaN checks and the order of floating-point operations are part of the contract.
FLAGS   := -std=c11 -I. -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Wall -Wextra -Wpedantic -fno-math-errno -ffp-contract=off \
           -DVERSION='"$(VERSION)"'
include base/os/platform.mk # compiler probes; settings that depend on the system and the CPU
RULES   := Makefile base/os/platform.mk # all objects depend on both files
FLAGS   += $(OPENMP)
PROTECT := $(if $(HARDLINK),$(HARDEN))
$(BUILD)/kernels/%.o: PROTECT := $(if $(HARDLINK),-fPIE) # inner loops over checked sizes
# Modules without hot loops compile in half the time at -O1. Another -O in CFLAGS applies to all files.
COLD    := tests/% cli/% $(patsubst %.c,%,$(wildcard chat/*.c chat/jinja/*.c constrain/schema_*.c)) \
           $(addprefix constrain/,formats gbnf grammar number pattern regex) \
           base/files base/os/% gguf/family model/load generate/answer generate/cache/cache \
           $(addprefix quantize/,calibrate gguf_writer mixture quantize)
$(COLD:%=$(BUILD)/%.o): OPTIMIZE := $(if $(filter -O3,$(CFLAGS)),-O1)
$(BUILD)/cli/commands/bench_limits.o: OPTIMIZE := # at -O1 it reads 30 instead of 37 GB/s
$(BUILD)/tests/sweep.o $(BUILD)/tests/amx_emulated.o: OPTIMIZE := # kernels, and what times them
# Otherwise gcc does not vectorize minima, maxima and rounding.
$(BUILD)/quantize/encode.o $(BUILD)/kernels/quant.o: FILE_FLAGS := -fno-trapping-math

# Optional modules. DIR/stub.c replaces those that WITHOUT names.
OPTIONAL := constrain generate/speculate generate/cache model/lora quantize
LEFT_OUT := $(foreach module,$(WITHOUT),$(filter $(module) %/$(module),$(OPTIONAL)))
ifneq ($(words $(WITHOUT)),$(words $(LEFT_OUT)))
$(error WITHOUT=$(WITHOUT): expected some of: $(notdir $(OPTIONAL)))
endif

# Sources: one file of base/os/ per system, the backends of the architecture.
ALL_BACKENDS := kernels/x86/avx2.c kernels/x86/avx_vnni.c kernels/x86/avx512.c kernels/x86/avx512_vbmi.c kernels/x86/amx.c \
                kernels/arm/neon.c kernels/arm/neon_i8mm.c
SOURCES := $(filter-out $(ALL_BACKENDS) run.c build% tests/% base/os/% %/stub.c $(LEFT_OUT:%=%/%), \
             $(wildcard *.c */*.c */*/*.c))
SOURCES := $(BACKENDS) $(SOURCES) $(LEFT_OUT:%=%/stub.c) base/os/os_$(SYSTEM).c base/os/sandbox_$(SANDBOX).c \
           base/os/threads_$(if $(OPENMP),openmp,posix).c
SOURCES += $(if $(findstring address,$(CFLAGS)),tests/fuzz/asan.c) # default options of AddressSanitizer

# Objects. AVX2 and AVX-512 are compiled in parts (IF_PART in kernels/vector/matmul.h) and before the other files, because they
# take longest: 4 to 15 s of CPU time for each of 8 objects, 16 s for all other files (gcc 12, a busy Zen 5, 2026-11-28).
VECTOR  := $(foreach part,$(PARTS),$(BUILD)/kernels/x86/avx512_$(part).o $(BUILD)/kernels/x86/avx2_$(part).o)
OBJ     := $(VECTOR) $(SOURCES:%.c=$(BUILD)/%.o) $(patsubst %.S,$(BUILD)/%.o,$(wildcard */*.S */*/*.S))

# Tests. WITHOUT also leaves out test_MODULE.c, tests that include its headers, and fuzzing, which covers all modules.
FUZZERS := $(filter-out %/libfuzzer.c %/asan.c,$(wildcard tests/fuzz/*.c))
TESTS   := $(filter-out tests/sweep.c,$(wildcard tests/*.c)) $(FUZZERS)
ifneq (,$(strip $(WITHOUT)))
TESTS   := $(filter-out $(FUZZERS) tests/test_fuzz.c $(WITHOUT:%=tests/test_%.c) $(shell grep -lE \
             '#include "($(subst $() $(),|,$(strip $(LEFT_OUT))))/' tests/*.c),$(TESTS))
endif
ifeq (,$(findstring x86_64,$(TARGET)))
TESTS   := $(filter-out tests/amx_emulated.c,$(TESTS))
endif
ifeq ($(SYSTEM),windows) # it needs fork()
TESTS   := $(filter-out tests/test_gguf.c,$(TESTS))
endif
ifneq ($(SANDBOX),linux) # it needs the same kernel headers
TESTS   := $(filter-out tests/test_sandbox.c,$(TESTS))
endif
TESTOBJ := $(TESTS:%.c=$(BUILD)/%.o)
SUITES  := $(patsubst tests/test_%.c,X(%),$(filter tests/test_%,$(TESTS)))
$(BUILD)/tests/main.o: FILE_FLAGS := '-DSUITES(X)=$(SUITES)'

V       ?= @
report   = @printf '  %-3s %s\n' $(1) $(2)
link     = $(V)$(CC) $(CFLAGS) $(OPENMP) $(HARDLINK) $(LDFLAGS) -o $@ $(filter %.o,$^) -lm -pthread $(LIBS)

all: $(BUILD)/llama31
	@cp -f $(BUILD)/llama31$(EXE) llama31$(EXE)

# $(BUILD)/parts and $(BUILD)/suites change when WITHOUT or the list of tests does.
$(BUILD)/llama31: $(OBJ) $(BUILD)/run.o $(BUILD)/parts
	$(call report,LD,$@)
	$(link)
$(BUILD)/unit: $(TESTOBJ) $(OBJ) $(BUILD)/parts
	$(call report,LD,$@)
	$(link)
$(BUILD)/sweep: $(BUILD)/tests/sweep.o $(OBJ) $(BUILD)/parts
	$(call report,LD,$@)
	$(link)
$(BUILD)/tests/main.o: $(BUILD)/suites
$(BUILD)/cli/modules.o: FILE_FLAGS = '-DWITHOUT="$(strip $(WITHOUT))"'
$(BUILD)/cli/modules.o: $(BUILD)/parts
$(BUILD)/run.o $(BUILD)/generate/cache/cache.o: FILE_FLAGS = '-DBUILD_COMMIT="$(COMMIT)"' \
    '-DBUILD_COMPILER="$(shell $(CC) --version | sed 's/["\\]//g;q')"'
$(BUILD)/run.o $(BUILD)/generate/cache/cache.o: $(BUILD)/commit
$(BUILD)/commit: CONTENT = $(COMMIT)
$(BUILD)/parts:  CONTENT = $(OBJ)
$(BUILD)/suites: CONTENT = $(SUITES)
$(BUILD)/commit $(BUILD)/parts $(BUILD)/suites: FORCE
	@mkdir -p $(@D); echo '$(CONTENT)' | cmp -s - $@ || echo '$(CONTENT)' > $@
define compile
	@mkdir -p $(@D)
	$(call report,CC,$<)
	$(V)$(CC) $(FLAGS) $(PROTECT) $(CFLAGS) $(OPTIMIZE) $(FILE_FLAGS) -MMD -MP -c -o $@ $<
endef
$(BUILD)/%.o: %.c $(RULES) VERSION
	$(compile)
$(PARTS:%=$(BUILD)/kernels/x86/avx2_%.o): $(BUILD)/kernels/x86/avx2_%.o: kernels/x86/avx2.c $(RULES) VERSION
	$(compile)
$(PARTS:%=$(BUILD)/kernels/x86/avx512_%.o): $(BUILD)/kernels/x86/avx512_%.o: kernels/x86/avx512.c $(RULES) VERSION
	$(compile)
$(BUILD)/base/nfc_table.o: base/nfc_table.txt base/embed.inc
$(BUILD)/base/unicode_table.o: base/unicode_table.txt base/embed.inc
$(BUILD)/stories/builtin.o: stories/stories.gguf base/embed.inc
$(BUILD)/chat/templates.o: $(wildcard chat/templates/*.jinja) base/embed.inc
$(BUILD)/cli/commands/completions.o: $(wildcard cli/commands/completions/*) cli/commands/manual.roff base/embed.inc
$(BUILD)/%.o: %.S
	@mkdir -p $(@D)
	$(call report,AS,$<)
	$(V)$(CC) -I. -c -o $@ $<

# A first program without vector backends tells the story, because these take most of the time to compile.
FIRST   := $(filter-out $(VECTOR) $(BACKENDS:%.c=$(BUILD)/%.o) $(BUILD)/kernels/backends.o,$(OBJ)) \
           $(BUILD)/kernels/backends_scalar.o
$(BUILD)/kernels/backends_scalar.o: FILE_FLAGS := -DSCALAR_ONLY
$(BUILD)/kernels/backends_scalar.o: kernels/backends.c $(RULES) VERSION
	$(compile)
$(BUILD)/demo: $(FIRST) $(BUILD)/run.o
	$(call report,LD,$@)
	$(link)
demo: $(BUILD)/demo
	$(BUILD)/demo run --deterministic --temp 0.7 -n 200 --seed 18 "Once upon a time"
	@echo; echo 'Building ./llama31 with the kernels of all CPUs:'
	@$(MAKE) --no-print-directory all
	@echo
	@echo 'Next: ./llama31 run "Tell me about a dragon"    another story'
	@echo '      ./llama31 help                            list the commands'
	@echo '      scripts/get_model.sh llama-3.2-1b         download a real model (0.8 GB)'

# Measures the time of every kernel, to choose the thresholds of backends: build/sweep -m MODEL -t N
sweep: $(BUILD)/sweep

test: all $(BUILD)/unit $(BUILD)/sweep $(BUILD)/torture.so
	@BUILD=$(BUILD) sh tests/run.sh
# Fault injection, preloaded by tests/test_torture.py. Needs the allocator names of glibc; may fail elsewhere.
$(BUILD)/torture.so: tests/torture/torture.c
	@mkdir -p $(@D)
	$(call report,LD,$@)
	-$(V)$(CC) -std=c11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -Wall -Wextra -O1 -fPIC -shared -o $@ $< -ldl

# asan compiles the vector backends without sanitizers, because compiling them with sanitizers takes minutes.
# asan-backends includes them, but does not detect uses after return: gcc 12 would misalign vectors of 64 bytes.
asan asan-backends:
	$(MAKE) BUILD=build-$@ SANDBOX=none HARDEN= \
	  BACKEND_FLAGS=$(if $(filter asan,$@),-fno-sanitize=all,--param=asan-use-after-return=0) \
	  CFLAGS="-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer" \
	  build-$@/llama31 build-$@/unit

# FUZZ_TARGET=json build-fuzz/fuzz -dict=tests/fuzz/json.dict CORPUS tests/fuzz/seeds/json
fuzz:
	$(MAKE) BUILD=build-fuzz CC=clang SANDBOX=none HARDEN= OPENMP= BACKEND_FLAGS=-fno-sanitize=all \
	  CFLAGS="-O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined" build-fuzz/fuzz
$(BUILD)/fuzz: $(FUZZERS:%.c=$(BUILD)/%.o) $(BUILD)/tests/fuzz/libfuzzer.o $(BUILD)/tests/make_gguf.o $(OBJ)
	$(call report,LD,$@)
	$(V)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $$($(CC) -print-file-name=libclang_rt.fuzzer_no_main-x86_64.a) -lstdc++ -lm -pthread

help: # the head of this file
	@sed -n '/^#/!q;s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))
size: # tokens per module, and the measures that may only fall
	@python3 tests/measures.py

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

SHARE    = $(DESTDIR)$(PREFIX)/share
INSTALLED = bin/llama31 share/man/man1/llama31.1 share/bash-completion/completions/llama31 \
            share/zsh/site-functions/_llama31 share/fish/vendor_completions.d/llama31.fish
FOLDERS   = doc/llama31/docs/rope doc/llama31/docs/pictures doc/llama31/stories llama31/scripts/lib llama31/stories
install: # readable for everybody, whatever the umask of the caller
	@[ -x llama31 ] || { echo 'make install: no ./llama31; run make first'; exit 1; }
	umask 022; for file in $(INSTALLED); do mkdir -p "$(DESTDIR)$(PREFIX)/$${file%/*}" || exit 1; done
	install -m 755 llama31 "$(DESTDIR)$(PREFIX)/bin/llama31"
	umask 022; ./llama31 help --man > "$(SHARE)/man/man1/llama31.1"
	umask 022; ./llama31 help --completion bash > "$(SHARE)/bash-completion/completions/llama31"
	umask 022; ./llama31 help --completion zsh > "$(SHARE)/zsh/site-functions/_llama31"
	umask 022; ./llama31 help --completion fish > "$(SHARE)/fish/vendor_completions.d/llama31.fish"
	umask 022; mkdir -p $(FOLDERS:%="$(SHARE)/%")
	install -m 644 README.md CHANGELOG.md CONTRIBUTING.md LICENSE "$(SHARE)/doc/llama31"
	install -m 644 docs/*.md "$(SHARE)/doc/llama31/docs"
	install -m 644 docs/rope/*.svg "$(SHARE)/doc/llama31/docs/rope"
	install -m 644 docs/pictures/* "$(SHARE)/doc/llama31/docs/pictures"
	install -m 644 stories/README.md "$(SHARE)/doc/llama31/stories"
	install -m 755 scripts/*.py scripts/*.sh scripts/*.mjs "$(SHARE)/llama31/scripts"
	install -m 644 scripts/lib/*.py "$(SHARE)/llama31/scripts/lib"
	install -m 644 stories/*.py "$(SHARE)/llama31/stories"

uninstall:
	for file in $(INSTALLED); do rm -f "$(DESTDIR)$(PREFIX)/$$file" || exit 1; done
	rm -rf "$(SHARE)/doc/llama31" "$(SHARE)/llama31"

dist: # the files in git, and the commit, for --version
	git archive --format=tar.gz --prefix=llama31-$(VERSION)/ \
	  --add-virtual-file=llama31-$(VERSION)/COMMIT:$(COMMIT) -o llama31-$(VERSION).tar.gz HEAD

clean:
	rm -rf $(BUILD) build-asan build-asan-backends llama31

.PHONY: all help demo sweep test asan asan-backends fuzz size format install uninstall dist clean FORCE
-include $(OBJ:.o=.d) $(TESTOBJ:.o=.d) $(BUILD)/run.d $(BUILD)/kernels/backends_scalar.d $(BUILD)/tests/sweep.d
