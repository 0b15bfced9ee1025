// Both functions add up the tensors of the file. A pass reads all of them, so model_pass_size()
// subtracts those that it does not read.
#include "model/size.h"

size_t model_weight_bytes(const Model *m) {
    size_t bytes = 0;
    for (int i = 0; i < m->file.n_tensors; i++) bytes += m->file.tensors[i].bytes;
    return bytes;
}

// Adds `factor` times the weights and bytes of w.
static void add_size(PassSize *size, const Tensor *w, double factor) {
    size->weights += factor * w->rows * w->cols;
    size->bytes += factor * w->rows * (double)w->row_bytes;
}

PassSize model_pass_size(const Model *m, int n) {
    const ExpertConfig *c = &m->config.experts;
    PassSize size = {0};

    for (int i = 0; i < m->file.n_tensors; i++) {
        const GgufTensor *t = &m->file.tensors[i];
        if (gguf_tensor_layer(t->name) >= m->config.n_layers) continue;
        size.weights += (double)(t->dims[0] * gguf_n_rows(t));
        size.bytes += (double)t->bytes;
    }
    if (m->output.data != m->embed.data) add_size(&size, &m->embed, -1);

    for (const Layer *l = m->layers; l < m->layers + m->config.n_layers; l++) {
        if (!l->router.rows) continue;
        double n_unused = c->n_experts - experts_touched(c, n);
        add_size(&size, l->expert_gates, -n_unused);
        add_size(&size, l->expert_ups, -n_unused);
        add_size(&size, l->expert_downs, -n_unused);
    }

    return size;
}
