//! Polynomials modulo that of Ethernet's CRC-32, reflected: the highest bit is the power 0.

/// The CRC's own polynomial, without its highest power.
pub const POLYNOMIAL: u32 = 0xedb8_8320;
/// x to the power 0.
pub const ONE: u32 = 1 << 31;

/// Returns the product of two polynomials.
///
/// What stands `n` bits before the end of a message changes its CRC by itself times x to the power `n`.
#[inline]
pub fn product(one: u32, other: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(product) = crate::fold::product(one, other) {
        return product;
    }
    product_by_bits(one, other)
}

/// The same bit by bit: for constants, and for any processor.
pub const fn product_by_bits(one: u32, mut other: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if one & bit != 0 {
            product ^= other;
        }
        bit >>= 1;
        other = times_x(other);
    }
    product
}

/// Returns a polynomial times x.
pub const fn times_x(polynomial: u32) -> u32 {
    (polynomial >> 1) ^ ((polynomial & 1) * POLYNOMIAL)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_product_is_what_its_bits_say(one: u32, other: u32) {
            prop_assert_eq!(product(one, other), product_by_bits(one, other));
        }

        #[test]
        fn a_product_is_linear_and_one_changes_nothing(one: u32, other: u32, third: u32) {
            prop_assert_eq!(product(one, other), product(other, one));
            prop_assert_eq!(product(one, ONE), one);
            prop_assert_eq!(product(one ^ other, third), product(one, third) ^ product(other, third));
        }

        /// The register of a CRC is moved on by zeros as by powers of x.
        #[test]
        fn zeros_behind_a_message_multiply_its_register(register: u32, bytes in 0_usize..64) {
            let mut hasher = crc32fast::Hasher::new_with_initial(!register);
            hasher.update(&vec![0; bytes]);
            let power = (0..8 * bytes).fold(ONE, |power, _| times_x(power));
            prop_assert_eq!(!hasher.finalize(), product(register, power));
        }
    }
}
