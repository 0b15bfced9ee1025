// Stand-ins while modules are under way; each is overridden by the real definition and then removed.
#include "verbs.h"
#include "../base/json.h"
#define WEAK __attribute__((weak))
#define DIE die(EXIT_USAGE, "not in this build: %s", __func__)
WEAK int verb_chat(const Options *o) { (void)o; DIE; }
WEAK int verb_rope(const Options *o) { (void)o; DIE; }
WEAK void json_put_string(Buffer *out, const char *s, size_t n) { (void)out,(void)s,(void)n; DIE; }
WEAK void json_put_number(Buffer *out, double x) { (void)out,(void)x; DIE; }
WEAK int rope_rule_of(const char *n) { (void)n; DIE; }
WEAK const char *rope_rule_name(RopeRule r) { (void)r; DIE; }
WEAK bool rope_params_read(RopeParams *p, const Gguf *g, int h, Error *e) { (void)p,(void)g,(void)h,(void)e; DIE; }
WEAK void rope_init(Rope *r, const RopeParams *p) { (void)r,(void)p; DIE; }
WEAK void rope_free(Rope *r) { (void)r; DIE; }
WEAK void rope_reserve(Rope *r, int n) { (void)r,(void)n; DIE; }
WEAK void rope_apply(const Rope *r, float *v, int n, int h, int p) { (void)r,(void)v,(void)n,(void)h,(void)p; DIE; }
WEAK Sampler *sampler_new(const SampleOptions *o, int n) { (void)o,(void)n; DIE; }
WEAK void sampler_free(Sampler *s) { (void)s; DIE; }
WEAK int sampler_next(Sampler *s, const float *l, const int *r, int n) { (void)s,(void)l,(void)r,(void)n; DIE; }
WEAK void logits_top(const float *l, int v, Alternative *o, int n) { (void)l,(void)v,(void)o,(void)n; DIE; }
WEAK float logits_logprob(const float *l, int v, int id) { (void)l,(void)v,(void)id; DIE; }
WEAK const char *template_name(Template t) { (void)t; DIE; }
WEAK int template_of(const char *n) { (void)n; DIE; }
WEAK Template template_recognise(const Gguf *g, const Tokenizer *t, bool *u) { (void)g,(void)t,(void)u; DIE; }
WEAK void template_encode(Template tpl, const Tokenizer *t, const Message *m, int n, int f, bool a, Ids *o) { (void)tpl,(void)t,(void)m,(void)n,(void)f,(void)a,(void)o; DIE; }
