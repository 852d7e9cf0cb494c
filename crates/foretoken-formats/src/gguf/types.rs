//! The tensor types of GGUF: their numbers, names and block sizes.

/// A tensor's element type, by its number in the file.
///
/// Sizes are those of the GGUF specification and ggml's type table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types, missing_docs, reason = "the names are ggml's")]
#[repr(u32)]
pub enum GgmlType {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q8_1 = 9,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    Q8_K = 15,
    IQ2_XXS = 16,
    IQ2_XS = 17,
    IQ3_XXS = 18,
    IQ1_S = 19,
    IQ4_NL = 20,
    IQ3_S = 21,
    IQ2_S = 22,
    IQ4_XS = 23,
    I8 = 24,
    I16 = 25,
    I32 = 26,
    I64 = 27,
    F64 = 28,
    IQ1_M = 29,
    BF16 = 30,
    TQ1_0 = 34,
    TQ2_0 = 35,
    MXFP4 = 39,
    NVFP4 = 40,
    Q1_0 = 41,
}

use GgmlType::*;

/// Type, name, elements in a block, bytes in a block.
const TABLE: [(GgmlType, &str, usize, usize); 34] = [
    (F32, "F32", 1, 4),
    (F16, "F16", 1, 2),
    (Q4_0, "Q4_0", 32, 18),
    (Q4_1, "Q4_1", 32, 20),
    (Q5_0, "Q5_0", 32, 22),
    (Q5_1, "Q5_1", 32, 24),
    (Q8_0, "Q8_0", 32, 34),
    (Q8_1, "Q8_1", 32, 36),
    (Q2_K, "Q2_K", 256, 84),
    (Q3_K, "Q3_K", 256, 110),
    (Q4_K, "Q4_K", 256, 144),
    (Q5_K, "Q5_K", 256, 176),
    (Q6_K, "Q6_K", 256, 210),
    (Q8_K, "Q8_K", 256, 292),
    (IQ2_XXS, "IQ2_XXS", 256, 66),
    (IQ2_XS, "IQ2_XS", 256, 74),
    (IQ3_XXS, "IQ3_XXS", 256, 98),
    (IQ1_S, "IQ1_S", 256, 50),
    (IQ4_NL, "IQ4_NL", 32, 18),
    (IQ3_S, "IQ3_S", 256, 110),
    (IQ2_S, "IQ2_S", 256, 82),
    (IQ4_XS, "IQ4_XS", 256, 136),
    (I8, "I8", 1, 1),
    (I16, "I16", 1, 2),
    (I32, "I32", 1, 4),
    (I64, "I64", 1, 8),
    (F64, "F64", 1, 8),
    (IQ1_M, "IQ1_M", 256, 56),
    (BF16, "BF16", 1, 2),
    (TQ1_0, "TQ1_0", 256, 54),
    (TQ2_0, "TQ2_0", 256, 66),
    (MXFP4, "MXFP4", 32, 17),
    (NVFP4, "NVFP4", 64, 36),
    (Q1_0, "Q1_0", 128, 18),
];

/// Numbers that once meant a layout and are now refused by every reader.
const REMOVED: [(u32, &str); 8] = [
    (4, "Q4_2"),
    (5, "Q4_3"),
    (31, "Q4_0_4_4"),
    (32, "Q4_0_4_8"),
    (33, "Q4_0_8_8"),
    (36, "IQ4_NL_4_4"),
    (37, "IQ4_NL_4_8"),
    (38, "IQ4_NL_8_8"),
];

impl GgmlType {
    /// The types that foretoken computes with.
    pub const SUPPORTED: [GgmlType; 11] = [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K];

    /// The type with this number, if the number is in use.
    pub fn from_id(id: u32) -> Option<Self> {
        TABLE.iter().map(|row| row.0).find(|ty| *ty as u32 == id)
    }

    /// The number in the file.
    pub fn id(self) -> u32 {
        self as u32
    }

    fn row(self) -> &'static (GgmlType, &'static str, usize, usize) {
        TABLE.iter().find(|row| row.0 == self).expect("the table has every type")
    }

    /// ggml's name of the type.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Elements in a block; a row holds whole blocks.
    pub fn block_len(self) -> usize {
        self.row().2
    }

    /// Bytes in a block.
    pub fn block_bytes(self) -> usize {
        self.row().3
    }

    /// Whether foretoken computes with this type.
    pub fn supported(self) -> bool {
        Self::SUPPORTED.contains(&self)
    }

    /// Names of the supported types, for messages.
    pub fn supported_names() -> String {
        Self::SUPPORTED.map(Self::name).join(", ")
    }
}

impl std::fmt::Display for GgmlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// What a number without a type once was, for messages: "type 4 (Q4_2, removed from the format)".
pub(super) fn describe_unknown(id: u32) -> String {
    match REMOVED.iter().find(|(removed, _)| *removed == id) {
        Some((_, name)) => format!("type {id} ({name}, removed from the format)"),
        None => format!("unknown type {id}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_use_once_and_round_trip() {
        for (ty, name, block_len, block_bytes) in TABLE {
            assert_eq!(GgmlType::from_id(ty.id()), Some(ty));
            assert_eq!((ty.name(), ty.block_len(), ty.block_bytes()), (name, block_len, block_bytes));
            assert!(REMOVED.iter().all(|(id, _)| *id != ty.id()));
        }
        assert_eq!(GgmlType::from_id(4), None);
        assert_eq!(describe_unknown(4), "type 4 (Q4_2, removed from the format)");
        assert_eq!(describe_unknown(77), "unknown type 77");
    }
}
