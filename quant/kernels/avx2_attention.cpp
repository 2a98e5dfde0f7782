// Attention for avx2.
#define HALFBYTE_LEVEL avx2
#define HALFBYTE_ATTENTION kAvx2Attention
#include "quant/kernels/attention.inc"
