#include "ops/absent.h"

#include <string.h>

#define STRINGS "strings are not tensors of MLX"
#define SEQUENCES "sequences of tensors stay on the host"
#define OPTIONALS "optionals stay on the host"
#define MAPS "maps stay on the host"
#define GONE "the operator has been withdrawn and has no kernel in ONNX Runtime"
#define SEARCH "the search runs its decoder graphs on the host"
#define TILES "its operands are in cuBLASLt's tile orders"
#define TRAINING "the operator is for training, of which ONNX Runtime has no schema"
#define SELECTED "the selection of keys by compressed scores is not translated"
#define PLUGIN "the operator is a TensorRT plug-in"
#define COPIES "ONNX Runtime puts it between a device's memory and the host's"
#define FLOAT_BLOCKS "the layout of its blocks belongs to other hardware"
#define LAYOUT "ONNX Runtime's CPU provider makes this operator for its own layout"
#define NHWC "the operator is in channels-last form, which this provider does not ask ONNX Runtime for"

#define ONNX ""
#define ML "ai.onnx.ml"
#define PREVIEW "ai.onnx.preview"
#define TRAIN "ai.onnx.preview.training"
#define MS "com.microsoft"
#define NCHWC "com.microsoft.nchwc"
#define INTERNAL "com.ms.internal.nhwc"

static const absent table[] = {
    {ONNX, "ConcatFromSequence", SEQUENCES},
    {ONNX, "DisentangledAttention_TRT", PLUGIN},
    {ONNX, "EfficientNMS_TRT", PLUGIN},
    {ONNX, "GRUUnit", GONE},
    {ONNX, "GivenTensorFill", GONE},
    {ONNX, "ImageDecoder", "image files are not decoded"},
    {ONNX, "MemcpyFromHost", COPIES},
    {ONNX, "MemcpyToHost", COPIES},
    {ONNX, "MultilevelCropAndResize_TRT", PLUGIN},
    {ONNX, "Optional", OPTIONALS},
    {ONNX, "PyramidROIAlign_TRT", PLUGIN},
    {ONNX, "RegexFullMatch", STRINGS},
    {ONNX, "SequenceAt", SEQUENCES},
    {ONNX, "SequenceConstruct", SEQUENCES},
    {ONNX, "SequenceEmpty", SEQUENCES},
    {ONNX, "SequenceErase", SEQUENCES},
    {ONNX, "SequenceInsert", SEQUENCES},
    {ONNX, "SequenceLength", SEQUENCES},
    {ONNX, "SequenceMap", SEQUENCES},
    {ONNX, "SplitToSequence", SEQUENCES},
    {ONNX, "StringConcat", STRINGS},
    {ONNX, "StringNormalizer", STRINGS},
    {ONNX, "StringSplit", STRINGS},
    {ML, "CastMap", MAPS},
    {ML, "CategoryMapper", STRINGS},
    {ML, "DictVectorizer", MAPS},
    {ML, "ZipMap", MAPS},
    {PREVIEW, "FlexAttention", "ONNX Runtime has no schema of it"},
    {TRAIN, "Adagrad", TRAINING},
    {TRAIN, "Adam", TRAINING},
    {TRAIN, "Gradient", TRAINING},
    {TRAIN, "Momentum", TRAINING},
    {MS, "AttnLSTM", "the attention wrapper around its cell is not translated"},
    {MS, "BeamSearch", SEARCH},
    {MS, "DequantizeBFP", FLOAT_BLOCKS},
    {MS, "DequantizeWithOrder", TILES},
    {MS, "DecoderMaskedSelfAttention", "its past is in the layout of ONNX Runtime's CUDA kernels"},
    {MS, "EPContext", "its payload was compiled for another provider"},
    {MS, "GreedySearch", SEARCH},
    {MS, "MatMulFpQ4", "its weights are packed for ONNX Runtime's own CPU kernels"},
    {MS, "MaxpoolWithMask", "its mask is laid out for one model"},
    {MS, "PackedSparseAttentionIndexer", SELECTED},
    {MS, "QOrderedAttention", TILES},
    {MS, "QOrderedGelu", TILES},
    {MS, "QOrderedLayerNormalization", TILES},
    {MS, "QOrderedLongformerAttention", TILES},
    {MS, "QOrderedMatMul", TILES},
    {MS, "QuantizeBFP", FLOAT_BLOCKS},
    {MS, "QuantizeWithOrder", TILES},
    {MS, "Sampling", SEARCH},
    {MS, "Snpe", "its payload was compiled for another provider"},
    {MS, "SparseAttentionIndexer", SELECTED},
    {MS, "SparsePagedAttention", "attention to selected keys of a paged cache is not translated"},
    {MS, "SparseToDenseMatMul", "sparse tensors are not tensors of MLX"},
    {MS, "Tokenizer", STRINGS},
    {MS, "WhisperBeamSearch", SEARCH},
    {MS, "WordConvEmbedding", "the embedding of words by their letters is not translated"},
    {NCHWC, "AveragePool", LAYOUT},
    {NCHWC, "Conv", LAYOUT},
    {NCHWC, "GlobalAveragePool", LAYOUT},
    {NCHWC, "GlobalMaxPool", LAYOUT},
    {NCHWC, "MaxPool", LAYOUT},
    {NCHWC, "ReorderInput", LAYOUT},
    {NCHWC, "ReorderOutput", LAYOUT},
    {NCHWC, "Upsample", LAYOUT},
};

enum { N_ABSENT = sizeof table / sizeof table[0] };

const absent *absent_row(size_t i) { return i < N_ABSENT ? &table[i] : NULL; }

const char *absent_reason(const char *domain, const char *type) {
  if (!strcmp(domain, INTERNAL)) return NHWC;
  for (size_t i = 0; i < N_ABSENT; i++)
    if (!strcmp(table[i].type, type) && !strcmp(table[i].domain, domain)) return table[i].reason;
  return NULL;
}
