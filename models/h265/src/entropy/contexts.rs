//! The context variables of intra slices (H.265 clause 9.3.2.2, Tables 9-5 to
//! 9-37 for initType 0): what they start as, one field a syntax element.
//!
//! Which context a bin uses is the business of the syntax code.

use trinity_bits::cabac::Context;

const SPLIT_CU_FLAG: [u8; 3] = [139, 141, 157];
const SPLIT_TRANSFORM_FLAG: [u8; 3] = [153, 138, 138];
const CBF_LUMA: [u8; 2] = [111, 141];
const CBF_CHROMA: [u8; 5] = [94, 138, 182, 154, 154];
const LAST_SIG_COEFF_PREFIX: [u8; 18] =
    [110, 110, 124, 125, 140, 153, 125, 127, 140, 109, 111, 143, 127, 111, 79, 108, 123, 63];
const CODED_SUB_BLOCK_FLAG: [u8; 4] = [91, 171, 134, 141];
/// 27 for luma, 15 for chroma, and one each under
/// transform_skip_context_enabled_flag.
const SIG_COEFF_FLAG: [u8; 44] = [
    111, 111, 125, 110, 110, 94, 124, 108, 124, 107, 125, 141, 179, 153, 125, 107, 125, 141, 179, 153, 125,
    107, 125, 141, 179, 153, 125, 140, 139, 182, 182, 152, 136, 152, 136, 153, 136, 139, 111, 136, 139, 111,
    141, 111,
];
const GREATER1_FLAG: [u8; 24] = [
    140, 92, 137, 138, 140, 152, 138, 139, 153, 74, 149, 92, 139, 107, 122, 152, 140, 179, 166, 182, 140,
    227, 122, 197,
];
const GREATER2_FLAG: [u8; 6] = [138, 153, 136, 167, 152, 152];

/// Every context variable an intra slice uses. Small enough to copy, which is
/// how wavefronts store them and how the encoder tries things out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contexts {
    pub sao_merge_flag: Context,
    pub sao_type_idx: Context,
    pub split_cu_flag: [Context; 3],
    pub cu_transquant_bypass_flag: Context,
    pub part_mode: Context,
    pub prev_intra_luma_pred_flag: Context,
    pub intra_chroma_pred_mode: Context,
    pub split_transform_flag: [Context; 3],
    pub cbf_luma: [Context; 2],
    pub cbf_chroma: [Context; 5],
    pub cu_qp_delta_abs: [Context; 2],
    pub cu_chroma_qp_offset_flag: Context,
    pub cu_chroma_qp_offset_idx: Context,
    pub log2_res_scale_abs: [[Context; 4]; 2],
    pub res_scale_sign_flag: [Context; 2],
    /// Luma, chroma.
    pub transform_skip_flag: [Context; 2],
    pub last_sig_coeff_x_prefix: [Context; 18],
    pub last_sig_coeff_y_prefix: [Context; 18],
    pub coded_sub_block_flag: [Context; 4],
    pub sig_coeff_flag: [Context; 44],
    pub greater1_flag: [Context; 24],
    pub greater2_flag: [Context; 6],
}

impl Contexts {
    /// The state at the start of a slice with SliceQpY = `slice_qp`.
    pub fn new(slice_qp: i32) -> Self {
        let one = |value| Context::from_init_value(value, slice_qp);
        let even = one(154);
        Self {
            sao_merge_flag: one(153),
            sao_type_idx: one(200),
            split_cu_flag: SPLIT_CU_FLAG.map(one),
            cu_transquant_bypass_flag: even,
            part_mode: one(184),
            prev_intra_luma_pred_flag: one(184),
            intra_chroma_pred_mode: one(63),
            split_transform_flag: SPLIT_TRANSFORM_FLAG.map(one),
            cbf_luma: CBF_LUMA.map(one),
            cbf_chroma: CBF_CHROMA.map(one),
            cu_qp_delta_abs: [even; 2],
            cu_chroma_qp_offset_flag: even,
            cu_chroma_qp_offset_idx: even,
            log2_res_scale_abs: [[even; 4]; 2],
            res_scale_sign_flag: [even; 2],
            transform_skip_flag: [one(139); 2],
            last_sig_coeff_x_prefix: LAST_SIG_COEFF_PREFIX.map(one),
            last_sig_coeff_y_prefix: LAST_SIG_COEFF_PREFIX.map(one),
            coded_sub_block_flag: CODED_SUB_BLOCK_FLAG.map(one),
            sig_coeff_flag: SIG_COEFF_FLAG.map(one),
            greater1_flag: GREATER1_FLAG.map(one),
            greater2_flag: GREATER2_FLAG.map(one),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_not_been_misprinted() {
        let sum = |table: &[u8]| table.iter().zip(1u32..).map(|(&v, i)| u32::from(v) * i).sum::<u32>();
        assert_eq!(
            [&LAST_SIG_COEFF_PREFIX[..], &SIG_COEFF_FLAG, &GREATER1_FLAG, &GREATER2_FLAG].map(sum),
            [19_341, 136_725, 45_268, 3_192]
        );
    }
}
