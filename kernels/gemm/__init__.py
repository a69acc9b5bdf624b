"""GEMM for CDNA4 (gfx950): fp16 and bf16 operands, fp32 accumulation, inter-wave stages."""
