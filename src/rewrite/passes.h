// The rewrites, as rewrite.c lists them. Each looks at one node, in topological order, and may change the graph around it.
#pragma once
#include "rewrite/edit.h"

typedef void (*rewrite_fn)(edit *ed, node *n);
void rewrite_noop(edit *ed, node *n);
void rewrite_fold(edit *ed, node *n);
void rewrite_gelu(edit *ed, node *n);
void rewrite_silu(edit *ed, node *n);
void rewrite_layer_norm(edit *ed, node *n);
void rewrite_rms_norm(edit *ed, node *n);
void rewrite_attention(edit *ed, node *n);
void rewrite_merge(edit *ed, node *n);
