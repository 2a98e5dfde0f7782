// Attention for ref.
#define HALFBYTE_LEVEL ref
#define HALFBYTE_ATTENTION kRefAttention
#include "quant/kernels/attention.inc"
