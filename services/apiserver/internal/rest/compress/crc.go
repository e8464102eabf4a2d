package compress

import "hash/crc32"

// combineChecksums returns the checksum of two concatenated parts, given the length of the second
// part. Appending n zero bits to a message multiplies its remainder by x^n modulo the polynomial.
func combineChecksums(first, second uint32, length int64) uint32 {
	if length <= 0 {
		return first
	}
	return multiplyPolynomials(squaredPowers.xToThe(uint64(length)*8), first) ^ second
}

// multiplyPolynomials multiplies two polynomials over GF(2) modulo the IEEE polynomial. Polynomials
// are bit-reflected: the highest bit is the coefficient of x^0.
func multiplyPolynomials(first, second uint32) uint32 {
	var product uint32
	for bit := uint32(1) << 31; bit != 0; bit >>= 1 {
		if first&bit != 0 {
			product ^= second
		}
		if second&1 != 0 {
			second = second>>1 ^ crc32.IEEE
		} else {
			second >>= 1
		}
	}
	return product
}

// powersOfX holds x^(2^i) at index i.
type powersOfX [64]uint32

// squaredPowers holds the powers of x that xToThe multiplies.
var squaredPowers = func() (powers powersOfX) {
	powers[0] = 1 << 30 // x
	for i := 1; i < len(powers); i++ {
		powers[i] = multiplyPolynomials(powers[i-1], powers[i-1])
	}
	return powers
}()

// xToThe returns x^n modulo the polynomial, by repeated squaring.
func (s *powersOfX) xToThe(n uint64) uint32 {
	power := uint32(1) << 31 // 1
	for i := range s {
		if n&(1<<i) != 0 {
			power = multiplyPolynomials(s[i], power)
		}
	}
	return power
}
