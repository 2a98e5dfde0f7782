// Attention for avx512.
#define HALFBYTE_LEVEL avx512
#define HALFBYTE_ATTENTION kAvx512Attention
#include "quant/kernels/attention.inc"
